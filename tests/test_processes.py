"""A process that was forked from a warm interpreter is what a new interpreter would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.processes import WarmProcess

SURROUNDINGS = """
import json, os, sys, threading
print(json.dumps({
    "arguments": sys.argv,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "parent": os.getppid(),
    "path": sys.path[0],
    "threads": threading.active_count(),
    "files": sorted(os.listdir("/proc/self/fd"))[:-1],
    "in main": __name__ == "__main__" and sys.modules["__main__"].SOMETHING,
    "said": sys.stdin.read(),
    "flushed at the end": [sys.stdout.line_buffering, sys.stdout.encoding],
}) if (SOMETHING := "here") else None)
"""


def run(
    kind: type[subprocess.Popen[Any]], *arguments: str, said: str = "", **options: Any
) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    options |= dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with kind([sys.executable, *arguments], text=True, **options) as process:
        stdout, stderr = process.communicate(said, timeout=60)
    return process.returncode, stdout, stderr


def surroundings(kind: type[subprocess.Popen[str]], folder: Path) -> Any:
    arguments = ("-c", SURROUNDINGS, "one", "two")
    environment = {"LANG": "C.UTF-8", "MINE": "x=y"}
    code, stdout, stderr = run(kind, *arguments, said="ü\n", cwd=folder, env=environment)
    assert (code, stderr) == (0, "")
    return json.loads(stdout)


def test_a_script_meets_the_same_surroundings(tmp_path: Path) -> None:
    warm = surroundings(WarmProcess, tmp_path)
    assert warm == surroundings(subprocess.Popen, tmp_path)
    assert warm["parent"] == os.getpid()


def test_a_module_is_run_as_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import sys; print(__name__, sys.argv[1:], sys.argv[0] == __file__)\n"
    )
    arguments = ("-m", "mine", "one")
    expected = (0, "__main__ ['one'] True\n", "")
    assert run(WarmProcess, *arguments, cwd=tmp_path) == expected
    assert run(subprocess.Popen, *arguments, cwd=tmp_path) == expected


@pytest.mark.parametrize(
    "script",
    [
        "print('before'); raise SystemExit(3)",
        "import sys; sys.exit('why')",
        "import os; os._exit(4)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import atexit; atexit.register(print, 'at exit')",
        "import threading, time; threading.Timer(0.01, print, ['a thread']).start()",
        "import sys; sys.stdout.write('no line'); sys.stdout.close()",
        "1 / 0",
    ],
)
def test_it_ends_in_the_same_way(tmp_path: Path, script: str) -> None:
    warm_code, warm_output, warm_errors = run(WarmProcess, "-c", script, cwd=tmp_path)
    code, output, errors = run(subprocess.Popen, "-c", script, cwd=tmp_path)
    assert (warm_code, warm_output) == (code, output)
    assert warm_errors.splitlines()[-1:] == errors.splitlines()[-1:]


def test_it_can_be_killed_and_is_waited_for(tmp_path: Path) -> None:
    with WarmProcess([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
    assert process.returncode == -signal.SIGTERM
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_several_threads_may_start_some() -> None:
    said: list[str] = []

    def start(number: int) -> None:
        _, output, _ = run(WarmProcess, "-c", f"print({number})")
        said.append(output)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [f"{number}\n" for number in range(8)]
