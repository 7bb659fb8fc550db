"""Commits: one at a time, many events at once, in a caller's own session, and found again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from benchmarks import floor
from benchmarks.databases import Measured, Raw, measured, raw
from benchmarks.measure import Figure, alternate, compare, mean_us, median_us, p99_us, timed
from benchmarks.scale import Scale
from benchmarks.workload import RUNTIME_EVENT, Request, Requests, ticking_options
from broker import IMMEDIATE, UnitOfWork, configure_engine
from broker.clock import LogicalClock
from broker.options import Options

ONE_COMMIT_BOUND = 1.33
BULK_BOUND = 0.45


def figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    """One commit by three doors, and the same commit found again.

    First the store and the floor take turns, one commit each, which is what a caller sees who has
    other work between two commits. Then each commits many times in a row: there the floor keeps
    the caches to itself, and is served by a disk that has not gone to sleep.
    """
    with (
        measured(folder / "commit.db") as store,
        raw(folder / "commit-floor.db") as plain,
        _own_session(folder / "commit-session.db") as application,
    ):
        by_turns = alternate(
            {"store": lambda: store.commits(1), "floor": lambda: plain.commits(1)},
            scale.rounds * scale.block,
            rng,
        )
        spent = alternate(
            {
                "store": lambda: store.commits(scale.block),
                "floor": lambda: plain.commits(scale.block),
                "session": lambda: application.commits(scale.block),
                "replay": lambda: _replays(store, scale.block),
                "replay floor": lambda: _raw_replays(plain, scale.block),
            },
            scale.rounds,
            rng,
        )
    yield compare(
        "commit", "one commit, by turns", by_turns["store"], by_turns["floor"], ONE_COMMIT_BOUND
    )
    base = spent["floor"]
    yield compare("commit_in_a_row", "one commit, in a row", spent["store"], base, ONE_COMMIT_BOUND)
    yield Figure("commit_p99", "… its p99", "us", p99_us(spent["store"]), p99_us(base))
    yield Figure("commit_mean", "… its mean", "us", mean_us(spent["store"]), mean_us(base))
    yield compare("unit_of_work", "one commit by UnitOfWork", spent["session"], base)
    yield compare("replay", "a commit found again", spent["replay"], spent["replay floor"])


def runtime_event_figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    """One commit whose event gives its stream an owner and feeds the read model."""
    with (
        measured(folder / "runtime.db", RUNTIME_EVENT) as store,
        raw(folder / "runtime-floor.db", RUNTIME_EVENT) as plain,
    ):
        spent = alternate(
            {
                "store": lambda: store.commits(scale.block),
                "floor": lambda: plain.commits(scale.block),
            },
            scale.rounds // 2,
            rng,
        )
    yield compare(
        "runtime_event_commit", "one commit of a runtime event", spent["store"], spent["floor"]
    )


def bulk_figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    """Many events in one commit; the floor inserts them by `executemany`."""
    events = scale.bulk_events
    with measured(folder / "bulk.db") as store, raw(folder / "bulk-floor.db") as plain:
        spent = alternate(
            {
                "store": lambda: store.commits(1, events),
                "floor": lambda: plain.commits(1, events),
            },
            scale.bulk_rounds,
            rng,
        )
    rates = {name: events / median_us(rounds) * 1e6 for name, rounds in spent.items()}
    yield Figure(
        "bulk_commit",
        f"events of a commit of {events:,}",
        "per_s",
        rates["store"],
        rates["floor"],
        BULK_BOUND,
        {"commit_ms": median_us(spent["store"]) / 1_000},
    )


# --------------------------------------------------------------------------- in the caller's session


@dataclass(slots=True)
class _Application:
    """A service with an engine and sessions of its own."""

    engine: Engine
    requests: Requests
    options: Options
    clock: LogicalClock

    def commits(self, count: int) -> list[int]:
        """The nanoseconds from a request dict to the end of the session that committed it."""
        return timed(self._commit, [self.requests.next() for _ in range(count)])

    def _commit(self, request: Request) -> None:
        with Session(self.engine) as session, session.begin():
            UnitOfWork(session, self.options, clock=self.clock).commit(request)


@contextmanager
def _own_session(path: Path) -> Iterator[_Application]:
    with measured(path) as made:
        requests = made.requests
    options = ticking_options()
    engine = configure_engine(create_engine(f"sqlite:///{path}"))
    immediate = engine.execution_options(**IMMEDIATE)
    yield _Application(immediate, requests, options, options.make_clock())
    engine.dispose()


# ------------------------------------------------------------------------------------ found again


def _replays(store: Measured, count: int) -> list[int]:
    request = store.requests.next()
    store.broker.commit(request)
    return timed(store.broker.commit, [request] * count)


def _raw_replays(plain: Raw, count: int) -> list[int]:
    """The look by itself, and its result read as JSON."""
    parameters = plain.next()
    floor.commit(plain.cursor, parameters)
    return timed(lambda each: floor.replay(plain.cursor, each), [parameters] * count)
