"""The road of reads: side by side, writing nothing, waiting for nobody but for a connection."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import TimeoutError as PoolTimeout

from broker import Broker
from broker.errors import DatabaseBusy, DatabaseError
from broker.statements import Statement
from broker.transaction import Transaction
from tests.places import contents, raw
from tests.sqlite_support import connections_of
from tests.support import (
    MUTATIONS,
    ManualClock,
    acquire,
    commit_request,
    floor,
    in_threads,
    open_files,
    open_store,
    operate,
    operation_names,
    operation_requests,
    write_locked,
)


def test_reads_write_nothing_and_wait_for_nobody(
    path: Path, clock: ManualClock, store: Broker
) -> None:
    requests = operation_requests(store, clock)
    clock.advance(1)
    before, now = contents(path), floor(path)
    with write_locked(path):
        for name in operation_names() - MUTATIONS:
            operate(store, name, requests[name])
    assert (contents(path), floor(path)) == (before, now)


def test_many_threads_read_while_others_write(store: Broker) -> None:
    lease = acquire(store)
    done = threading.Event()
    seen: list[int] = []

    def write() -> None:
        try:
            for number in range(40):
                store.commit(commit_request(lease, f"m{number}", expectedRevision=number))
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            revision = store.get_stream_revision({"streamId": "stream"})
            events = store.read_events({"streamId": "stream"})
            assert [each.revision for each in events] == list(range(1, len(events) + 1))
            assert len(events) >= revision
            seen.append(revision)

    in_threads(write, read, read, read)
    assert store.get_stream_revision({"streamId": "stream"}) == 40
    assert seen


def test_a_read_that_is_running_when_the_store_closes_gives_its_connection_back(
    path: Path, clock: ManualClock
) -> None:
    store = open_store(path, clock)
    inside, go_on = threading.Event(), threading.Event()

    def slow(_transaction: Any) -> str:
        inside.set()
        assert go_on.wait(10)
        return "read"

    answers: list[str] = []
    reading = threading.Thread(target=lambda: answers.append(store._read(lambda: slow)))
    reading.start()
    assert inside.wait(10)
    store.close()
    go_on.set()
    reading.join()
    assert answers == ["read"]
    assert open_files(path) == []


def test_a_connection_that_is_kept_takes_nobodys_place(path: Path, clock: ManualClock) -> None:
    with open_store(path, clock, busy_timeout_ms=0) as store, ExitStack() as held:
        store.get_stream_revision({"streamId": "stream"})
        with contextlib.suppress(PoolTimeout):
            while True:
                held.enter_context(store.engine.connect())
        assert store.get_stream_revision({"streamId": "stream"}) == 0
        with pytest.raises(DatabaseBusy):  # for there is one such connection, and it is in use
            store._read(lambda: lambda _: store.table_names())


def test_only_a_few_connections_are_kept(store: Broker) -> None:
    opened: list[sqlite3.Connection] = []
    together = threading.Barrier(9)

    def note(transaction: Transaction) -> None:
        opened.append(transaction.channel.connection)
        together.wait(10)

    in_threads(*[lambda: store._read(lambda: note)] * 9)
    store.engine.dispose()  # which closes those that went back into the pool
    assert len(opened) == 9
    assert sum(map(is_open, opened)) == 5
    store.close()
    assert not any(map(is_open, opened))


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1").close()
    except sqlite3.ProgrammingError:
        return False
    return True


def test_a_pause_closes_what_is_kept_and_lets_nothing_more_be_kept(
    path: Path, store: Broker
) -> None:
    reader = connections_of(store)._reader
    store._read(lambda: lambda _: store.table_names())  # two at a time, and so two are kept
    inside, go_on = threading.Event(), threading.Event()
    used: list[sqlite3.Connection] = []

    def slow(transaction: Transaction) -> None:
        used.append(transaction.channel.connection)
        inside.set()
        assert go_on.wait(10)

    reading = threading.Thread(target=lambda: store._read(lambda: slow))
    reading.start()
    assert inside.wait(10)
    assert not reader.pause(0)
    go_on.set()
    reading.join()
    assert not any(map(is_open, used))
    assert connections_of(store).writes.pause(0)
    assert reader.pause(0)
    store.engine.dispose()
    assert open_files(path) == []
    connections_of(store).resume()
    assert store.table_names()


def test_a_read_that_fails_leaves_no_snapshot_to_the_next(path: Path, store: Broker) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))

    def fail(transaction: Transaction) -> None:
        assert transaction.channel.one(Statement(text("SELECT 1 FROM streams")))
        raise sqlite3.OperationalError

    with pytest.raises(DatabaseError):
        store._read(lambda: fail)
    store.commit(commit_request(lease, "more", expectedRevision=1))
    assert store.get_stream_revision({"streamId": "stream"}) == 2
    with raw(path) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)


def test_reads_wait_for_a_connection_side_by_side_and_no_longer_than_they_were_told(
    path: Path, clock: ManualClock
) -> None:
    def find_it_busy() -> None:
        with pytest.raises(DatabaseBusy):
            store.get_stream_revision({"streamId": "stream"})

    with open_store(path, clock, busy_timeout_ms=200) as store:
        with ExitStack() as held:
            with contextlib.suppress(PoolTimeout):
                while True:
                    held.enter_context(store.engine.connect())
            began = time.monotonic()
            in_threads(*[find_it_busy] * 8)
            took = time.monotonic() - began
        assert store.get_stream_revision({"streamId": "stream"}) == 0
    assert 0.2 <= took < 8 * 0.2


def test_in_the_child_of_a_fork_the_connections_that_were_kept_are_neither_used_nor_closed(
    store: Broker,
) -> None:
    store.table_names()
    reader = connections_of(store)._reader
    (kept,) = reader._kept
    reader.forget()
    assert reader._kept == []
    store.table_names()
    reader.close()
    assert kept.dbapi_connection is not None
    assert kept.cursor().execute("SELECT 1").fetchone() == (1,)
