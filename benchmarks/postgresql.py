"""A store on PostgreSQL: many processes at once, growth, one caller, large commits, pages.

Everything is on one machine. What each figure is compared with says `benchmarks.postgresql_floor`,
and for growth the store itself. Databases are made by the store, and both sides of a figure use the
same one, or two of the same making.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from sqlalchemy import Connection, NullPool, create_engine, make_url

from benchmarks.measure import (
    Burst,
    Figure,
    Rounds,
    alternate,
    compare,
    mean_us,
    median_rate,
    median_us,
    p99_us,
    percentile_us,
    timed,
)
from benchmarks.postgresql_filling import fill
from benchmarks.postgresql_floor import Floor, ReadyPage, core_commit, page, rows
from benchmarks.postgresql_processes import Contestant, Contestants, crowd, lean, now_ms
from benchmarks.postgresql_server import checkpoint, database
from benchmarks.reads import page_request
from benchmarks.scale import Scale
from benchmarks.workload import ACTOR, FOREVER_MS, STREAM, Request, Requests
from broker import Broker

CROWD_BOUND = 2.5
GROWTH_BOUND = 1.2

#: Takes the URL of a server.
Scenario: TypeAlias = Callable[[Scale, str, random.Random], Iterator[Figure]]

CROWD: Contestants = {
    "store": Contestant("store"),
    "core": Contestant("core"),
    "store-many": Contestant("store", "many"),
    "store-one": Contestant("store", "one"),
    "core-one": Contestant("core", "one"),
    "lock-many": Contestant("core", "many", locks_workspace=True),
    "lock-one": Contestant("core", "one", locks_workspace=True),
}


def crowd_figures(scale: Scale, server: str, rng: random.Random) -> Iterator[Figure]:
    """Many processes, each with a stream of its own, at once.

    By the store and by Core; in as many workspaces and in one; and what it would cost to lock the
    workspace in each commit, which the store does not.
    """
    bursts = _bursts(scale, server, rng)
    rates = {name: median_rate(each) for name, each in bursts.items()}
    who = f"{scale.processes} processes"

    def rate(name: str, title: str, one: str, other: str, bound: float | None = None) -> Figure:
        return Figure(name, title, "per_s", rates[one], rates[other], bound)

    yield rate("pg_crowd", f"{who}, against Core", "store", "core", CROWD_BOUND)
    median, p99 = (percentile_us(bursts["store"], part) for part in (0.5, 0.99))
    yield Figure("pg_crowd_p99", "… p99 against the median", "us", p99, median)
    in_many = f"{who} in {scale.processes} workspaces against one"
    yield rate("pg_workspaces", in_many, "store-many", "store-one")
    yield rate("pg_workspace_locks", "… by Core with a lock on each", "lock-many", "lock-one")
    cost = "in one workspace, by Core with its lock against without"
    yield rate("pg_workspace_lock_cost", cost, "lock-one", "core-one")


def _bursts(scale: Scale, server: str, rng: random.Random) -> dict[str, list[Burst]]:
    def burst(name: str) -> Callable[[], Burst]:
        return lambda: together.burst(name, scale.process_burst)

    with database(server) as url, crowd(url, CROWD, scale.processes) as together:
        return alternate({name: burst(name) for name in CROWD}, scale.process_rounds, rng)


# ---------------------------------------------------------------------------------------- one caller


@dataclass(slots=True)
class Pair:
    """A database in the hands of the store and of others, with a stream for each."""

    url: str
    broker: Broker
    stack: ExitStack

    def requests(self, name: str) -> Requests:
        """Those of a stream of this name, with a lease that does not end."""
        wanted = {"actorId": f"{ACTOR}-{name}", "streamId": f"{STREAM}-{name}"}
        lease = self.broker.acquire_lease(wanted | {"holderId": "bench", "ttlMs": FOREVER_MS})
        return Requests(lease, numbers=_NUMBERS)

    def core(self) -> Connection:
        engine = create_engine(self.url, poolclass=NullPool, isolation_level="READ COMMITTED")
        return self.stack.enter_context(engine.connect())

    def driver(self, *, autocommit: bool) -> psycopg.Connection[tuple[object, ...]]:
        target = make_url(self.url).set(drivername="postgresql")
        text = target.render_as_string(hide_password=False)
        return self.stack.enter_context(psycopg.connect(text, autocommit=autocommit))

    def commits(self, requests: Requests, count: int, events: int = 1) -> list[int]:
        """The nanoseconds of some commits by the store, from request dict to result."""
        return timed(self.broker.commit, [lean(requests.next(events)) for _ in range(count)])


_NUMBERS = iter(range(1, 2**53))


@contextmanager
def pair(server: str) -> Iterator[Pair]:
    """A fresh database, made by the store."""
    with database(server) as url, Broker.open(url) as broker, ExitStack() as stack:
        yield Pair(url, broker, stack)


def commit_figures(scale: Scale, server: str, rng: random.Random) -> Iterator[Figure]:
    """One caller: a commit against the driver with as many round trips, and against Core."""
    with pair(server) as made:
        floor, connection = Floor(made.driver(autocommit=True)), made.core()
        streams = {name: made.requests(name) for name in ("store", "floor", "core")}

        def others(name: str, commit: Callable[[object], object]) -> list[int]:
            given = [rows(lean(streams[name].next()), now_ms()) for _ in range(scale.block)]
            return timed(commit, given)

        spent = alternate(
            {
                "store": lambda: made.commits(streams["store"], scale.block),
                "floor": lambda: others("floor", floor.commit),  # type: ignore[arg-type]  # it is Rows
                "core": lambda: others("core", lambda each: core_commit(connection, each)),  # type: ignore[arg-type]  # the same
            },
            scale.rounds // 2,
            rng,
        )
    title = "one commit, against the driver in two round trips"
    yield compare("pg_commit", title, spent["store"], spent["floor"])
    yield compare("pg_commit_core", "… against Core", spent["store"], spent["core"])


def bulk_figures(scale: Scale, server: str, rng: random.Random) -> Iterator[Figure]:
    """Many events in one commit; Core inserts them by `executemany`."""
    events = scale.bulk_events
    with pair(server) as made:
        connection = made.core()
        store, core = made.requests("store"), made.requests("core")
        spent = alternate(
            {
                "store": lambda: made.commits(store, 1, events),
                "core": lambda: timed(
                    lambda each: core_commit(connection, each),
                    [rows(lean(core.next(events)), now_ms())],
                ),
            },
            scale.bulk_rounds,
            rng,
        )
    more = {"commit_ms": median_us(spent["store"]) / 1_000}
    title = f"events of a commit of {events:,}, against Core"
    yield _events_a_second("pg_bulk", title, events, spent["store"], spent["core"], more)


def page_figures(scale: Scale, server: str, rng: random.Random) -> Iterator[Figure]:
    """Events of 1 KiB by the page, against psycopg's rows and parsed payloads."""
    size = scale.page_events
    with pair(server) as made:
        requests = made.requests("store")
        made.commits(requests, 2, size)
        lease = requests.lease
        asked: Request = page_request(requests, size) | {
            "streamId": lease.stream_id,
            "actorId": lease.actor_id,
        }
        ready = ReadyPage(
            (lease.actor_id, lease.stream_id), (lease.stream_id, 1, requests.revision, size)
        )
        connection = made.driver(autocommit=False)
        read = made.broker.read_authorized_events_page
        spent = alternate(
            {
                "store": lambda: timed(read, [asked] * scale.block),
                "driver": lambda: timed(lambda each: page(connection, each), [ready] * scale.block),
            },
            scale.rounds,
            rng,
        )
    more = {"measured_p99_us": p99_us(spent["store"]), "base_p99_us": p99_us(spent["driver"])}
    title = f"events by the page of {size}, against psycopg"
    yield _events_a_second("pg_page", title, size, spent["store"], spent["driver"], more)


