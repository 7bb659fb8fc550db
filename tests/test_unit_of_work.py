"""The unit of work in the application's own session, on engines of every kind."""

from __future__ import annotations

import dataclasses
import gc
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Connection,
    Engine,
    ForeignKey,
    NullPool,
    StaticPool,
    create_engine,
    event,
    select,
    text,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    scoped_session,
    sessionmaker,
)

from broker import IMMEDIATE, Broker, Options, UnitOfWork, configure_engine, schema
from broker.clock import LogicalClock
from broker.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    IdempotencyConflict,
    RevisionConflict,
    SchemaError,
    StaleLease,
)
from broker.messages import Lease
from broker.models import ActorLease, Base, Event, MetadataEntry, Projection, Stream
from tests import support
from tests.support import (
    MUTATIONS,
    ManualClock,
    acquire,
    commit_request,
    floor,
    is_write_locked,
    operate,
    operation_names,
    operation_requests,
    outbox_message,
    raw,
    rows,
    url_of,
    write_locked,
)


class Application(DeclarativeBase):
    """An application's own tables, in the same database."""


class Order(Application):
    __tablename__ = "orders"

    name: Mapped[str] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(default="")


class Line(Application):
    __tablename__ = "lines"

    name: Mapped[str] = mapped_column(primary_key=True)
    order_name: Mapped[str] = mapped_column(
        ForeignKey("orders.name", deferrable=True, initially="DEFERRED")
    )


ENGINES: dict[str, Callable[[str], Engine]] = {
    "default": create_engine,
    "driver immediate": lambda url: create_engine(
        url, connect_args={"isolation_level": "IMMEDIATE"}
    ),
    "no pool": lambda url: create_engine(url, poolclass=NullPool),
    "configured": lambda url: configure_engine(create_engine(url)),
    "configured, immediate": lambda url: configure_engine(create_engine(url)).execution_options(
        **IMMEDIATE
    ),
}
CONFIGURED = [name for name in ENGINES if name.startswith("configured")]


@pytest.fixture
def database(path: Path, clock: ManualClock) -> Path:
    """A database with the store's tables and the application's."""
    support.open_store(path, clock).close()
    engine = create_engine(url_of(path))
    Application.metadata.create_all(engine)
    engine.dispose()
    return path


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, database: Path) -> Iterator[Engine]:
    """The application's engine, of every kind."""
    made = ENGINES[request.param](url_of(database))
    yield made
    made.dispose()


@pytest.fixture
def configured(database: Path) -> Iterator[Engine]:
    """The application's engine, deferred."""
    made = ENGINES["configured"](url_of(database))
    yield made
    made.dispose()


@pytest.fixture(params=CONFIGURED)
def nesting(request: pytest.FixtureRequest, database: Path) -> Iterator[Engine]:
    """Engines on which savepoints nest."""
    made = ENGINES[request.param](url_of(database))
    yield made
    made.dispose()


@pytest.fixture
def unit_on(clock: ManualClock) -> Callable[[Session], UnitOfWork]:
    """Makes units of work; all of them share the test's clock and options."""
    options = clock.options()
    logical = options.make_clock()
    return lambda session: UnitOfWork(session, options, clock=logical)


UnitOn = Callable[[Session], UnitOfWork]


def orders(path: Path) -> list[str]:
    return [name for (name,) in rows(path, "SELECT name FROM orders ORDER BY name")]


def messages(path: Path) -> list[str]:
    return [name for (name,) in rows(path, "SELECT message_id FROM inbox ORDER BY applied_at, 1")]


# ------------------------------------------------------------------------------- stand and fall


def test_the_callers_rows_and_the_stores_are_committed_together(
    engine: Engine, database: Path, unit_on: UnitOn
) -> None:
    with Session(engine) as session:
        session.add(Order(name="pending"))
        unit = unit_on(session)
        unit.commit(commit_request(acquire(unit)))
        session.add(Order(name="later"))
        assert (orders(database), messages(database)) == ([], [])
        session.commit()
    assert (orders(database), messages(database)) == (["later", "pending"], ["message"])


