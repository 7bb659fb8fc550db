"""Processes of Python for tests, which start in a tenth of the time: `WarmProcess`.

Another interpreter takes half a second to import what it needs. An interpreter that has imported it,
and has done nothing else, forks in a few milliseconds: `python -m tests.processes`, one for each
process that runs tests. What it forks runs a script or a module as `python -c` and `python -m` do,
with a working folder, an environment and standard streams of its own; it is a child of the process
that asked for it, and ends as any interpreter does.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, AnyStr

_ROOT = Path(__file__).parent.parent
IMPORTED = ["broker.cli", "broker.schema.migrate", "rich.progress", "psycopg", "aiosqlite"]
MOST_BYTES = 2**18  # of a script, its arguments and its environment
PR_SET_CHILD_SUBREAPER = 36


class WarmProcess(subprocess.Popen[AnyStr]):
    """As a `Popen` of `[sys.executable, "-c", script, …]` or `[sys.executable, "-m", module, …]`.

    Of the options there are those for the streams and their text, `cwd` and `env`. Where the system
    is not Linux it is such a `Popen`.
    """

    if sys.platform == "linux":

        def _execute_child(self, args: list[str], *others: Any) -> None:
            """What the class does to start a child, with others between `args` and the pipes."""
            cwd, env, pipes = others[4], others[5], others[9:15]
            theirs = [pipes[0], pipes[3], pipes[5]]
            self.pid = _nursery(os.getpid()).fork(args[1:], cwd, env, theirs)
            self._child_created = True
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # typeshed has no private ones


@dataclass
class Nursery:
    """The process that forks others."""

    process: subprocess.Popen[bytes]
    asking: socket.socket
    turn: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def start(cls) -> Nursery:
        """One that ends when nobody is at this end of its socket."""
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": str(_ROOT)},
                pass_fds=[theirs.fileno()],
            )
        return cls(process, ours)

    def end(self) -> None:
        """Let it end; what it has forked goes on."""
        self.asking.close()
        self.process.wait()

    def fork(
        self,
        arguments: list[str],
        cwd: str | Path | None,
        env: Mapping[str, str] | None,
        streams: list[int],
    ) -> int:
        """The id of a new child of this process; a stream of -1 is ours."""
        request = [arguments, str(cwd or Path.cwd()), dict(os.environ if env is None else env)]
        files = [own if given == -1 else given for own, given in enumerate(streams)]
        with self.turn, _orphans_are_children():
            socket.send_fds(self.asking, [json.dumps(request).encode()], files)
            return int(self.asking.recv(100))


@cache
def _nursery(_of_process: int) -> Nursery:
    started = Nursery.start()
    atexit.register(started.end)
    return started


@contextmanager
def _orphans_are_children() -> Iterator[None]:
    """A process whose parent ends meanwhile is a child of ours from then on."""
    control = ctypes.CDLL(None, use_errno=True).prctl
    if control(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    try:
        yield
    finally:
        control(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


# -------------------------------------------------------------------------- the forking process


def _asked(asking: socket.socket) -> list[Any] | None:
    """Fork for each request and, in the child, return it; None when nobody asks any more."""
    while True:
        message, files, _, _ = socket.recv_fds(asking, MOST_BYTES, 3)
        if not message:
            return None
        said, saying = os.pipe()
        between = os.fork()  # ends at once, so that its child is an orphan
        if between == 0:
            if _is_parent(saying):
                os._exit(0)
            asking.close()
            os.close(said)
            os.close(saying)
            for own, given in enumerate(files):
                os.dup2(given, own)
                os.close(given)
            return list(json.loads(message))
        os.waitpid(between, 0)
        asking.send(os.read(said, 100))
        for each in (said, saying, *files):
            os.close(each)


def _is_parent(saying: int) -> bool:
    """Fork, and let the child go on when its parent has ended."""
    parent, child = os.getpid(), os.fork()
    if child:
        os.write(saying, b"%d" % child)
    while not child and os.getppid() == parent:
        time.sleep(0.0005)
    return bool(child)


def _run(arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    option, what, *others = arguments
    if option == "-m":
        sys.argv, sys.path[0] = [what, *others], cwd
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = ["-c", *others], ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(main))  # noqa: S102  # a script of a test's


def main() -> None:
    """Fork until nobody asks, and do in each child what it is for."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is there now stays shared
    asked = _asked(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _run(*asked)


if __name__ == "__main__":
    main()
