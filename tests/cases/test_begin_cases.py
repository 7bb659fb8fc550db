"""Cases about how a transaction begins, and what a driver makes of it."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Engine,
    create_engine,
    select,
    text,
    update,
)
from sqlalchemy import exc as sa_exc
from sqlalchemy.orm import Session

from broker import IMMEDIATE, Broker, configure_engine
from broker.errors import (
    ConfigurationError,
    DatabaseBusy,
    RevisionConflict,
)
from broker.messages import Lease
from broker.statements import SQLITE, Statement
from tests import support
from tests.places import Place, contents, raw, rows, url_of
from tests.support import (
    ManualClock,
    Order,
    acquire,
    alive,
    commit_request,
    finish,
    is_write_locked,
    open_store,
    orders,
    outbox_message,
    start_python,
    wait_for,
    write_locked,
)

# --------------------------------------------------------------------------------------------- B01


def create_and_fail(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE half (x INTEGER)"))
        raise ZeroDivisionError


def test_b01_a_table_made_in_a_transaction_that_fails_is_not_there(
    hooked: Engine, place: Place
) -> None:
    with pytest.raises(ZeroDivisionError):
        create_and_fail(hooked)
    assert "half" not in contents(place)


def test_b01_a_released_savepoint_is_undone_by_the_outer_rollback(
    hooked: Engine, place: Place
) -> None:
    with hooked.connect() as connection:
        outer, nested = connection.begin(), connection.begin_nested()
        connection.execute(text("INSERT INTO orders VALUES ('nested', '', 'new')"))
        nested.commit()
        outer.rollback()
    assert orders(place) == []


def test_b01_a_unit_in_a_released_savepoint_is_undone_by_the_outer_rollback(
    hooked: Engine, place: Place, store: Broker
) -> None:
    with Session(hooked) as session:
        with session.begin_nested():
            acquire(store.unit_of_work(session))
        session.rollback()
    assert rows(place, "SELECT * FROM actor_leases") == []


def test_b01_without_the_begin_hook_half_of_the_work_stays(path: Path) -> None:
    """What the tests above would see if somebody removed it."""
    engine = configure_engine(create_engine(url_of(path)))
    engine.dispatch.begin.listeners.clear()
    with pytest.raises(ZeroDivisionError):
        create_and_fail(engine)
    assert rows(path, "SELECT name FROM sqlite_schema WHERE name = 'half'") == [("half",)]


def test_b01_the_driver_begins_nothing_by_itself(hooked: Engine, path: Path) -> None:
    """Without the connect hook it would begin before an INSERT, and commit as it likes."""
    connection = hooked.raw_connection()
    cursor = connection.cursor()
    cursor.execute("INSERT INTO orders VALUES ('by itself', '', 'new')")
    connection.close()
    assert orders(path) == ["by itself"]


# --------------------------------------------------------------------------------------------- B02


def test_b02_reading_and_then_writing_never_meets_a_stale_snapshot(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store)

    def work(mine: Broker, name: str) -> None:
        for number in range(20):
            commit_at_any_revision(mine, lease, f"{name}-{number}")

    with open_store(place, clock) as other:
        support.in_threads(
            lambda: work(store, "a"),
            lambda: work(store, "b"),
            lambda: work(other, "c"),
            lambda: work(other, "d"),
        )
    found = rows(place, "SELECT revision FROM events ORDER BY rowid")
    assert found == [(number,) for number in range(1, 81)]


def commit_at_any_revision(store: Broker, lease: Lease, message_id: str) -> None:
    while True:
        revision = store.get_stream_revision({"streamId": lease.stream_id})
        try:
            store.commit(commit_request(lease, message_id, expectedRevision=revision))
        except RevisionConflict:
            continue
        return


def test_b02_a_stale_snapshot_asks_for_the_whole_unit_again(
    hooked: Engine, store: Broker, path: Path
) -> None:
    with Session(hooked) as session:
        session.scalars(select(Order)).all()
        acquire(store, "other", "other")
        with pytest.raises(DatabaseBusy, match="run the whole unit again") as caught:
            acquire(store.unit_of_work(session))
        cause = caught.value.__cause__
        assert isinstance(cause, sqlite3.OperationalError)
        assert cause.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT
        session.rollback()
        assert acquire(store.unit_of_work(session)).epoch == 1


def test_b02_a_unit_begun_as_a_writer_needs_no_second_run(
    hooked: Engine, store: Broker, path: Path
) -> None:
    with Session(hooked.execution_options(**IMMEDIATE)) as session:
        session.scalars(select(Order)).all()
        assert is_write_locked(path)
        assert acquire(store.unit_of_work(session)).epoch == 1
        session.commit()


# --------------------------------------------------------------------------------------------- B03


def test_b03a_a_session_whose_begin_timed_out_can_be_used_again(store: Broker, path: Path) -> None:
    engine = configure_engine(create_engine(url_of(path)), busy_timeout_ms=0)
    with Session(engine.execution_options(**IMMEDIATE)) as session:
        with write_locked(path):
            with pytest.raises(sa_exc.OperationalError, match="locked"):
                session.execute(text("SELECT 1"))
            with pytest.raises(DatabaseBusy):
                acquire(store.unit_of_work(session))
        assert session.execute(text("SELECT 1")).scalar() == 1
        acquire(store.unit_of_work(session))
        session.commit()
    assert engine.pool.status().endswith("Current Checked out connections: 0")
    assert rows(path, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_b03a_a_store_whose_begin_timed_out_can_be_used_again(
    path: Path, clock: ManualClock
) -> None:
    with open_store(path, clock, busy_timeout_ms=0) as store:
        with write_locked(path):
            for _ in range(20):
                with pytest.raises(DatabaseBusy):
                    acquire(store)
        assert acquire(store).epoch == 1


def test_b03b_a_forgotten_reader_blocks_no_writer(
    hooked: Engine, store: Broker, place: Place
) -> None:
    forgotten = Session(hooked)
    assert store.unit_of_work(forgotten).list_pending_outbox() == []
    lease = acquire(store)
    assert store.commit(commit_request(lease)).revision == 1
    found = store.unit_of_work(forgotten).get_lease({"actorId": "actor"})
    is_a_snapshot = isinstance(place, Path)  # and READ COMMITTED is none
    assert found == (None if is_a_snapshot else lease)
    forgotten.close()


def test_b03b_a_read_in_the_middle_blocks_no_writer(store: Broker, path: Path) -> None:
    def read(_transaction: Any) -> bool:
        with raw(path) as other:
            other.execute("PRAGMA busy_timeout=0")
            other.execute("UPDATE metadata SET value = value")
        return True

    assert store._read(lambda: read)


MARK_ALL = """
import json, sys
from broker import Broker
with Broker.open(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    ids = [str(number) for number in range(60)]
    print(json.dumps([each for each in ids if store.mark_outbox_delivered({"outboxId": each})]))
"""


def test_b03c_of_two_processes_that_mark_the_same_rows_each_row_has_one_that_did_it(
    store: Broker, place: Place
) -> None:
    messages = [outbox_message(str(number)) for number in range(60)]
    store.commit(commit_request(acquire(store), outbox=messages))
    processes = [start_python(MARK_ALL, url_of(place)) for _ in range(2)]
    for process in processes:
        wait_for(process, "ready")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    marked = [each for process in processes for each in json.loads(finish(process))]

    assert sorted(marked, key=int) == [str(number) for number in range(60)]
    assert rows(place, "SELECT DISTINCT attempts, delivered_at IS NULL FROM outbox") == [(1, 0)]


def test_b03c_no_statement_counts_on_a_row_lock_that_sqlite_does_not_have() -> None:
    statements = alive(Statement)
    assert len(statements) > 20
    assert [
        sql for sql, _ in (each.compiled[SQLITE] for each in statements) if "FOR UPDATE" in sql
    ] == []


# --------------------------------------------------------------------------------------------- B06


def test_b06_a_claim_by_returning_is_judged_by_its_rows(hooked: Engine, place: Place) -> None:
    claim = (
        update(Order)
        .where(Order.name == "one", Order.state == "new")
        .values(state="claimed")
        .returning(Order.name)
    )
    with Session(hooked) as session:
        session.add(Order(name="one"))
        session.flush()
        assert session.execute(claim).scalars().all() == ["one"]
        assert session.execute(claim).scalars().all() == []
        session.commit()
    assert rows(place, "SELECT state FROM orders") == [("claimed",)]


def test_b06_a_returning_that_nobody_reads_costs_no_lock(
    hooked: Engine, path: Path, store: Broker
) -> None:
    with hooked.connect() as connection:
        connection.execute(text("INSERT INTO orders VALUES ('a', '', 'new'), ('b', '', 'new')"))
        connection.commit()
        unread = connection.exec_driver_sql("UPDATE orders SET state = 'x' RETURNING name")
        with pytest.raises(sa_exc.OperationalError, match="in progress"):
            connection.commit()
        unread.close()
    assert not is_write_locked(path)
    assert acquire(store).epoch == 1
    assert rows(path, "SELECT DISTINCT state FROM orders") == [("new",)]


def test_b06_after_every_operation_nothing_is_left_unread(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    for name, request in support.operation_requests(store, clock).items():
        support.operate(store, name, request)
        with raw(path) as other:
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0), name


# --------------------------------------------------------------------------------------------- B07


def test_b07_foreign_keys_are_on_and_read_back_on_every_connection(
    hooked: Engine, path: Path
) -> None:
    with hooked.connect() as one, hooked.connect() as other:
        for connection in (one, other):
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


class WithAutocommitFalse(sqlite3.Connection):
    """What a connection of Python 3.12 says of itself when it was made with autocommit=False."""

    autocommit = False


def autocommit_false() -> dict[str, Any]:
    """Arguments for a connection in that mode; older Pythons get one that says so."""
    if sys.version_info >= (3, 12):
        return {"autocommit": False}
    return {"factory": WithAutocommitFalse}


def test_b07_autocommit_false_is_refused_by_an_engine_of_ours(store: Broker, path: Path) -> None:
    engine = configure_engine(create_engine(url_of(path), connect_args=autocommit_false()))
    with pytest.raises(ConfigurationError, match='"autocommit": False'):
        engine.connect()


def test_b07_autocommit_false_is_refused_by_a_unit_of_work(store: Broker, path: Path) -> None:
    engine = create_engine(url_of(path), connect_args=autocommit_false())
    with Session(engine) as session, pytest.raises(ConfigurationError, match='"autocommit": False'):
        acquire(store.unit_of_work(session))
    engine.dispose()