def test_they_are_rolled_back_together(engine: Engine, database: Path, unit_on: UnitOn) -> None:
    before = floor(database)
    with Session(engine) as session:
        session.add(Order(name="pending"))
        session.flush()
        unit = unit_on(session)
        unit.commit(commit_request(acquire(unit)))
        session.rollback()
    assert (orders(database), messages(database), floor(database)) == ([], [], before)
    assert rows(database, "SELECT * FROM actor_leases") == []
    assert not is_write_locked(database)


def fail_in_the_middle(session: Session, unit: UnitOfWork) -> None:
    with session.begin():
        session.add(Order(name="pending"))
        unit.commit(commit_request(acquire(unit)))
        raise ZeroDivisionError


def test_an_exception_of_the_caller_undoes_both(
    engine: Engine, database: Path, unit_on: UnitOn
) -> None:
    with Session(engine) as session, pytest.raises(ZeroDivisionError):
        fail_in_the_middle(session, unit_on(session))
    assert (orders(database), messages(database)) == ([], [])
    assert not is_write_locked(database)


def test_every_operation_works_on_every_engine(
    engine: Engine, database: Path, unit_on: UnitOn, clock: ManualClock
) -> None:
    with support.open_store(database, clock) as store:
        requests = operation_requests(store, clock)
    with Session(engine) as session:
        unit = unit_on(session)
        for name, request in requests.items():
            operate(unit, name, request)
        session.commit()
    assert messages(database) == ["first", "second"]
    assert rows(database, "SELECT count(*) FROM actor_leases") == [(4,)]


def test_reads_take_no_lock_and_write_nothing(
    engine: Engine, database: Path, unit_on: UnitOn, clock: ManualClock
) -> None:
    with support.open_store(database, clock) as store:
        requests = operation_requests(store, clock)
    now = floor(database)
    with Session(engine) as session:
        unit = unit_on(session)
        for name in operation_names() - MUTATIONS:
            operate(unit, name, requests[name])
        is_immediate = engine.get_execution_options().get("broker_begin") == "IMMEDIATE"
        assert is_write_locked(database) == is_immediate
    assert floor(database) == now


# ---------------------------------------------------------------------------------- refused commits


def used_ids(session: Session, unit_on: UnitOn) -> Lease:
    unit = unit_on(session)
    lease = acquire(unit)
    unit.commit(commit_request(lease, outbox=[outbox_message("outgoing")]))
    session.commit()
    return lease


REFUSED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "revision": ({"expectedRevision": 7}, RevisionConflict),
    "event id": (
        {"events": [support.event("new"), support.event("message-event")]},
        IdempotencyConflict,
    ),
    "outbox id": (
        {"outbox": [outbox_message("new"), outbox_message("outgoing")]},
        IdempotencyConflict,
    ),
    "credential": ({"lease": {"epoch": 9, "nonce": "no"}}, StaleLease),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_commit_undoes_only_itself_and_the_transaction_goes_on(
    engine: Engine, database: Path, unit_on: UnitOn, clock: ManualClock, name: str
) -> None:
    changes, kind = REFUSED[name]
    with Session(engine) as session:
        lease = used_ids(session, unit_on)
        unit = unit_on(session)
        clock.advance(250)
        session.add(Order(name="flushed"))
        session.flush()
        unit.commit(commit_request(lease, "good", expectedRevision=1))
        pending = Order(name="pending")
        session.add(pending)

        with pytest.raises(kind):
            unit.commit({**commit_request(lease, "bad", expectedRevision=2), **changes})

        assert pending in session.new
        unit.commit(commit_request(lease, "after", expectedRevision=2))
        session.commit()

    assert orders(database) == ["flushed", "pending"]
    assert messages(database) == ["message", "after", "good"]
    assert rows(database, "SELECT outbox_id FROM outbox") == [("outgoing",)]
    assert floor(database) == "1250"


