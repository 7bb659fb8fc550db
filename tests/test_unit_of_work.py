"""The unit of work in the application's own session, on engines of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, select, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from broker import Broker, UnitOfWork, configure_engine
from broker.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    IdempotencyConflict,
    RevisionConflict,
    StaleLease,
)
from broker.models import ActorLease, Base, Event, MetadataEntry, Projection, Stream
from tests import support
from tests.places import Place, backend_of, client, rows, url_of
from tests.support import (
    ENGINES,
    MUTATIONS,
    Application,
    Line,
    ManualClock,
    Order,
    UnitOn,
    acquire,
    commit_request,
    floor,
    is_write_locked,
    messages,
    operate,
    operation_names,
    operation_requests,
    orders,
    outbox_message,
    used_ids,
    write_locked,
)

# ------------------------------------------------------------------------------- stand and fall


def test_the_callers_rows_and_the_stores_are_committed_together(
    engine: Engine, database: Place, unit_on: UnitOn
) -> None:
    with Session(engine) as session:
        session.add(Order(name="pending"))
        unit = unit_on(session)
        unit.commit(commit_request(acquire(unit)))
        session.add(Order(name="later"))
        assert (orders(database), messages(database)) == ([], [])
        session.commit()
    assert (orders(database), messages(database)) == (["later", "pending"], ["message"])


def test_they_are_rolled_back_together(engine: Engine, database: Place, unit_on: UnitOn) -> None:
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
    engine: Engine, database: Place, unit_on: UnitOn
) -> None:
    with Session(engine) as session, pytest.raises(ZeroDivisionError):
        fail_in_the_middle(session, unit_on(session))
    assert (orders(database), messages(database)) == ([], [])
    assert not is_write_locked(database)


def test_every_operation_works_on_every_engine(
    engine: Engine, database: Place, unit_on: UnitOn, clock: ManualClock
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
    engine: Engine, database: Place, unit_on: UnitOn, clock: ManualClock
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
    engine: Engine, database: Place, unit_on: UnitOn, clock: ManualClock, name: str
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
    engine: Engine, database: Place, unit_on: UnitOn, clock: ManualClock
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
    engine: Engine, database: Place, clock: ManualClock
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
    configured: Engine, path: Path, clock: ManualClock
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
    assert orders(path) == ["anew"]


# ---------------------------------------------------------------------------------------------- time


def test_time_is_read_once_a_transaction_of_sqlites_whoever_asks(
    engine: Engine, path: Path, unit_on: UnitOn, clock: ManualClock
) -> None:
    with Session(engine) as session:
        first = acquire(unit_on(session))
        clock.advance(500)
        second = acquire(unit_on(session), "second", "second")
        session.commit()
        third = acquire(unit_on(session), "third", "third")
        session.commit()
    assert [each.acquired_at for each in (first, second, third)] == [1_000, 1_000, 1_500]
    assert floor(path) == "1500"


def test_time_after_a_rollback_is_read_anew(
    engine: Engine, unit_on: UnitOn, clock: ManualClock
) -> None:
    with Session(engine) as session:
        acquire(unit_on(session))
        session.rollback()
        clock.advance(500)
        assert acquire(unit_on(session)).acquired_at == 1_500


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


def test_the_applications_own_entities_stay_loaded(engine: Engine, unit_on: UnitOn) -> None:
    with Session(engine) as session:
        order = Order(name="mine", note="loaded")
        session.add(order)
        session.flush()
        acquire(unit_on(session))
        assert order.__dict__["note"] == "loaded"


def test_a_change_of_an_entity_is_not_thrown_away(
    engine: Engine, database: Place, unit_on: UnitOn
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
    database: Place, tmp_path: Path, unit_on: UnitOn
) -> None:
    elsewhere = configure_engine(create_engine(url_of(tmp_path / "application.db")))
    Application.metadata.create_all(elsewhere)
    stores = ENGINES[backend_of(database)]["configured"](url_of(database))
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


def test_a_session_whose_engines_are_for_other_tables_is_told_so(database: Place) -> None:
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


# ----------------------------------------------------------------------------------------- busy


def test_while_another_writes_the_unit_is_busy_and_the_session_goes_on_afterwards(
    database: Place, path: Path, unit_on: UnitOn
) -> None:
    engine = configure_engine(create_engine(url_of(database)), busy_timeout_ms=0)
    with Session(engine) as session:
        unit = unit_on(session)
        with write_locked(path), pytest.raises(DatabaseBusy, match="run the whole unit again"):
            acquire(unit)
        session.rollback()
        acquire(unit)
        session.commit()
    assert rows(database, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_a_unit_that_read_before_another_wrote_has_to_run_again_as_a_whole(
    configured: Engine, path: Path, unit_on: UnitOn, clock: ManualClock
) -> None:
    with Session(configured) as session:
        assert session.scalars(select(Order)).all() == []
        with support.open_store(path, clock) as other:
            acquire(other, "other", "other")

        with pytest.raises(DatabaseBusy, match="run the whole unit again") as caught:
            acquire(unit_on(session))
        assert "BEGIN IMMEDIATE" in str(caught.value)

        session.rollback()
        session.add(Order(name="again"))
        acquire(unit_on(session))
        session.commit()
    assert orders(path) == ["again"]
    assert rows(path, "SELECT actor_id FROM actor_leases ORDER BY 1") == [
        ("actor",),
        ("other",),
    ]


def test_a_commit_of_the_session_that_is_refused_leaves_no_lock(
    configured: Engine, database: Place, unit_on: UnitOn
) -> None:
    with Session(configured) as session:
        acquire(unit_on(session))
        session.add(Line(name="line", order_name="nowhere"))
        with pytest.raises(Exception, match=r"(?i)foreign key"):
            session.commit()
    assert not is_write_locked(database)
    assert rows(database, "SELECT * FROM actor_leases") == []
    with Session(configured) as session:
        assert acquire(unit_on(session)).epoch == 1


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
    configured: Engine, database: Place, unit_on: UnitOn
) -> None:
    with Session(configured) as session:
        unit = unit_on(session)
        acquire(unit)
        session.commit()
        with client(database) as connection:
            connection.execute(
                "UPDATE metadata SET value = '9000' WHERE key = 'logical_time_floor'"
            )
        assert acquire(unit, "second", "second").acquired_at == 9_000
