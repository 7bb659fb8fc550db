"""The end of a store's connections: what is running is waited for, nothing starts, no file stays open."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from broker import IMMEDIATE, Broker
from broker.errors import DatabaseUnavailable, StoreClosed
from broker.sqlite.engine import make_engine
from tests.places import execute, rows, url_of
from tests.sqlite_support import connections_of
from tests.support import (
    ManualClock,
    acquire,
    open_files,
    open_store,
    operate,
    operation_names,
    operation_requests,
)

OPERATIONS = sorted(operation_names())


@pytest.mark.parametrize("name", OPERATIONS)
def test_after_close_every_operation_says_that_the_store_is_closed(
    store: Broker, clock: ManualClock, name: str
) -> None:
    request = operation_requests(store, clock)[name]
    store.close()
    with pytest.raises(StoreClosed):
        operate(store, name, request)


def test_a_closed_store_makes_no_unit_of_work(store: Broker) -> None:
    store.close()
    with Session(store.engine) as session, pytest.raises(StoreClosed):
        store.unit_of_work(session)


def test_closing_lets_go_of_every_file_and_can_be_repeated(store: Broker, path: Path) -> None:
    acquire(store)
    store.get_lease({"actorId": "actor"})
    assert open_files(path)
    store.close()
    store.close()
    assert open_files(path) == []
    assert list(path.parent.iterdir()) == [path]


def test_leaving_the_context_closes_also_after_an_error(path: Path, clock: ManualClock) -> None:
    with pytest.raises(ZeroDivisionError), open_store(path, clock) as store:
        _ = 1 / 0
    with pytest.raises(StoreClosed):
        acquire(store)
    assert open_files(path) == []


def blocking(inside: threading.Event, go_on: threading.Event) -> Callable[[], str]:
    """A nonce source that stops in the middle of a write until it is let go on."""

    def nonce() -> str:
        inside.set()
        assert go_on.wait(10)
        return "nonce"

    return nonce


def wait_until_closed(store: Broker) -> None:
    with contextlib.suppress(StoreClosed):
        while True:
            store.get_lease({"actorId": "actor"})


def test_closing_waits_for_the_write_that_is_running(path: Path, clock: ManualClock) -> None:
    inside, go_on = threading.Event(), threading.Event()
    store = open_store(path, clock, nonce=blocking(inside, go_on))
    writing = threading.Thread(target=acquire, args=(store,))
    writing.start()
    assert inside.wait(10)
    closing_it = threading.Thread(target=store.close)
    closing_it.start()
    wait_until_closed(store)

    assert closing_it.is_alive()
    go_on.set()
    writing.join()
    closing_it.join()
    assert rows(path, "SELECT actor_id FROM actor_leases") == [("actor",)]
    assert open_files(path) == []


def test_who_waited_for_a_store_that_was_closed_is_told_and_opens_nothing(
    path: Path, clock: ManualClock
) -> None:
    inside, go_on = threading.Event(), threading.Event()
    store = open_store(path, clock, nonce=blocking(inside, go_on))
    outcomes: list[object] = []

    def second() -> None:
        try:
            outcomes.append(acquire(store, "second", "second"))
        except StoreClosed as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=acquire, args=(store,)), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    threads.append(threading.Thread(target=store.close))
    threads[2].start()
    go_on.set()
    for thread in threads:
        thread.join()

    stored = [actor for (actor,) in rows(path, "SELECT actor_id FROM actor_leases ORDER BY 1")]
    assert stored == (["actor"] if outcomes == [StoreClosed] else ["actor", "second"])
    assert open_files(path) == []


def test_a_write_that_begins_to_wait_before_close_gets_no_connection_after_it(
    store: Broker, path: Path
) -> None:
    # The write has seen an open store, and finds the queue closed.
    connections_of(store).writes.close()
    with pytest.raises(StoreClosed):
        acquire(store)
    assert rows(path, "SELECT * FROM actor_leases") == []


def open_for_reading(engine: Engine, path: Path) -> Callable[..., Any]:
    """Let connections be made as SQLite does it where it is refused to open a file for writing."""

    def connect(*_: Any) -> Any:
        return sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)

    event.listen(engine, "do_connect", connect)
    return connect


def test_a_connection_that_may_only_read_is_not_kept_once_that_was_noticed(
    store: Broker, path: Path
) -> None:
    def join(name: str) -> None:
        with Session(store.engine.execution_options(**IMMEDIATE)) as session, session.begin():
            acquire(store.unit_of_work(session), name, name)

    connect = open_for_reading(store.engine, path)
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        join("refused")
    event.remove(store.engine, "do_connect", connect)

    join("healed")
    assert rows(path, "SELECT actor_id FROM actor_leases") == [("healed",)]


def test_a_connection_that_may_only_read_leaves_no_lock(path: Path) -> None:
    path.touch(0o600)
    engine = make_engine(url_of(path), wal=False)
    open_for_reading(engine, path)

    def write() -> None:
        with engine.execution_options(**IMMEDIATE).begin() as connection:
            connection.exec_driver_sql("SELECT * FROM sqlite_schema")
            connection.exec_driver_sql("CREATE TABLE t (x)")

    with pytest.raises(OperationalError, match="readonly") as caught:
        write()
    execute(path, "CREATE TABLE t (x)")
    assert caught.value.__traceback__ is not None  # it is still there, with all that it knows