def test_a_transaction_in_which_everything_was_refused_keeps_the_clock(
    engine: Engine, database: Path, unit_on: UnitOn, clock: ManualClock
) -> None:
    with Session(engine) as session:
        lease = used_ids(session, unit_on)
        clock.advance(250)
        with pytest.raises(RevisionConflict):
            unit_on(session).commit(commit_request(lease, "bad", expectedRevision=7))
        session.commit()
    assert floor(database) == "1250"
    assert messages(database) == ["message"]


def test_an_error_in_the_middle_of_an_operation_undoes_only_its_effects(
    engine: Engine, database: Path, clock: ManualClock
) -> None:
    surprise = ZeroDivisionError("in the middle")

    def nonce() -> str:
        raise surprise

    with Session(engine) as session:
        session.add(Order(name="mine"))
        session.flush()
        with pytest.raises(ZeroDivisionError) as caught:
            acquire(UnitOfWork(session, clock.options(nonce=nonce)))
        session.commit()
    assert caught.value is surprise
    assert orders(database) == ["mine"]
    assert rows(database, "SELECT * FROM actor_leases") == []


def test_what_sqlite_rolls_back_by_itself_cannot_be_committed_by_halves(
    configured: Engine, database: Path, clock: ManualClock
) -> None:
    def interrupted() -> str:
        driver.set_progress_handler(lambda: 1, 1)  # the next statement fails with INTERRUPT
        return "nonce"

    with Session(configured) as session:
        session.add(Order(name="before"))
        session.flush()
        driver: Any = session.connection().connection.dbapi_connection
        with pytest.raises(DatabaseError, match="interrupted"):
            acquire(UnitOfWork(session, clock.options(nonce=interrupted)))

        session.add(Order(name="after"))
        with pytest.raises(Exception, match="roll"):
            session.commit()
        session.rollback()
        session.add(Order(name="anew"))
        session.commit()
    assert orders(database) == ["anew"]


# ---------------------------------------------------------------------------------------- savepoints


def test_what_happened_in_a_savepoint_goes_with_it(
    nesting: Engine, database: Path, unit_on: UnitOn
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
    nesting: Engine, database: Path, unit_on: UnitOn
) -> None:
    with Session(nesting) as session:
        with session.begin_nested():
            session.add(Order(name="released"))
            acquire(unit_on(session))
        session.rollback()
    assert orders(database) == []
    assert rows(database, "SELECT * FROM actor_leases") == []


def test_the_clock_is_persisted_again_after_its_savepoint_was_rolled_back(
    nesting: Engine, database: Path, unit_on: UnitOn, clock: ManualClock
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
    nesting: Engine, database: Path, unit_on: UnitOn
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


@pytest.mark.parametrize("name", [name for name in ENGINES if name not in CONFIGURED])
def test_a_savepoint_that_would_commit_by_itself_is_refused(
    database: Path, unit_on: UnitOn, name: str
) -> None:
    with Session(ENGINES[name](url_of(database))) as session:
        nested = session.begin_nested()
        session.connection()
        with pytest.raises(ConfigurationError, match=r"savepoint.*configure_engine"):
            acquire(unit_on(session))
        nested.rollback()
        lease = acquire(unit_on(session))  # now the driver has begun, and savepoints nest
        with session.begin_nested():
            unit_on(session).commit(commit_request(lease))
        session.rollback()
    assert rows(database, "SELECT * FROM actor_leases") == []
    assert messages(database) == []


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
    database: Path, unit_on: UnitOn, name: str
) -> None:
    make, run = RECIPES[name]
    engine = make(url_of(database))
    with pytest.raises(ConfigurationError):
        run(engine, lambda session: acquire(unit_on(session)), "rollback")
    assert rows(database, "SELECT * FROM actor_leases") == []
    assert not is_write_locked(database)
    engine.dispose()


