"""The benchmarks of PostgreSQL run, and compare like with like; how fast anything is, is not asked."""

from __future__ import annotations

import random

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from benchmarks import postgresql, postgresql_processes, postgresql_server
from benchmarks.postgresql_filling import fill
from benchmarks.postgresql_floor import Floor, core_commit, rows
from benchmarks.scale import TINY
from benchmarks.workload import FIRST_MS, FOREVER_MS, NONCE, Requests
from broker import Broker, Options
from tests.places import Databases, PostgresPlace, contents

FIGURES = {
    "pg_crowd",
    "pg_crowd_p99",
    "pg_workspaces",
    "pg_workspace_locks",
    "pg_workspace_lock_cost",
    "pg_commit",
    "pg_commit_core",
    "pg_bulk",
    "pg_page",
    "pg_growth_median",
    "pg_growth_mean",
}
TARGETS = {"pg_crowd": 2.5, "pg_growth_median": 1.2, "pg_growth_mean": 1.2}


def opened(place: PostgresPlace) -> Broker:
    """A store whose clock stands still, so that two of them write the same."""
    return Broker.open(place.url, options=Options(wall_clock=lambda: FIRST_MS, nonce=lambda: NONCE))


def requests_of(broker: Broker) -> Requests:
    lease = broker.acquire_lease({"actorId": "a", "holderId": "bench", "ttlMs": FOREVER_MS})
    return Requests(lease)


def test_every_figure_is_there_and_positive(postgres_url: str) -> None:
    rng = random.Random(1)
    figures = [
        figure
        for scenario in postgresql.SCENARIOS.values()
        for figure in scenario(TINY, postgres_url, rng)
    ]
    assert {figure.name for figure in figures} == FIGURES
    for figure in figures:
        assert figure.measured > 0, figure
        assert figure.ratio is not None, figure
        assert figure.ratio > 0, figure
    bounds = {figure.name: figure.bound for figure in figures if figure.bound is not None}
    assert bounds == TARGETS


@pytest.mark.parametrize("way", ["core", "floor"])
def test_what_the_store_is_compared_with_leaves_the_same_rows(
    postgres_databases: Databases, way: str
) -> None:
    with postgres_databases.one() as place, postgres_databases.one() as other:
        with opened(place) as broker:
            requests = requests_of(broker)
            for events in (1, 2):
                broker.commit(postgresql_processes.lean(requests.next(events)))
        with opened(other) as broker:
            requests = requests_of(broker)
        made = [rows(postgresql_processes.lean(requests.next(n)), FIRST_MS) for n in (1, 2)]
        engine = create_engine(other.url, poolclass=NullPool)
        if way == "core":
            with engine.connect() as connection:
                for each in made:
                    core_commit(connection, each)
        else:
            conninfo = make_url(other.url).set(drivername="postgresql")
            with psycopg.connect(conninfo.render_as_string(False), autocommit=True) as driver:
                floor = Floor(driver)
                for each in made:
                    floor.commit(each)
        assert contents(other) == contents(place)


def test_a_filled_database_is_one_that_the_store_goes_on_with(
    postgres_databases: Databases,
) -> None:
    with postgres_databases.one() as place, opened(place) as broker:
        requests = requests_of(broker)
        fill(place.url, requests, 5)
        done = broker.commit(postgresql_processes.lean(requests.next()))
        assert (done.previous_revision, done.revision) == (5, 6)
        events = broker.read_events({"streamId": "a", "afterRevision": 0})
        assert [event.revision for event in events] == [1, 2, 3, 4, 5, 6]
        ids = [event.event_id for event in events]
        assert ids == sorted(ids)
        assert len({len(each) for each in ids}) == 1
        assert [message.message_id for message in broker.list_pending_outbox()] == [done.message_id]


def test_a_process_that_fails_ends_the_burst(postgres_url: str) -> None:
    contestants = {"store": postgresql_processes.Contestant("store")}
    with (
        postgresql_server.database(postgres_url) as url,
        postgresql_processes.crowd(url, contestants, 2) as together,
    ):
        assert len(together.burst("store", 1).spent) == 2
        with pytest.raises(RuntimeError, match="KeyError: 'nobody'"):
            together.burst("nobody", 1)


def test_a_database_is_dropped_with_whoever_is_connected(postgres_url: str) -> None:
    with postgresql_server.database(postgres_url) as url:
        engine = create_engine(url, poolclass=NullPool)
        connection = engine.connect()
        assert connection.scalar(text("SELECT count(*) FROM pg_class")) != 0
    connection.invalidate()
    connection.close()
    administration = create_engine(postgres_url, poolclass=NullPool)
    with administration.connect() as connection:
        named = text("SELECT count(*) FROM pg_database WHERE datname = :name")
        assert connection.scalar(named, {"name": make_url(url).database}) == 0
