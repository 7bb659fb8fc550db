"""The command as another program meets it: real processes, real pipes, real files."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.cli import main
from tests.processes import WarmProcess

ROOT = Path(__file__).parent.parent.parent

BROKER = [sys.executable, "-m", "broker"]


def environment(**more: str) -> dict[str, str]:
    """The process's own, without what would change the command's answers."""
    kept = {name: value for name, value in os.environ.items() if name != "BROKER_DATABASE_URL"}
    return kept | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"} | more


def broker(
    *arguments: str, cwd: Path, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    with _started(*arguments, cwd=cwd, **variables) as process:
        stdout, stderr = process.communicate(stdin)
    assert b"Traceback" not in stderr, stderr.decode()
    return subprocess.CompletedProcess(
        process.args, process.returncode, stdout.decode(), stderr.decode()
    )


def _started(*arguments: str, cwd: Path, **variables: str) -> subprocess.Popen[bytes]:
    return WarmProcess(
        [*BROKER, *arguments],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**variables),
    )


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The command in this process, which is quicker: exit code, stdout, stderr."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


class Served:
    """`broker apply -`, driven through its pipes a line at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self._stdin, self._stdout = process, process.stdin, process.stdout

    def send(self, line: bytes) -> dict[str, Any]:
        """The answer to a line, which is waited for before anything else is sent."""
        self._stdin.write(line + b"\n")
        self._stdin.flush()
        text = self._stdout.readline()
        assert text.endswith(b"\n"), text
        answer: dict[str, Any] = json.loads(text)
        return answer

    def call(self, method: str, params: Any, **more: Any) -> Any:
        """The result of a method; fails if it was refused."""
        answer = self.ask(method, params, **more)
        assert answer["ok"] is True, answer
        assert answer.keys() == {"ok", "result"}
        return answer["result"]

    def ask(self, method: str, params: Any, **more: Any) -> dict[str, Any]:
        """The answer to a method, whatever it is."""
        return self.send(json.dumps({"method": method, "params": params} | more).encode())

    def refusal(self, line: bytes) -> tuple[str, dict[str, Any]]:
        """Code and details of what a line is refused with."""
        answer = self.send(line)
        assert answer.keys() == {"ok", "error"}, answer
        assert answer["ok"] is False
        assert answer["error"]["message"]
        return answer["error"]["code"], answer["error"].get("details", {})

    def finish(self) -> int:
        """Send nothing more; the exit code."""
        self._stdin.close()
        return self.process.wait(timeout=20)


@contextmanager
def serving(folder: Path, **variables: str) -> Iterator[Served]:
    """`broker apply -` on the default database of a folder, unless a variable names another."""
    process = _started("apply", "-", cwd=folder, **variables)
    with process:
        try:
            yield Served(process)
        finally:
            process.kill()


def run_sql(path: Path, script: str) -> None:
    """Run a script with a client that knows nothing of us."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