@pytest.mark.parametrize("name", RECIPES)
def test_on_a_configured_engine_such_a_savepoint_falls_and_stands_with_its_transaction(
    database: Path, unit_on: UnitOn, name: str
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
    engine: Engine, database: Path, unit_on: UnitOn
) -> None:
    with Session(engine) as session:
        lease = used_ids(session, unit_on)
        before = support.contents(database)
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
        assert support.contents(database) == before
        assert not is_write_locked(database)

        assert unit.commit(commit_request(lease, "good", expectedRevision=1)).revision == 2
        session.commit()
    assert orders(database) == []
    assert messages(database) == ["good", "message"]


# ---------------------------------------------------------------------------------------------- time


def test_time_is_read_once_a_transaction_whoever_asks(
    engine: Engine, database: Path, unit_on: UnitOn, clock: ManualClock
) -> None:
    with Session(engine) as session:
        first = acquire(unit_on(session))
        clock.advance(500)
        second = acquire(unit_on(session), "second", "second")
        session.commit()
        third = acquire(unit_on(session), "third", "third")
        session.commit()
    assert [each.acquired_at for each in (first, second, third)] == [1_000, 1_000, 1_500]
    assert floor(database) == "1500"


def test_time_after_a_rollback_is_read_anew(
    engine: Engine, unit_on: UnitOn, clock: ManualClock
) -> None:
    with Session(engine) as session:
        acquire(unit_on(session))
        session.rollback()
        clock.advance(500)
        assert acquire(unit_on(session)).acquired_at == 1_500


def test_units_without_a_clock_of_their_own_share_one_for_the_engine(engine: Engine) -> None:
    with Session(engine) as session:
        first = acquire(UnitOfWork(session))
        second = acquire(UnitOfWork(session), "second", "second")
    assert first.acquired_at == second.acquired_at
    assert first.acquired_at > 1_600_000_000_000


@pytest.mark.parametrize("clocks", [["wall_clock", "monotonic_clock"], ["wall_clock"], []])
def test_units_whose_options_differ_in_something_else_than_clocks_share_one_time(
    configured: Engine, clock: ManualClock, clocks: list[str]
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
    store: Broker, clock: ManualClock
) -> None:
    with Session(store.engine) as session:
        first = acquire(store.unit_of_work(session))
        clock.advance(500)
        second = acquire(UnitOfWork(session, store.options), "second", "second")
    assert first.acquired_at == second.acquired_at == 1_000


def clocks_alive() -> int:
    gc.collect()
    return sum(type(each) is LogicalClock for each in gc.get_objects())


def test_options_that_are_made_for_each_session_leave_no_clocks_behind(
    configured: Engine, database: Path
) -> None:
    before = clocks_alive()
    for _ in range(300):
        with Session(configured) as session:
            unit = UnitOfWork(session, Options(wall_clock=lambda: 5))
            assert acquire(unit).epoch == 1
    assert clocks_alive() - before < 5
    assert rows(database, "SELECT * FROM actor_leases") == []


# ------------------------------------------------------------------------------------------ entities


def test_loaded_entities_of_the_store_are_read_again_after_a_write(
    engine: Engine, unit_on: UnitOn
) -> None:
    with Session(engine) as session:
        unit = unit_on(session)
        lease = acquire(unit)
        unit.commit(commit_request(lease))
        stream, row = session.get_one(Stream, "stream"), session.get_one(ActorLease, "actor")
        assert (stream.revision, row.epoch) == (1, 1)
        assert [each.event_id for each in stream.events] == ["message-event"]
        unit.commit(commit_request(lease, "two", expectedRevision=1))
        unit.release_lease({"actorId": "actor", "lease": support.credential(lease)})
        assert (stream.revision, row.expires_at) == (2, 1_000)
        assert [each.event_id for each in stream.events] == ["message-event", "two-event"]
        assert [each.cursor for each in session.scalars(select(Event))] == [1, 2]


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


