"""The road of reads: side by side, writing nothing, waiting for nobody but for a connection."""

from __future__ import annotations

import contextlib
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import TimeoutError as PoolTimeout

from broker import Broker
from broker.errors import DatabaseBusy
from tests.support import (
    MUTATIONS,
    ManualClock,
    acquire,
    commit_request,
    contents,
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
