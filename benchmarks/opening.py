"""Opening, migrating and checking a database: how long, and in how much memory.

The database is one of version 1 as the reference leaves it, full of runtime events of a hundred
streams, so that migrating it goes all the way: lineage, owners found by reading every event,
indexes. Each is done in a process of its own, and its peak of memory compared with the same for a
journal a fraction as long: it must be flat.
"""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from benchmarks.measure import Figure
from benchmarks.scale import Scale

#: Memory may be this much more for the longer journal: what allocators round up to.
MEMORY_BOUND = 1.15

_ROOT = Path(__file__).parent.parent
_VECTORS = _ROOT / "tests" / "vectors" / "migrations.jsonl"
_TITLES = {
    "upgrade": "migrating version 1",
    "opening": "opening at head",
    "drift": "checking for drift",
}
_EVENTS_A_STREAM = 100
_CHUNK = 10_000


def figures(scale: Scale, folder: Path, _rng: random.Random) -> Iterator[Figure]:
    """Time and peak memory for both journals, the longer against the shorter."""
    short, long = scale.journals
    reports = {events: _probe_all(folder, events, scale.openings) for events in scale.journals}
    for what, title in _TITLES.items():
        of_long, of_short = reports[long][what], reports[short][what]
        yield Figure(
            f"{what}_time",
            f"{title}, {long:,} events against {short:,}",
            "ms",
            of_long["median_ms"],
            of_short["median_ms"],
            more={"measured_first_ms": of_long["first_ms"], "base_first_ms": of_short["first_ms"]},
        )
        yield Figure(
            f"{what}_memory",
            "… its peak of memory",
            "mib",
            of_long["peak_mib"],
            of_short["peak_mib"],
            MEMORY_BOUND,
            {"measured_added_mib": of_long["added_mib"], "base_added_mib": of_short["added_mib"]},
        )


def _probe_all(folder: Path, events: int, times: int) -> dict[str, dict[str, float]]:
    path = folder / f"journal-{events}.db"
    make_version_1(path, events)
    reports = {
        what: _probe(what, path, 1 if what == "upgrade" else times)
        for what in ("upgrade", "opening", "drift")
    }
    path.unlink()
    return reports


def _probe(what: str, path: Path, times: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.probe", what, str(path), str(times)]
    run = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
    report: dict[str, float] = json.loads(run.stdout)
    return report


# ---------------------------------------------------------------------------- as the reference left it


def make_version_1(path: Path, events: int) -> None:
    """A database of version 1 by the reference's own statements, with so many runtime events."""
    cases = map(json.loads, _VECTORS.read_text().splitlines())
    scripts = {case["name"]: case["script"] for case in cases}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.executescript(scripts["v1-empty"])
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
        for first in range(0, events, _CHUNK):
            _append(connection, range(first, min(first + _CHUNK, events)))


def _append(connection: sqlite3.Connection, numbers: range) -> None:
    connection.execute("BEGIN")
    streams = range(-(-numbers.start // _EVENTS_A_STREAM), -(-numbers.stop // _EVENTS_A_STREAM))
    connection.executemany(
        "INSERT INTO streams VALUES (?, ?, 5, 6)",
        ((f"stream-{stream:06d}", _EVENTS_A_STREAM) for stream in streams),
    )
    connection.executemany(
        "INSERT INTO actor_leases VALUES (?, 'holder', 3, 'nonce', 1, 2, 900)",
        ((f"stream-{stream:06d}",) for stream in streams),
    )
    connection.executemany(
        "INSERT INTO inbox VALUES (?, ?, ?, ?, '{}', 5)", (_message(each) for each in numbers)
    )
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, 'domain.event', ?, 1, 5, NULL, NULL, NULL)",
        (_event(each) for each in numbers),
    )
    connection.executemany(
        "INSERT INTO outbox VALUES (?, ?, ?, 'destination', '{}', 5, 5, 6, 1)",
        ((f"o-{each:09d}", f"m-{each:09d}", f"e-{each:09d}") for each in numbers),
    )
    connection.execute("COMMIT")


def _place(number: int) -> tuple[str, int]:
    stream, index = divmod(number, _EVENTS_A_STREAM)
    return f"stream-{stream:06d}", index + 1


def _message(number: int) -> tuple[Any, ...]:
    stream_id, revision = _place(number)
    return f"m-{number:09d}", "0" * 64, stream_id, revision


def _event(number: int) -> tuple[Any, ...]:
    stream_id, revision = _place(number)
    payload = {
        "version": 2,
        "revision": 1,
        "streamId": stream_id,
        "sequence": revision,
        "actor": {
            "version": 2,
            "revision": 1,
            "workspaceId": f"workspace-{stream_id[-2:]}",
            "actorKind": "root",
            "actorId": stream_id,
            "generation": 1,
        },
        "producerEpoch": 1,
        "occurredAt": 1,
        "kind": "domain.event",
        "eventType": "schedule.created",
        "eventId": f"domain-{number}",
    }
    text = orjson.dumps(payload).decode()
    return f"e-{number:09d}", f"m-{number:09d}", stream_id, revision, text
