"""The processes that work on one store at the same time, and what they record."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tests.proof.edited import Edit, command
from tests.proof.linearizability.calls import Call, Recorded
from tests.proof.linearizability.search import Operation
from tests.support import ROOT

PATIENCE_S = 60  # seconds after which a process that says nothing hangs

# How far broker time may be from what the clocks say, in milliseconds, besides what is not known of
# them: their resolution, and the pace of a clock that is being adjusted.
SLACK_MS = 20


class Offset(NamedTuple):
    """What broker time is ahead of the monotonic clock, and how far that may be wrong, both in ms."""

    error: float
    ms: float


class Failed(Exception):
    """An operation ended with an error that none may end with, or a process with anything."""


@dataclass
class Records:
    """What processes said of a program, as far as they got; times are of the monotonic clock."""

    calls: list[Recorded] = field(default_factory=list)
    nothing: int = 0  # operations whose error says that nothing was stored
    unknown: int = 0  # operations whose answer says that it is not known
    cut_off: int = 0  # operations whose process ended before it answered
    credentials: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def pending(self) -> list[dict[str, Any]]:
        """What to ask again, for nobody knows what came of it."""
        return [
            {"method": each.call.method, "request": each.call.request, "id": each.call.request_id}
            for each in self.calls
            if each.answered is None and each.call.id is not None
        ]


class Member:
    """One process of a crew."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        connection.settimeout(PATIENCE_S)
        self._connection = connection
        self._file = connection.makefile("rb")
        self.name = name
        self.pid = int(orjson.loads(self._file.readline())["pid"])
        self.is_killed = False
        self.is_alive = True

    def order(self, **program: Any) -> None:
        """Give it a program."""
        self._connection.sendall(orjson.dumps(program) + b"\n")

    def said(self) -> Iterator[dict[str, Any]]:
        """What it says of the program, until that is done or it was killed; raises Failed."""
        with suppress(ConnectionResetError):
            for line in self._file:
                if not line.endswith(b"\n"):
                    break
                said = orjson.loads(line)
                yield said
                if "done" in said:
                    return
        self.is_alive = False
        if not self.is_killed:
            raise Failed("a process ended before its time")

    def kill(self) -> None:
        """End it at whatever it is doing."""
        self.is_killed = True
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Let go of it."""
        self._file.close()
        self._connection.close()


class Crew:
    """Up to a few processes, made anew when they are gone."""

    def __init__(self, listener: socket.socket, nursery: subprocess.Popen[bytes]) -> None:
        self._listener = listener
        self._nursery = nursery
        self._members: list[Member] = []
        self._made = 0

    def members(self, count: int) -> list[Member]:
        """So many of them, alive."""
        for each in [each for each in self._members if each.is_killed or not each.is_alive]:
            each.end()
            self._members.remove(each)
        while len(self._members) < count:
            assert self._nursery.stdin is not None
            self._nursery.stdin.write(b"fork\n")
            self._nursery.stdin.flush()
            self._made += 1
            connection, _ = self._listener.accept()
            self._members.append(Member(connection, f"p{self._made}"))
        return self._members[:count]

    def end(self) -> None:
        """Let go of all of them."""
        for each in self._members:
            each.end()
        self._nursery.communicate()


@contextmanager
def crew(edits: Sequence[Edit] = ()) -> Iterator[Crew]:
    """A crew of processes, which work with `edits` of the store."""
    with tempfile.TemporaryDirectory(prefix="crew-") as folder, socket.socket(socket.AF_UNIX) as at:
        path = str(Path(folder) / "socket")
        at.bind(path)
        at.listen()
        at.settimeout(PATIENCE_S)
        nursery = subprocess.Popen(
            command(edits, "tests.proof.linearizability.worker", path),
            stdin=subprocess.PIPE,
            cwd=ROOT,
        )
        made = Crew(at, nursery)
        try:
            yield made
        finally:
            made.end()


def work(
    members: Sequence[Member],
    programs: Sequence[list[list[dict[str, Any]]]],
    offset: Offset,
    *,
    disturb: Any = None,
    **how: Any,
) -> Records:
    """Let each member do its program, all at the same time; what they recorded.

    `disturb` is done meanwhile, on a thread of its own, with the time at which they start. Raises Failed.
    """
    start = time.monotonic_ns() + 2_000_000
    for member, threads in zip(members, programs, strict=True):
        member.order(threads=threads, start=start, **how)
    records = Records()
    disturbing = threading.Thread(target=disturb, args=(start,)) if disturb else None
    if disturbing:
        disturbing.start()
    with ThreadPoolExecutor(len(members)) as pool:
        said = list(pool.map(lambda member: list(member.said()), members))
    if disturbing:
        disturbing.join()
    for member, lines in zip(members, said, strict=True):
        _take(records, member.name, lines, offset)
    return records


def _take(records: Records, name: str, lines: Sequence[dict[str, Any]], offset: Offset) -> None:
    """Put what a member said among the records."""
    slack = SLACK_MS + offset.error
    answers = {line["number"]: line for line in lines if "number" in line and "method" not in line}
    for line in lines:
        if "credentials" in line:
            for actor, known in line["credentials"].items():
                records.credentials.setdefault(actor, []).extend(known)
        if "method" not in line:
            continue
        answer = answers.get(line["number"], {})
        if "failed" in answer:
            raise Failed(f"{line['method']} {line['request']}: {answer['failed']}")
        records.cut_off += not answer
        records.unknown += "unknown" in answer
        if "nothing" in answer:  # which is as good as if it had never been called
            records.nothing += 1
            continue
        is_answered = "result" in answer or "refusal" in answer
        call = Call(
            who=f"{name}.{line['thread']}",
            method=line["method"],
            request=line["request"],
            request_id=line["id"],
            earliest=math.floor(line["at"] / 1e6 + offset.ms - slack),
            latest=math.ceil(answer["at"] / 1e6 + offset.ms + slack) if is_answered else math.inf,
            result=answer.get("result"),
            refusal=answer.get("refusal"),
        )
        answered = answer["at"] if is_answered else None
        records.calls.append(Operation(line["at"], answered, call))