def test_the_applications_own_entities_stay_loaded(engine: Engine, unit_on: UnitOn) -> None:
    with Session(engine) as session:
        order = Order(name="mine", note="loaded")
        session.add(order)
        session.flush()
        acquire(unit_on(session))
        assert order.__dict__["note"] == "loaded"


def test_a_change_of_an_entity_is_not_thrown_away(
    engine: Engine, database: Path, unit_on: UnitOn
) -> None:
    with Session(engine) as session:
        unit = unit_on(session)
        lease = acquire(unit)
        value = [{"projectionId": "p", "value": 1}]
        unit.commit(commit_request(lease, projections=value))
        projection = session.get_one(Projection, "p")
        projection.value_json = "2"
        unit.commit(commit_request(lease, "two", expectedRevision=1))
        assert projection.value_json == "2"
        session.commit()
    assert rows(database, "SELECT value_json FROM projections") == [("2",)]


# ------------------------------------------------------------------------------------------- engines


def test_a_session_of_several_engines_reaches_the_one_that_has_the_store(
    database: Path, tmp_path: Path, unit_on: UnitOn
) -> None:
    elsewhere = configure_engine(create_engine(url_of(tmp_path / "application.db")))
    Application.metadata.create_all(elsewhere)
    stores = ENGINES["configured"](url_of(database))
    with Session(binds={Application: elsewhere, Base: stores}) as session:
        session.add(Order(name="elsewhere"))
        unit = unit_on(session)
        unit.commit(commit_request(acquire(unit)))
        session.commit()
    assert (orders(database), messages(database)) == ([], ["message"])
    assert orders(tmp_path / "application.db") == ["elsewhere"]


def test_a_session_without_an_engine_is_told_so() -> None:
    with Session() as session, pytest.raises(ConfigurationError, match="binds="):
        acquire(UnitOfWork(session))


def test_a_session_whose_engines_are_for_other_tables_is_told_so(database: Path) -> None:
    elsewhere = create_engine(url_of(database))
    with (
        Session(binds={Application: elsewhere}) as session,
        pytest.raises(ConfigurationError, match="binds="),
    ):
        acquire(UnitOfWork(session))


def test_a_registry_of_sessions_is_refused_as_no_session(configured: Engine) -> None:
    registry = scoped_session(sessionmaker(configured))
    with pytest.raises(ConfigurationError, match="needs a Session, not scoped_session"):
        UnitOfWork(registry)  # type: ignore[arg-type]  # what is refused
    assert acquire(UnitOfWork(registry())).epoch == 1
    registry.remove()


