"""Forks: a child and its parent go on, each with connections of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from broker import Broker
from broker.errors import ConfigurationError
from broker.sqlite.connections import SQLiteConnections as Connections
from tests.places import Place, rows
from tests.support import ManualClock, acquire, commit_request, open_store


def in_child(work: Callable[[], None]) -> int:
    """Do something in a fork of this process; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_and_its_parent_go_on_with_connections_of_their_own(
    store: Broker, place: Place
) -> None:
    lease = acquire(store)
    assert in_child(lambda: child_commits(store, lease)) == 0
    store.commit(commit_request(lease, "parent", expectedRevision=1))
    assert rows(place, "SELECT message_id FROM events ORDER BY rowid") == [("child",), ("parent",)]
    if isinstance(place, Path):
        assert rows(place, "PRAGMA integrity_check") == [("ok",)]


def child_commits(store: Broker, lease: Any) -> None:
    store.commit(commit_request(lease, "child"))


def test_an_idle_fork_costs_next_to_no_time(store: Broker) -> None:
    started = time.monotonic()
    assert in_child(lambda: None) == 0
    assert time.monotonic() - started < 2
    assert acquire(store).epoch == 1


def test_an_interrupt_while_a_fork_is_waited_for_leaves_the_store_going_on(
    path: Path, store: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Connections.pause

    def interrupted(connections: Connections) -> bool:
        pause(connections)
        raise KeyboardInterrupt

    def child() -> None:
        with pytest.raises(ConfigurationError, match="forked while the store was in use"):
            acquire(store)

    ignored: list[type[BaseException]] = []
    with monkeypatch.context() as patch:
        patch.setattr(Connections, "pause", interrupted)
        patch.setattr(sys, "unraisablehook", lambda raised: ignored.append(raised.exc_type))
        assert in_child(child) == 0
    assert ignored == [KeyboardInterrupt]  # as Python does with whatever a hook of a fork raises
    assert acquire(store).epoch == 1
    assert in_child(lambda: None) == 0


def test_a_child_of_a_fork_in_the_middle_of_a_read_is_told_to_open_anew(
    path: Path, clock: ManualClock
) -> None:
    def child() -> None:
        with pytest.raises(ConfigurationError, match="forked while the store was in use"):
            acquire(store)

    with open_store(path, clock, busy_timeout_ms=20) as store:
        assert store._read(lambda: lambda _transaction: in_child(child)) == 0
        assert acquire(store).epoch == 1


def test_a_session_on_the_stores_engine_is_not_lost_by_a_fork(store_that_is_hasty: Broker) -> None:
    store = store_that_is_hasty
    with Session(store.engine) as session:
        acquire(store.unit_of_work(session))
        assert in_child(lambda: None) == 0
        session.commit()
    assert store.get_lease({"actorId": "actor"}) is not None


@pytest.fixture
def store_that_is_hasty(place: Place, clock: ManualClock) -> Iterator[Broker]:
    with open_store(place, clock, busy_timeout_ms=20) as opened:
        yield opened
