"""The power goes: of what a process wrote and did not flush, any part may be left.

What a process does to its files is recorded. For a cut at any point of the record, the files are
made anew from what was flushed until then, and a part of what was not: of each write none, all, or
some of its sectors; of each removal or creation of a file either.
"""

from __future__ import annotations

import os
import random
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from broker import Broker
from broker.errors import BrokerError
from tests.places import rows, url_of
from tests.proof.edited import Edit, command
from tests.proof.invariants import broken
from tests.proof.report import Report
from tests.proof.shim import build
from tests.support import ROOT

RECORDER = Path(__file__).with_name("recorder.c")
SECTOR = 512
_HEAD = struct.Struct("4l")


class Deed(NamedTuple):
    """What was done: W(rite), T(runcate), S(ync), U(nlink), C(reate), or A: `at` was acknowledged."""

    kind: str
    path: str
    at: int
    content: bytes


@dataclass
class File:
    """What a file holds for certain, and what was done to it since."""

    flushed: bytearray = field(default_factory=bytearray)
    since: list[Deed] = field(default_factory=list)

    def flush(self) -> None:
        """All that was done is certain."""
        for deed in self.since:
            _do(self.flushed, deed)
        self.since = []

    def after_a_cut(self, choose: random.Random) -> bytes:
        """What may be left."""
        left = bytearray(self.flushed)
        share = choose.choice([0.0, 0.2, 0.5, 0.8, 1.0])
        for deed in self.since:
            if choose.random() < share:
                _do(left, deed)
            elif deed.kind == "W" and choose.random() < share:
                for each in _sectors(deed):
                    if choose.random() < share:
                        _do(left, each)
        return bytes(left)


def _do(content: bytearray, deed: Deed) -> None:
    end = deed.at + len(deed.content)
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if deed.kind == "T":
        del content[deed.at :]
    else:
        content[deed.at : end] = deed.content


def _sectors(deed: Deed) -> Iterator[Deed]:
    start, end = deed.at, deed.at + len(deed.content)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield deed._replace(at=start, content=deed.content[start - deed.at : stop - deed.at])
        start = stop


@dataclass
class Disk:
    """A folder: which file has which name for certain, and which names were given or taken since."""

    folder: str
    names: dict[str, File] = field(default_factory=dict)
    now: dict[str, File] = field(default_factory=dict)
    since: list[tuple[str, File | None]] = field(default_factory=list)

    def do(self, deed: Deed) -> None:
        """Let something happen to it."""
        if deed.kind == "U":
            self.now.pop(deed.path, None)
            self.since.append((deed.path, None))
        elif deed.kind == "S" and deed.path.rstrip("/") == self.folder:
            self.names, self.since = dict(self.now), []
        elif deed.kind != "A":
            file = self._file(deed.path)
            if deed.kind == "S":
                file.flush()
            elif deed.kind in "WT":
                file.since.append(deed)

    def _file(self, path: str) -> File:
        if path not in self.now:
            self.now[path] = File()
            self.since.append((path, self.now[path]))
        return self.now[path]

    def after_a_cut(self, choose: random.Random) -> dict[str, bytes]:
        """What may be left: names change in the order in which they did, up to some point."""
        names = dict(self.names)
        for path, file in self.since[: choose.randint(0, len(self.since))]:
            if file is None:
                names.pop(path, None)
            else:
                names[path] = file
        return {path: file.after_a_cut(choose) for path, file in names.items()}


def lose_power(
    seeds: Sequence[int], folder: Path, edits: Sequence[Edit] = (), *, cuts: int = 20
) -> Report:
    """For each seed record a process, and cut the power so many times."""
    report = Report()
    report.counts.update({"power cuts": 0, "kept over a cut": 0, "lost": 0})
    library = build(folder, RECORDER)
    if library is None:
        report.left_out.append("power cuts: there is no C compiler")
        return report
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=folder, prefix="power-") as own:
            path = Path(own) / "store" / "broker.db"
            path.parent.mkdir()
            deeds = _recorded(library, path, seed, edits)
            choose = random.Random(seed)
            for _ in range(cuts):
                _cut(report, seed, deeds, path, choose)
    return report


def _recorded(library: Path, path: Path, seed: int, edits: Sequence[Edit]) -> list[Deed]:
    log = path.parent.parent / "record"
    own = {"LD_PRELOAD": str(library), "RECORD_PATH": str(path.parent), "RECORD_LOG": str(log)}
    subprocess.run(
        command(edits, "tests.proof.faults.recorded", str(path), str(seed)),
        env=os.environ | own,
        cwd=ROOT,
        check=True,
        timeout=120,
        stdout=sys.stderr,
    )
    return list(_deeds(log.read_bytes()))


def _deeds(record: bytes) -> Iterator[Deed]:
    at = 0
    while at < len(record):
        kind, path_size, where, size = _HEAD.unpack_from(record, at)
        at += _HEAD.size
        path = record[at : at + path_size].decode()
        at += path_size
        content = record[at : at + size]
        at += size
        yield Deed(chr(kind), path, where, content)


def _cut(
    report: Report, seed: int, deeds: Sequence[Deed], path: Path, choose: random.Random
) -> None:
    at = choose.randint(1, len(deeds))
    disk = Disk(str(path.parent))
    for deed in deeds[:at]:
        disk.do(deed)
    acknowledged = {f"m-{deed.at}" for deed in deeds[:at] if deed.kind == "A"}
    for each in path.parent.iterdir():
        each.unlink()
    for name, content in disk.after_a_cut(choose).items():
        Path(name).write_bytes(content)
    report.counts["power cuts"] += 1
    report.counts["kept over a cut"] += len(acknowledged)
    for what in _lost(path, acknowledged):
        report.counts["lost"] += 1
        report.broken(seed, f"the power went after {at} of {len(deeds)} deeds: {what}")


def _lost(path: Path, acknowledged: set[str]) -> Iterator[str]:
    """Open what is left as a store does; what is not as it was promised."""
    try:
        Broker.open(url_of(path)).close()
    except BrokerError as error:
        yield f"it cannot be opened: {error!r}"
        return
    try:
        found = {name for (name,) in rows(path, "SELECT message_id FROM inbox")}
        if not acknowledged <= found:
            yield f"not there: {sorted(acknowledged - found)[:3]}"
        yield from broken(path)
    except sqlite3.DatabaseError as error:
        yield f"it is damaged: {error!r}"