def test_an_engine_that_commits_every_statement_is_refused(database: Path, unit_on: UnitOn) -> None:
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
    database: Path, unit_on: UnitOn
) -> None:
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(database), poolclass=NullPool
    )
    with Session(engine) as session:
        acquire(unit_on(session))
        session.commit()
    assert rows(database, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_a_database_without_the_stores_tables_is_a_schema_error(
    path: Path, unit_on: UnitOn
) -> None:
    engine = create_engine(url_of(path))
    Application.metadata.create_all(engine)
    with Session(engine) as session:
        with pytest.raises(SchemaError):
            acquire(unit_on(session))
        session.add(Order(name="mine"))
        session.commit()
    assert orders(path) == ["mine"]
    assert {
        name for (name,) in rows(path, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    } == {
        "lines",
        "orders",
    }


@pytest.mark.parametrize("revision", ["0001", "0003"])
def test_a_database_at_an_old_revision_is_a_schema_error_until_it_is_upgraded(
    path: Path, unit_on: UnitOn, revision: str
) -> None:
    schema.upgrade(url_of(path), revision)
    engine = create_engine(url_of(path))
    with Session(engine) as session:
        with pytest.raises(SchemaError, match=f"revision {revision}"):
            acquire(unit_on(session))
        session.rollback()
        schema.upgrade(url_of(path))
        assert acquire(unit_on(session)).epoch == 1


def test_a_folder_that_is_gone_is_said(database: Path, unit_on: UnitOn) -> None:
    engine = create_engine(url_of(database))
    shutil.rmtree(database.parent)
    with Session(engine) as session, pytest.raises(DatabaseUnavailable, match="cannot be opened"):
        acquire(unit_on(session))
    database.parent.mkdir()


# ----------------------------------------------------------------------------------------- busy


def test_while_another_writes_the_unit_is_busy_and_the_session_goes_on_afterwards(
    database: Path, unit_on: UnitOn
) -> None:
    engine = configure_engine(create_engine(url_of(database)), busy_timeout_ms=0)
    with Session(engine) as session:
        unit = unit_on(session)
        with write_locked(database), pytest.raises(DatabaseBusy, match="run the whole unit again"):
            acquire(unit)
        session.rollback()
        acquire(unit)
        session.commit()
    assert rows(database, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_a_unit_that_read_before_another_wrote_has_to_run_again_as_a_whole(
    configured: Engine, database: Path, unit_on: UnitOn, clock: ManualClock
) -> None:
    with Session(configured) as session:
        assert session.scalars(select(Order)).all() == []
        with support.open_store(database, clock) as other:
            acquire(other, "other", "other")

        with pytest.raises(DatabaseBusy, match="run the whole unit again") as caught:
            acquire(unit_on(session))
        assert "BEGIN IMMEDIATE" in str(caught.value)

        session.rollback()
        session.add(Order(name="again"))
        acquire(unit_on(session))
        session.commit()
    assert orders(database) == ["again"]
    assert rows(database, "SELECT actor_id FROM actor_leases ORDER BY 1") == [
        ("actor",),
        ("other",),
    ]


def test_a_commit_of_the_session_that_is_refused_leaves_no_lock(
    configured: Engine, database: Path, unit_on: UnitOn
) -> None:
    with Session(configured) as session:
        acquire(unit_on(session))
        session.add(Line(name="line", order_name="nowhere"))
        with pytest.raises(Exception, match="FOREIGN KEY"):
            session.commit()
    assert not is_write_locked(database)
    assert rows(database, "SELECT * FROM actor_leases") == []
    with Session(configured) as session:
        assert acquire(unit_on(session)).epoch == 1


def test_checks_are_made_once_a_connection(configured: Engine, unit_on: UnitOn) -> None:
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


def test_a_store_and_a_session_side_by_side_see_each_others_commits(
    configured: Engine, store: Broker, unit_on: UnitOn
) -> None:
    lease = acquire(store)
    with Session(configured) as session:
        store.unit_of_work(session).commit(commit_request(lease))
        assert store.get_stream_revision({"streamId": "stream"}) == 0
        session.commit()
    assert store.commit(commit_request(lease)).recovered


def test_the_clock_row_is_an_entity_like_any_other(configured: Engine, unit_on: UnitOn) -> None:
    with Session(configured) as session:
        acquire(unit_on(session))
        assert session.get_one(MetadataEntry, "logical_time_floor").value == "1000"
        assert session.execute(text("SELECT count(*) FROM metadata")).scalar() == 2


def test_another_clients_change_is_seen_by_the_next_transaction(
    configured: Engine, database: Path, unit_on: UnitOn
) -> None:
    with Session(configured) as session:
        unit = unit_on(session)
        acquire(unit)
        session.commit()
        with raw(database) as connection:
            connection.execute(
                "UPDATE metadata SET value = '9000' WHERE key = 'logical_time_floor'"
            )
        assert acquire(unit, "second", "second").acquired_at == 9_000