def _events_a_second(
    name: str, title: str, events: int, measured: Rounds, base: Rounds, more: dict[str, float]
) -> Figure:
    rate, base_rate = (events / median_us(rounds) * 1e6 for rounds in (measured, base))
    return Figure(name, title, "per_s", rate, base_rate, more=more)


# -------------------------------------------------------------------------------------------- growth


def growth_figures(scale: Scale, server: str, rng: random.Random) -> Iterator[Figure]:
    """A commit in a large database against a small one, ids in the order of time."""
    before = (scale.growth_rounds + 1) * scale.growth_block // 2
    with ExitStack() as stack:

        def commits(number: int) -> Callable[[], list[int]]:
            made = stack.enter_context(pair(server))
            requests = made.requests("growth")
            fill(made.url, requests, max(number - before, 1))
            return lambda: made.commits(requests, scale.growth_block)

        small, large = scale.stored
        contestants = {"small": commits(small), "large": commits(large)}
        checkpoint(server)
        spent = alternate(contestants, scale.growth_rounds, rng)
    title = f"commit {large:,} against {small:,}"
    yield compare("pg_growth_median", title, spent["large"], spent["small"], GROWTH_BOUND)
    means = mean_us(spent["large"]), mean_us(spent["small"])
    yield Figure("pg_growth_mean", "… its mean", "us", *means, GROWTH_BOUND)


SCENARIOS: dict[str, Scenario] = {
    "PostgreSQL: many processes": crowd_figures,
    "PostgreSQL: commits": commit_figures,
    "PostgreSQL: commits of many events": bulk_figures,
    "PostgreSQL: pages": page_figures,
    "PostgreSQL: growth": growth_figures,
}
