"""The nursery, as its supervisor sees it: it starts workers, and says how they ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.proof.edited import Edit, command
from tests.proof.kill.worker import Job
from tests.proof.shim import environment

ROOT = Path(__file__).parents[3]
MOST_BYTES = 1 << 16


@dataclass
class Child:
    """A worker, by what its supervisor has of it: `book` to read, `orders` to close."""

    name: str
    pid: int
    book: int
    orders: int | None

    def kill(self) -> None:
        """End it at once; it may be dead."""
        os.kill(self.pid, signal.SIGKILL)

    def dismiss(self) -> None:
        """Let it come to an end by itself."""
        if self.orders is not None:
            os.close(self.orders)
            self.orders = None


class Nursery:
    """Its supervisor's end: starts the process, and ends it with all that it has started.

    With `shim` its workers can die in system calls on files whose path has `path_part`. With `edits`
    their store is another than ours.
    """

    def __init__(
        self, shim: Path | None = None, path_part: str = "", edits: Sequence[Edit] = ()
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                command(edits, "tests.proof.kill.forking", str(theirs.fileno())),
                env=dict(os.environ) if shim is None else environment(shim, path_part),
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the supervisor
            )
        self._socket = ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.wait(60)

    def warm_up(self, job: Job) -> None:
        """Let it use a store like that of a job, whose workers are then the faster for it."""
        self._ask({"warm up": job.form()})

    def start(self, job: Job) -> Child:
        """Fork a worker."""
        book, their_book = os.pipe()
        their_orders, orders = os.pipe()
        pid = self._ask({"job": job.form()}, [their_book, their_orders])
        os.close(their_book)
        os.close(their_orders)
        return Child(job.name, pid, book, orders)

    def end_of(self, child: Child) -> int:
        """Wait for a worker that ends; its exit code, -9 if it was killed."""
        child.dismiss()
        os.close(child.book)
        return self._ask({"end of": child.pid})

    def _ask(self, what: dict[str, Any], files: list[int] | None = None) -> int:
        socket.send_fds(self._socket, [json.dumps(what).encode()], files or [])
        answer = self._socket.recv(MOST_BYTES)
        if not answer:
            raise RuntimeError("the nursery has gone")
        return int(answer)
