"""The end of a queue, and its forks: who waits is told, who runs is waited for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker import Broker
from broker.errors import (
    ConfigurationError,
    StoreClosed,
)
from broker.transaction import Transaction, Write
from tests.group_support import (
    PATIENCE,
    Caller,
    acquiring,
    actors,
    ask,
    assert_idle,
    control_statements,
    crowd,
    joined,
    outcome_of,
    pending,
    queue_of,
)
from tests.places import rows
from tests.support import ManualClock, acquire, open_files, open_store
from tests.test_forking import in_child


@pytest.fixture
def blocked(path: Path, clock: ManualClock) -> Iterator[tuple[Broker, threading.Event, Caller]]:
    """A store in the middle of the write of "running", which goes on when it is let."""
    inside, go_on = threading.Event(), threading.Event()
    calls = itertools.count()

    def nonce() -> str:
        if next(calls) == 0:
            inside.set()
            assert go_on.wait(PATIENCE)
        return "nonce"

    with open_store(path, clock, nonce=nonce) as store:
        running = Caller(ask(store, "running"))
        assert inside.wait(PATIENCE)
        yield store, go_on, running
        go_on.set()


Blocked = tuple[Broker, threading.Event, Caller]


def when_it_waits(patch: pytest.MonkeyPatch, store: Broker, happens: Callable[[], object]) -> None:
    """Let something happen when a `close` or `pause` waits for the group that is running."""
    condition = queue_of(store)._nobody_leads
    wait_for = condition.wait_for

    def tell(predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        happens()
        return wait_for(predicate, timeout)

    patch.setattr(condition, "wait_for", tell)


def test_close_refuses_who_waits_at_once_and_waits_for_who_runs(
    blocked: Blocked, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, go_on, running = blocked
    waiting = [joined(store, name) for name in "ab"]
    is_closing = threading.Event()
    when_it_waits(monkeypatch, store, is_closing.set)
    closing = Caller(store.close)
    assert is_closing.wait(PATIENCE)

    for caller in waiting:
        assert isinstance(caller.outcome(), StoreClosed)
    assert closing.is_alive()
    assert running.is_alive()

    go_on.set()
    assert running.outcome().epoch == 1
    assert closing.outcome() is None
    assert actors(path) == ["running"]
    assert open_files(path) == []
    assert_idle(store, path)


def test_an_interrupted_close_has_told_who_waited_and_can_be_repeated(
    blocked: Blocked, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, go_on, running = blocked
    waiting = joined(store, "waiting")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        when_it_waits(patch, store, interrupt)
        assert isinstance(outcome_of(store.close), KeyboardInterrupt)
    assert isinstance(waiting.outcome(), StoreClosed)
    go_on.set()
    assert running.outcome().epoch == 1
    store.close()
    assert open_files(path) == []
    assert_idle(store, path)


def test_close_at_the_same_time_closes_once(
    blocked: Blocked, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, go_on, running = blocked
    is_closing = threading.Semaphore(0)
    when_it_waits(monkeypatch, store, is_closing.release)
    closing = [Caller(store.close), Caller(store.close)]
    for _ in closing:
        assert is_closing.acquire(timeout=PATIENCE)
    go_on.set()
    assert [caller.outcome() for caller in closing] == [None, None]
    assert running.outcome().epoch == 1
    assert open_files(path) == []
    assert_idle(store, path)


def test_close_finds_a_leader_that_has_not_begun_and_waits_for_it(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, leader = queue_of(store), pending(acquiring("leader"))
    assert queue.enter(leader)
    follower = joined(store, "follower")
    is_closing = threading.Event()
    when_it_waits(monkeypatch, store, is_closing.set)
    closing = Caller(store.close)
    assert is_closing.wait(PATIENCE)
    assert isinstance(follower.outcome(), StoreClosed)
    queue.lead(leader)
    assert closing.outcome() is None
    assert leader.outcome().actor_id == "leader"
    assert actors(path) == ["leader"]
    assert_idle(store, path)


def test_a_close_tells_also_those_whose_leader_is_interrupted(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing: list[Caller] = []
    is_closing = threading.Event()
    when_it_waits(monkeypatch, store, is_closing.set)

    def close_and_be_interrupted(_transaction: Transaction) -> None:
        closing.append(Caller(store.close))
        assert is_closing.wait(PATIENCE)
        raise KeyboardInterrupt

    with crowd(store) as waiting:
        leader = waiting.join(lambda: queue_of(store).run(lambda: Write(close_and_be_interrupted)))
        follower = waiting.join(ask(store, "follower"))
    assert isinstance(leader.outcome(), KeyboardInterrupt)
    assert isinstance(follower.outcome(), StoreClosed)
    assert closing[0].outcome() is None
    assert actors(path) == []
    assert_idle(store, path)


# -------------------------------------------------------------------------------------------- forks


def test_a_fork_waits_for_the_group_that_runs_and_who_waits_goes_on_in_the_parent_alone(
    blocked: Blocked, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, go_on, running = blocked
    waiting = joined(store, "waiting")
    when_it_waits(monkeypatch, store, go_on.set)

    def child() -> None:
        assert not queue_of(store)._waiting
        assert "running" in actors(path)
        assert acquire(store, "child", "child").epoch == 1
        assert_idle(store, path)

    assert in_child(child) == 0
    assert running.outcome().epoch == 1
    assert waiting.outcome().epoch == 1
    assert sorted(actors(path)) == ["child", "running", "waiting"]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert_idle(store, path)


def test_a_fork_that_waits_in_vain_spoils_the_store_for_the_child_alone(
    path: Path, clock: ManualClock
) -> None:
    def child() -> None:
        with pytest.raises(ConfigurationError, match="forked while the store was in use"):
            acquire(store)

    with open_store(path, clock, busy_timeout_ms=20) as store:
        queue_of(store)._patience = PATIENCE
        with crowd(store) as waiting:
            callers = [waiting.join(ask(store, name)) for name in "ab"]
            assert in_child(child) == 0
        assert [caller.outcome().actor_id for caller in callers] == ["a", "b"]
        assert actors(path) == ["a", "b"]
        assert_idle(store, path)


def test_who_comes_during_a_pause_waits_for_its_end(store: Broker, path: Path) -> None:
    queue = queue_of(store)
    assert queue.pause(0)
    callers = [joined(store, name) for name in "ab"]
    assert actors(path) == []
    with control_statements() as statements:
        queue.resume()
        assert [caller.outcome().actor_id for caller in callers] == ["a", "b"]
    assert statements[-2:] == ["BEGIN IMMEDIATE", "COMMIT"]
    assert statements.count("COMMIT") == 1
    assert_idle(store, path)
