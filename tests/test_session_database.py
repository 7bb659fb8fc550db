"""Whether an application's engine is fit for the store, checked once, and which clock goes with it."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, NullPool, StaticPool, create_engine, event
from sqlalchemy.orm import Session

from broker import Broker, Options, UnitOfWork, schema
from broker.clock import LogicalClock
from broker.errors import ConfigurationError, DatabaseUnavailable, SchemaError
from tests.places import Place, contents, rows, url_of
from tests.support import (
    Application,
    ManualClock,
    Order,
    UnitOn,
    acquire,
    alive,
    commit_request,
    messages,
    orders,
)

# ---------------------------------------------------------------------------------------- engines


def test_an_engine_that_commits_every_statement_is_refused(
    database: Place, unit_on: UnitOn
) -> None:
    engine = create_engine(url_of(database), isolation_level="AUTOCOMMIT")
    with Session(engine) as session, pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
        acquire(unit_on(session))
    assert rows(database, "SELECT * FROM actor_leases") == []


def with_pragma(path: Path, pragma: str) -> Engine:
    engine = create_engine(url_of(path))
    event.listen(engine, "connect", lambda connection, _: connection.execute(f"PRAGMA {pragma}"))
    return engine


@pytest.mark.parametrize(
    ("pragma", "wrong"),
    [
        ("synchronous=NORMAL", "synchronous=1"),
        ("synchronous=OFF", "synchronous=0"),
        ("journal_mode=MEMORY", "journal_mode=memory"),
        ("journal_mode=OFF", "journal_mode=off"),
    ],
)
def test_an_engine_that_may_lose_commits_is_refused_with_what_is_wrong(
    path: Path, unit_on: UnitOn, pragma: str, wrong: str
) -> None:
    schema.upgrade(url_of(path))
    with Session(with_pragma(path, pragma)) as session:
        with pytest.raises(ConfigurationError, match=wrong) as caught:
            acquire(unit_on(session))
        with pytest.raises(ConfigurationError):
            unit_on(session).table_names()
    assert "configure_engine" in str(caught.value)
    assert rows(path, "SELECT * FROM actor_leases") == []


def test_a_database_in_rollback_journal_mode_will_do(path: Path, unit_on: UnitOn) -> None:
    schema.upgrade(url_of(path))
    with Session(create_engine(url_of(path))) as session:
        unit = unit_on(session)
        unit.commit(commit_request(acquire(unit)))
        session.commit()
    assert messages(path) == ["message"]
    assert rows(path, "PRAGMA journal_mode") == [("delete",)]


def test_an_engine_in_memory_is_refused(unit_on: UnitOn) -> None:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with Session(engine) as session, pytest.raises(ConfigurationError, match="in-memory"):
        unit_on(session).table_names()
    engine.dispose()


def test_an_engine_that_makes_its_own_connections_to_a_file_will_do(
    database: Place, path: Path, unit_on: UnitOn
) -> None:
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(path), poolclass=NullPool)
    with Session(engine) as session:
        acquire(unit_on(session))
        session.commit()
    assert rows(database, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_a_database_without_the_stores_tables_is_a_schema_error(
    empty_place: Place, unit_on: UnitOn
) -> None:
    engine = create_engine(url_of(empty_place))
    Application.metadata.create_all(engine)
    with Session(engine) as session:
        with pytest.raises(SchemaError):
            acquire(unit_on(session))
        session.add(Order(name="mine"))
        session.commit()
    assert orders(empty_place) == ["mine"]
    assert contents(empty_place).keys() == {"lines", "orders"}


@pytest.mark.parametrize("revision", ["0001", "0003"])
def test_a_database_at_an_old_revision_is_a_schema_error_until_it_is_upgraded(
    empty_place: Place, unit_on: UnitOn, revision: str
) -> None:
    url = url_of(empty_place)
    schema.upgrade(url, revision)
    engine = create_engine(url)
    with Session(engine) as session:
        with pytest.raises(SchemaError, match=f"revision {revision}"):
            acquire(unit_on(session))
        session.rollback()
        schema.upgrade(url)
        assert acquire(unit_on(session)).epoch == 1


def test_a_folder_that_is_gone_is_said(database: Place, path: Path, unit_on: UnitOn) -> None:
    engine = create_engine(url_of(path))
    shutil.rmtree(path.parent)
    with Session(engine) as session, pytest.raises(DatabaseUnavailable, match="cannot be opened"):
        acquire(unit_on(session))
    path.parent.mkdir()


def test_checks_are_made_once_a_connection(configured: Engine, path: Path, unit_on: UnitOn) -> None:
    seen: list[str] = []

    @event.listens_for(configured, "before_cursor_execute")
    def _note(_c: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    for _ in range(3):
        with Session(configured) as session:
            acquire(unit_on(session), "actor", "stream")
    assert seen.count("PRAGMA synchronous") == 1
    assert len([one for one in seen if "pragma_table_list" in one.lower()]) > 0
    seen.clear()
    with Session(configured) as session:
        unit_on(session).get_lease({"actorId": "actor"})
    assert [one for one in seen if not one.startswith("BEGIN")] == []


# ----------------------------------------------------------------------------------------- clocks


def test_units_without_a_clock_of_their_own_share_one_for_the_engine(
    path: Path, engine: Engine
) -> None:
    with Session(engine) as session:
        first = acquire(UnitOfWork(session))
        second = acquire(UnitOfWork(session), "second", "second")
    assert first.acquired_at == second.acquired_at
    assert first.acquired_at > 1_600_000_000_000


@pytest.mark.parametrize("clocks", [["wall_clock", "monotonic_clock"], ["wall_clock"], []])
def test_units_whose_options_differ_in_something_else_than_clocks_share_one_time(
    path: Path, configured: Engine, clock: ManualClock, clocks: list[str]
) -> None:
    every = clock.options()
    one = Options(**{name: getattr(every, name) for name in clocks})
    other = dataclasses.replace(one, receipt_capacity=5)
    with Session(configured) as session:
        first = acquire(UnitOfWork(session, one))
        clock.advance(500)
        second = acquire(UnitOfWork(session, other), "second", "second")
        third = acquire(UnitOfWork(session, one), "third", "third")
    assert first.acquired_at == second.acquired_at == third.acquired_at


def test_a_unit_of_the_store_and_one_with_its_options_share_one_time(
    path: Path, store: Broker, clock: ManualClock
) -> None:
    with Session(store.engine) as session:
        first = acquire(store.unit_of_work(session))
        clock.advance(500)
        second = acquire(UnitOfWork(session, store.options), "second", "second")
    assert first.acquired_at == second.acquired_at == 1_000


def clocks_alive() -> int:
    return len(alive(LogicalClock))


def test_options_that_are_made_for_each_session_leave_no_clocks_behind(
    configured: Engine, database: Place
) -> None:
    before = clocks_alive()
    for _ in range(300):
        with Session(configured) as session:
            unit = UnitOfWork(session, Options(wall_clock=lambda: 5))
            assert acquire(unit).epoch == 1
    assert clocks_alive() - before < 5
    assert rows(database, "SELECT * FROM actor_leases") == []
