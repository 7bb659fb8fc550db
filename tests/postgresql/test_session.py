"""Units of work on sessions of psycopg: isolation, schema, entities, refusals, failed transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, select, text
from sqlalchemy import event as sa_event
from sqlalchemy import exc as sa_exc
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork, schema
from broker.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    IdempotencyConflict,
    RevisionConflict,
    SchemaError,
)
from broker.models import ActorLease, Event, Stream
from tests.places import PostgresPlace, client, execute, rows
from tests.postgresql.support_failures import (
    many_events,
    sessions,
    terminate_sessions,
    with_settings,
)
from tests.support import (
    Application,
    ManualClock,
    Order,
    UnitOn,
    acquire,
    commit_request,
    event,
    messages,
    operate,
    operation_requests,
    orders,
)

SCHEMA = 'Tenant "A"'


@pytest.fixture
def application(database: PostgresPlace) -> Iterator[Engine]:
    """The application's engine, as SQLAlchemy makes it, on a database with its tables."""
    engine = create_engine(database.url)
    yield engine
    engine.dispose()


# --------------------------------------------------------------------------------------- isolation


LEVELS = ["REPEATABLE READ", "SERIALIZABLE"]
WORK: dict[str, Callable[[UnitOfWork], object]] = {
    "write": acquire,
    "commit": lambda unit: unit.commit(commit_request(acquire(unit))),
    "read of the journal": lambda unit: unit.read_journal({}),
    "read of the read model": lambda unit: unit.read_model_events({"workspaceId": "w"}),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("work", WORK)
def test_another_isolation_is_refused_and_named(
    application: Engine, unit_on: UnitOn, database: PostgresPlace, level: str, work: str
) -> None:
    with Session(application.execution_options(isolation_level=level)) as session:
        session.add(Order(name="mine"))
        with pytest.raises(ConfigurationError, match=level) as caught:
            WORK[work](unit_on(session))
        assert "READ COMMITTED" in str(caught.value)
        session.commit()  # the application's transaction is left as it was
    assert orders(database) == ["mine"]
    assert rows(database, "SELECT * FROM actor_leases") == []


@pytest.mark.parametrize("level", LEVELS)
def test_another_isolation_is_noticed_whoever_chose_it(
    database: PostgresPlace, unit_on: UnitOn, level: str
) -> None:
    by_url = with_settings(
        database, default_transaction_isolation=level.lower().replace(" ", "\\ ")
    )
    engine = create_engine(by_url.url)
    with Session(engine) as session, pytest.raises(ConfigurationError, match=level):
        acquire(unit_on(session))
    engine.dispose()
    engine = create_engine(database.url)
    with Session(engine) as session:
        session.execute(text(f"SET TRANSACTION ISOLATION LEVEL {level}"))
        with pytest.raises(ConfigurationError, match=level):
            acquire(unit_on(session))
        session.rollback()
        assert acquire(unit_on(session)).epoch == 1  # the next transaction is another
        session.commit()
    engine.dispose()


@pytest.mark.parametrize("work", WORK)
def test_autocommit_is_refused_for_what_writes(
    application: Engine, unit_on: UnitOn, database: PostgresPlace, work: str
) -> None:
    with Session(application.execution_options(isolation_level="AUTOCOMMIT")) as session:
        with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
            WORK[work](unit_on(session))
        assert session.scalar(text("SELECT 1")) == 1
    assert rows(database, "SELECT * FROM actor_leases") == []


def test_read_committed_that_was_asked_for_is_accepted(
    application: Engine, unit_on: UnitOn
) -> None:
    with Session(application.execution_options(isolation_level="READ COMMITTED")) as session:
        assert acquire(unit_on(session)).epoch == 1


# ------------------------------------------------------------------------------------------ schema


@pytest.fixture
def tenant(database: PostgresPlace) -> PostgresPlace:
    """A second store in the database, in a schema of its own."""
    schema.upgrade(database.url, schema=SCHEMA)
    return database


def of_tenant(tenant: PostgresPlace, column: str, table: str) -> list[Any]:
    quoted = SCHEMA.replace('"', '""')
    return [each for (each,) in rows(tenant, f'SELECT {column} FROM "{quoted}".{table}')]


def test_the_options_say_which_schema_holds_the_store(
    tenant: PostgresPlace, application: Engine, clock: ManualClock
) -> None:
    with Session(application) as session:
        unit = UnitOfWork(session, clock.options(schema=SCHEMA))
        unit.commit(commit_request(acquire(unit)))
        session.add(Order(name="mine"))
        assert session.scalar(text("SHOW search_path")) == '"$user", public'
        session.commit()
    assert of_tenant(tenant, "message_id", "inbox") == ["message"]
    assert (messages(tenant), orders(tenant)) == ([], ["mine"])


def test_units_of_two_schemas_in_one_session_do_not_get_into_each_others_store(
    tenant: PostgresPlace, application: Engine, clock: ManualClock
) -> None:
    with Session(application) as session:
        here, there = (UnitOfWork(session, clock.options(schema=each)) for each in (None, SCHEMA))
        for number in range(3):
            acquire(here, f"here-{number}", f"here-{number}")
            acquire(there, f"there-{number}", f"there-{number}")
        session.commit()
    expected = [[f"{place}-{number}" for number in range(3)] for place in ("here", "there")]
    here_found = [each for (each,) in rows(tenant, "SELECT actor_id FROM actor_leases ORDER BY 1")]
    assert [here_found, sorted(of_tenant(tenant, "actor_id", "actor_leases"))] == expected


def test_or_else_the_engines_own_map_does(
    tenant: PostgresPlace, application: Engine, unit_on: UnitOn
) -> None:
    mapped = application.execution_options(schema_translate_map={None: SCHEMA})
    with Session(mapped) as session:
        unit = unit_on(session)
        unit.commit(commit_request(acquire(unit)))
        assert session.get_one(Stream, "stream").revision == 1
        assert [each.event_id for each in session.scalars(select(Event))] == ["message-event"]
        session.commit()
    assert of_tenant(tenant, "message_id", "inbox") == ["message"]
    assert messages(tenant) == []


def test_two_stores_in_one_transaction_stand_or_fall_together(
    tenant: PostgresPlace, application: Engine, clock: ManualClock
) -> None:
    for ends_well in (False, True):
        with Session(application) as session:
            for options in (clock.options(), clock.options(schema=SCHEMA)):
                unit = UnitOfWork(session, options)
                unit.commit(commit_request(acquire(unit)))
            if ends_well:
                session.commit()
            else:
                session.rollback()
        found = [messages(tenant), of_tenant(tenant, "message_id", "inbox")]
        assert found == [["message"] * ends_well] * 2


def test_every_operation_works_in_a_schema(
    tenant: PostgresPlace, application: Engine, clock: ManualClock
) -> None:
    options = clock.options(schema=SCHEMA)
    with Broker.open(tenant.url, options=options) as store:
        requests = operation_requests(store, clock)
    with Session(application) as session:
        unit = UnitOfWork(session, options)
        for name, request in requests.items():
            operate(unit, name, request)
        session.commit()
    assert of_tenant(tenant, "count(*)", "actor_leases") == [4]
    assert rows(tenant, "SELECT count(*) FROM actor_leases") == [(0,)]


def test_a_schema_without_a_store_is_said_to_be_so_and_the_session_goes_on(
    application: Engine, database: PostgresPlace, clock: ManualClock
) -> None:
    with Session(application) as session:
        session.add(Order(name="mine"))
        session.flush()
        with pytest.raises(SchemaError):
            acquire(UnitOfWork(session, clock.options(schema="nowhere")))
        session.commit()
    assert orders(database) == ["mine"]


# ---------------------------------------------------------------------------------------- entities


def test_loaded_entities_are_read_again_after_a_write_and_after_a_savepoint(
    application: Engine, unit_on: UnitOn
) -> None:
    with Session(application) as session:
        unit = unit_on(session)
        lease = acquire(unit)
        unit.commit(commit_request(lease))
        stream, row = session.get_one(Stream, "stream"), session.get_one(ActorLease, "actor")
        assert (stream.revision, row.epoch) == (1, 1)
        with session.begin_nested() as nested:
            unit.commit(commit_request(lease, "two", expectedRevision=1))
            assert stream.revision == 2
            nested.rollback()
        assert stream.revision == 1
        assert [each.event_id for each in stream.events] == ["message-event"]


def test_cursors_are_read_as_the_entitys(application: Engine, unit_on: UnitOn) -> None:
    with Session(application) as session:
        unit = unit_on(session)
        result = unit.commit(many_events(acquire(unit), 3))
        found = session.scalars(select(Event).order_by(Event.cursor)).all()
        assert tuple(each.cursor for each in found) == result.event_cursors


# ---------------------------------------------------------------------------------------- refusals


def test_refused_operations_leave_the_transaction_usable(
    application: Engine, database: PostgresPlace, unit_on: UnitOn
) -> None:
    with Session(application) as session:
        session.add(Order(name="mine"))
        unit = unit_on(session)
        lease = acquire(unit)
        unit.commit(commit_request(lease))
        for _ in range(3):
            with pytest.raises(RevisionConflict):
                unit.commit(commit_request(lease, "late"))
            used = {"expectedRevision": 1, "events": [event("message-event")]}
            with pytest.raises(IdempotencyConflict):
                unit.commit(commit_request(lease, "twice", **used))
        unit.commit(commit_request(lease, "two", expectedRevision=1))
        session.add(Order(name="later"))
        session.commit()
    assert (orders(database), messages(database)) == (["later", "mine"], ["message", "two"])


def test_savepoints_of_the_session_undo_what_was_done_in_them(
    application: Engine, database: PostgresPlace, unit_on: UnitOn
) -> None:
    with Session(application) as session:
        unit = unit_on(session)
        lease = acquire(unit)
        with session.begin_nested():
            unit.commit(commit_request(lease, "kept"))
        with session.begin_nested() as nested:
            unit.commit(commit_request(lease, "undone", expectedRevision=1))
            session.add(Order(name="undone"))
            session.flush()
            nested.rollback()
        with session.begin_nested(), session.begin_nested():
            unit.commit(commit_request(lease, "deep", expectedRevision=1))
        session.commit()
    assert (orders(database), messages(database)) == ([], ["deep", "kept"])


def test_a_savepoint_makes_good_for_an_error_of_the_database_too(
    application: Engine, database: PostgresPlace, unit_on: UnitOn
) -> None:
    with Session(application) as session:
        unit = unit_on(session)
        lease = acquire(unit)
        with session.begin_nested() as nested:
            unit.commit(commit_request(lease, "undone"))
            with pytest.raises(sa_exc.DataError):
                session.execute(text("SELECT 1/0"))
            nested.rollback()
        unit.commit(commit_request(lease, "kept"))
        session.commit()
    assert messages(database) == ["kept"]


# --------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("work", WORK)
def test_a_transaction_that_has_failed_says_what_to_do(
    application: Engine, unit_on: UnitOn, work: str
) -> None:
    with Session(application) as session:
        acquire(unit_on(session), "known", "known")  # so that the database is known
        session.commit()
        with pytest.raises(sa_exc.DataError):
            session.execute(text("SELECT 1/0"))
        with pytest.raises(DatabaseError, match="roll it back") as caught:
            WORK[work](unit_on(session))
        assert type(caught.value) is DatabaseError
        session.rollback()
        WORK[work](unit_on(session))


def test_a_transaction_that_failed_before_anything_of_the_stores_says_so_too(
    application: Engine, unit_on: UnitOn
) -> None:
    with Session(application) as session:
        with pytest.raises(sa_exc.DataError):
            session.execute(text("SELECT 1/0"))
        with pytest.raises(DatabaseError, match="roll it back"):
            acquire(unit_on(session))
        session.rollback()
        assert acquire(unit_on(session)).epoch == 1


def test_a_flush_that_failed_says_so(application: Engine, unit_on: UnitOn) -> None:
    with Session(application) as session:
        unit = unit_on(session)
        lease = acquire(unit)
        session.add_all([Order(name="twice")])
        session.flush()
        session.expunge_all()
        session.add(Order(name="twice"))
        with pytest.raises(sa_exc.IntegrityError):
            session.flush()
        with pytest.raises(DatabaseError, match="roll"):
            unit.commit(commit_request(lease))
        session.rollback()
        assert acquire(unit).epoch == 1


def test_a_connection_that_died_is_told_and_the_next_transaction_has_another(
    application: Engine, database: PostgresPlace, unit_on: UnitOn
) -> None:
    with Session(application) as session:
        unit = unit_on(session)
        lease = acquire(unit)
        terminate_sessions(database)
        with pytest.raises(DatabaseUnavailable):
            unit.commit(commit_request(lease))
        session.rollback()
        unit.commit(commit_request(acquire(unit)))
        session.commit()
    assert messages(database) == ["message"]


def test_a_connection_that_dies_while_the_store_is_looked_at_is_told_too(
    application: Engine, database: PostgresPlace, unit_on: UnitOn
) -> None:
    died: list[int] = []

    @sa_event.listens_for(application, "before_cursor_execute")
    def _die(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "pg_class" in statement and not died:
            died.append(terminate_sessions(database))

    with Session(application) as session:
        unit = unit_on(session)
        with pytest.raises(DatabaseUnavailable):
            acquire(unit)
        session.rollback()
        assert acquire(unit).epoch == 1
    assert died == [1]


def test_a_lock_of_somebody_elses_is_busy_by_the_applications_own_timeout(
    database: PostgresPlace, unit_on: UnitOn
) -> None:
    engine = create_engine(with_settings(database, lock_timeout="50").url)
    with Session(engine) as session, client(database) as other:
        unit = unit_on(session)
        lease = acquire(unit)
        session.commit()
        other.execute("BEGIN")
        other.execute("SELECT * FROM actor_leases FOR UPDATE")
        with pytest.raises(DatabaseBusy, match="run the whole unit again"):
            unit.commit(commit_request(lease))
        session.rollback()
        other.execute("ROLLBACK")
        unit.commit(commit_request(lease))
        session.commit()
    engine.dispose()
    assert messages(database) == ["message"]


def test_the_stores_own_engine_serves_sessions_too(
    store: Broker, database: PostgresPlace, clock: ManualClock
) -> None:
    Application.metadata.create_all(store.engine)
    with Session(store.engine) as session:
        unit = store.unit_of_work(session)
        unit.commit(commit_request(acquire(unit)))
        session.add(Order(name="mine"))
        session.commit()
    assert (orders(database), messages(database)) == (["mine"], ["message"])
    assert store.get_stream_revision({"streamId": "stream"}) == 1


def test_who_may_not_write_is_told_so(
    application: Engine, database: PostgresPlace, unit_on: UnitOn
) -> None:
    execute(database, "CREATE ROLE reader_of_tests")
    try:
        execute(database, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_of_tests")
        with Session(application) as session:
            session.execute(text("SET LOCAL ROLE reader_of_tests"))
            with pytest.raises(DatabaseUnavailable, match="privilege"):
                acquire(unit_on(session))
    finally:
        execute(database, "DROP OWNED BY reader_of_tests")
        execute(database, "DROP ROLE reader_of_tests")
    assert sessions(database) != []
