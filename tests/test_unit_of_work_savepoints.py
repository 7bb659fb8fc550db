"""The unit of work under savepoints: whose they are, what falls with them, what is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.orm import Session

from broker import configure_engine
from broker.errors import ConfigurationError, DatabaseError, IdempotencyConflict, RevisionConflict
from broker.models import ActorLease, Event, Stream
from tests import support
from tests.places import Place, contents, rows, url_of
from tests.support import (
    ENGINES,
    NESTING,
    ManualClock,
    Order,
    UnitOn,
    acquire,
    commit_request,
    floor,
    is_write_locked,
    messages,
    orders,
    used_ids,
)


def test_what_happened_in_a_savepoint_goes_with_it(
    nesting: Engine, database: Place, unit_on: UnitOn
) -> None:
    with Session(nesting) as session:
        unit = unit_on(session)
        lease = acquire(unit)
        with session.begin_nested():
            session.add(Order(name="kept"))
            unit.commit(commit_request(lease, "kept"))
        nested = session.begin_nested()
        session.add(Order(name="lost"))
        unit.commit(commit_request(lease, "lost", expectedRevision=1))
        nested.rollback()
        assert unit.get_stream_revision({"streamId": "stream"}) == 1
        unit.commit(commit_request(lease, "after", expectedRevision=1))
        session.commit()
    assert orders(database) == ["kept"]
    assert messages(database) == ["after", "kept"]


def test_a_released_savepoint_falls_with_the_transaction(
    nesting: Engine, database: Place, unit_on: UnitOn
) -> None:
    with Session(nesting) as session:
        with session.begin_nested():
            session.add(Order(name="released"))
            acquire(unit_on(session))
        session.rollback()
    assert orders(database) == []
    assert rows(database, "SELECT * FROM actor_leases") == []


def test_the_clock_is_persisted_again_after_its_savepoint_was_rolled_back(
    nesting: Engine, database: Place, unit_on: UnitOn, clock: ManualClock
) -> None:
    clock.advance(250)
    with Session(nesting) as session:
        unit = unit_on(session)
        nested = session.begin_nested()
        acquire(unit)
        nested.rollback()
        acquire(unit)
        session.commit()
    assert floor(database) == "1250"


def test_a_refused_commit_leaves_the_callers_savepoint_as_it_is(
    nesting: Engine, database: Place, unit_on: UnitOn
) -> None:
    with Session(nesting) as session:
        lease = used_ids(session, unit_on)
        unit = unit_on(session)
        session.add(Order(name="outer"))
        with session.begin_nested() as nested:
            session.add(Order(name="inner"))
            session.flush()
            with pytest.raises(IdempotencyConflict):
                unit.commit(
                    commit_request(
                        lease, "bad", expectedRevision=1, events=[support.event("message-event")]
                    )
                )
            assert nested.is_active
            assert session.in_nested_transaction()
        nested = session.begin_nested()
        unit.commit(commit_request(lease, "lost", expectedRevision=1))
        with pytest.raises(RevisionConflict):
            unit.commit(commit_request(lease, "bad", expectedRevision=1))
        nested.rollback()
        session.commit()
    assert orders(database) == ["inner", "outer"]
    assert messages(database) == ["message"]


@pytest.mark.parametrize("name", sorted(ENGINES["sqlite"].keys() - NESTING["sqlite"].keys()))
def test_a_savepoint_that_would_commit_by_itself_is_refused(
    database: Place, path: Path, unit_on: UnitOn, name: str
) -> None:
    with Session(ENGINES["sqlite"][name](url_of(path))) as session:
        nested = session.begin_nested()
        session.connection()
        with pytest.raises(ConfigurationError, match=r"savepoint.*configure_engine"):
            acquire(unit_on(session))
        nested.rollback()
        lease = acquire(unit_on(session))  # now the driver has begun, and savepoints nest
        with session.begin_nested():
            unit_on(session).commit(commit_request(lease))
        session.rollback()
    assert rows(path, "SELECT * FROM actor_leases") == []
    assert messages(path) == []


def begins_nothing(url: str) -> Engine:
    """The first half of SQLAlchemy's recipe for savepoints, without the BEGIN of the second."""
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def _begin_nothing(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    return engine


Work = Callable[[Session], object]


def in_a_session_joined_by_a_savepoint(engine: Engine, work: Work, ending: str) -> None:
    with engine.connect() as connection:
        transaction = connection.begin()
        try:
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                work(session)
                session.commit()
        finally:
            getattr(transaction, ending)()


def in_a_savepoint_of_the_connection(engine: Engine, work: Work, ending: str) -> None:
    with Session(engine) as session:
        try:
            with session.connection().begin_nested():
                work(session)
        finally:
            getattr(session, ending)()


def in_a_savepoint_of_the_session(engine: Engine, work: Work, ending: str) -> None:
    with Session(engine) as session:
        try:
            with session.begin_nested():
                work(session)
        finally:
            getattr(session, ending)()


def commits_by_itself(url: str) -> Engine:
    return create_engine(url, isolation_level="AUTOCOMMIT")


RECIPES: dict[str, tuple[Callable[[str], Engine], Callable[[Engine, Work, str], None]]] = {
    "joined by a savepoint": (create_engine, in_a_session_joined_by_a_savepoint),
    "savepoint of the connection": (create_engine, in_a_savepoint_of_the_connection),
    "AUTOCOMMIT": (commits_by_itself, in_a_savepoint_of_the_session),
    "no BEGIN": (begins_nothing, in_a_savepoint_of_the_session),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_transaction_that_begins_with_a_savepoint_is_refused_and_leaves_no_row(
    database: Place, path: Path, unit_on: UnitOn, name: str
) -> None:
    make, run = RECIPES[name]
    engine = make(url_of(path))
    with pytest.raises(ConfigurationError):
        run(engine, lambda session: acquire(unit_on(session)), "rollback")
    assert rows(path, "SELECT * FROM actor_leases") == []
    assert not is_write_locked(path)
    engine.dispose()


@pytest.mark.parametrize("name", RECIPES)
def test_on_a_configured_engine_such_a_savepoint_falls_and_stands_with_its_transaction(
    database: Place, path: Path, unit_on: UnitOn, name: str
) -> None:
    make, run = RECIPES[name]
    engine = configure_engine(make(url_of(database)))
    run(engine, lambda session: acquire(unit_on(session)), "rollback")
    assert rows(database, "SELECT * FROM actor_leases") == []
    run(engine, lambda session: acquire(unit_on(session)), "commit")
    assert rows(database, "SELECT actor_id FROM actor_leases") == [("actor",)]
    assert not is_write_locked(database)
    engine.dispose()


def refuse_rollback_to(action: int, operation: str | None, *_: str | None) -> int:
    """An authorizer under which ROLLBACK TO fails, as it may for reasons of its own."""
    is_refused = action == SQLITE_SAVEPOINT and operation == "ROLLBACK"
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK


SQLITE_SAVEPOINT = 32  # which the standard library gives no name


def test_half_a_refused_commit_is_never_committed_even_where_it_cannot_be_undone(
    engine: Engine, path: Path, unit_on: UnitOn
) -> None:
    with Session(engine) as session:
        lease = used_ids(session, unit_on)
        before = contents(path)
        unit = unit_on(session)
        session.add(Order(name="mine"))
        session.flush()
        driver: Any = session.connection().connection.dbapi_connection
        driver.set_authorizer(refuse_rollback_to)
        bad = commit_request(
            lease,
            "bad",
            expectedRevision=1,
            events=[support.event("new"), support.event("message-event")],
        )
        with pytest.raises((IdempotencyConflict, DatabaseError)):
            unit.commit(bad)
        session.add(Order(name="after"))
        with pytest.raises(Exception, match="roll"):
            session.commit()
        session.rollback()
        assert contents(path) == before
        assert not is_write_locked(path)

        assert unit.commit(commit_request(lease, "good", expectedRevision=1)).revision == 2
        session.commit()
    assert orders(path) == []
    assert messages(path) == ["good", "message"]


def test_entities_are_right_again_after_a_write_was_rolled_back_with_its_savepoint(
    nesting: Engine, unit_on: UnitOn
) -> None:
    with Session(nesting) as session:
        unit = unit_on(session)
        lease = acquire(unit)
        unit.commit(commit_request(lease))
        stream, row = session.get_one(Stream, "stream"), session.get_one(ActorLease, "actor")
        nested = session.begin_nested()
        unit.commit(commit_request(lease, "ghost", expectedRevision=1))
        unit.release_lease({"actorId": "actor", "lease": support.credential(lease)})
        assert (stream.revision, row.expires_at) == (2, 1_000)
        ghost = session.get(Event, "ghost-event")
        assert ghost in stream.events

        nested.rollback()

        assert (stream.revision, row.expires_at) == (1, lease.expires_at)
        assert [each.event_id for each in stream.events] == ["message-event"]
        assert session.get(Event, "ghost-event") is None
        session.commit()
        assert stream.revision == 1
