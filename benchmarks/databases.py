"""Databases for the scenarios: made by the store, then used by it or by the floor."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import floor
from benchmarks.measure import timed
from benchmarks.workload import (
    ACTOR,
    FIRST_MS,
    FOREVER_MS,
    PLAIN,
    STREAM,
    Kind,
    Ready,
    Requests,
    ready,
    ticking_options,
)
from broker import Broker

#: Later than any time that the store gives out while it makes a database.
LATER_MS = FIRST_MS + 1_000_000


@dataclass(slots=True)
class Measured:
    """A database in the hands of the store, and the requests for its stream."""

    path: Path
    broker: Broker
    requests: Requests

    def commits(self, count: int, events: int = 1) -> list[int]:
        """The nanoseconds of some commits, from request dict to result."""
        return timed(self.broker.commit, [self.requests.next(events) for _ in range(count)])


@dataclass(slots=True)
class Raw:
    """A database of the same making in the hands of plain `sqlite3`."""

    connection: sqlite3.Connection
    cursor: sqlite3.Cursor
    requests: Requests
    now: int = LATER_MS

    def commits(self, count: int, events: int = 1) -> list[int]:
        """The nanoseconds of some commits, their parameters ready beforehand."""
        parameters = [self.next(events) for _ in range(count)]
        return timed(lambda each: floor.commit(self.cursor, each), parameters)

    def next(self, events: int = 1) -> Ready:
        """The parameters of the stream's next commit."""
        self.now += 1
        return ready(self.requests.next(events), self.now)


@contextmanager
def measured(path: Path, kind: Kind = PLAIN) -> Iterator[Measured]:
    """A fresh database with one stream, a lease that does not end, and a first commit."""
    with Broker.open(f"sqlite:///{path}", options=ticking_options()) as broker:
        lease = broker.acquire_lease(
            {"actorId": ACTOR, "streamId": STREAM, "holderId": "bench", "ttlMs": FOREVER_MS}
        )
        requests = Requests(lease, kind)
        broker.commit(requests.next())
        yield Measured(path, broker, requests)


@contextmanager
def crowded(path: Path, callers: int) -> Iterator[tuple[Broker, list[Requests]]]:
    """A fresh database with a stream for each caller: a lease that does not end, a first commit."""
    numbers = itertools.count(1)
    with Broker.open(f"sqlite:///{path}", options=ticking_options()) as broker:
        crowd = []
        for number in range(callers):
            name = f"{number:04d}"
            lease = broker.acquire_lease(
                {
                    "actorId": f"actor-{name}",
                    "streamId": f"stream-{name}",
                    "holderId": "bench",
                    "ttlMs": FOREVER_MS,
                }
            )
            requests = Requests(lease, numbers=numbers)
            broker.commit(requests.next())
            crowd.append(requests)
        yield broker, crowd


@contextmanager
def raw(path: Path, kind: Kind = PLAIN) -> Iterator[Raw]:
    """The same database, closed by the store and opened by plain `sqlite3`."""
    with measured(path, kind) as made:
        requests = made.requests
    with closing(floor.connect(path)) as connection:
        yield Raw(connection, connection.cursor(), requests)
