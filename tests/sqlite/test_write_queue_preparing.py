"""Who prepares a write that waits: the leader, for all who come along."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from broker import Broker
from broker.errors import InvalidRequest
from broker.sqlite.pending import Pending
from broker.sqlite.write_queue import MOST_BEYOND_A_LIGHT_LEADER
from broker.transaction import Write
from tests.group_support import actors, ask, assert_idle, control_statements, queue_of, together
from tests.support import TTL_MS, is_write_locked

HEAVY = MOST_BEYOND_A_LIGHT_LEADER + 1


def preparing(notes: list[str], name: str, weight: int = 0) -> Callable[[], Write[str]]:
    """What makes a write, and notes on which thread that was."""

    def make() -> Write[str]:
        notes.append(f"{name} by {threading.current_thread().name}")
        return Write(lambda _transaction: name, weight=weight)

    return make


def test_who_comes_first_prepares_for_all_who_wait(store: Broker) -> None:
    notes: list[str] = []

    def work(name: str) -> Callable[[], str]:
        def call() -> str:
            threading.current_thread().name = name
            return queue_of(store).run(preparing(notes, name))

        return call

    assert together(store, *map(work, "abc")) == ["a", "b", "c"]
    assert notes == ["a by a", "b by a", "c by a"]


def test_a_lone_caller_prepares_before_it_takes_any_lock(store: Broker, path: Path) -> None:
    def make() -> Write[bool]:
        was_locked = is_write_locked(path) or queue_of(store)._is_led
        return Write(lambda _transaction: was_locked)

    assert queue_of(store).run(make) is False


def test_one_that_cannot_be_prepared_has_its_own_error_and_nobody_else_notices(
    store: Broker, path: Path
) -> None:
    bad = {"actorId": "", "holderId": "holder", "ttlMs": TTL_MS}
    works = [ask(store, "a"), lambda: store.acquire_lease(bad), ask(store, "c")]
    with control_statements() as statements:
        answers = together(store, *works)
    assert type(answers[1]) is InvalidRequest
    assert answers[1].details == {"field": "actorId"}
    assert [answers[0].actor_id, answers[2].actor_id] == ["a", "c"] == actors(path)
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"]
    assert_idle(store, path)


def test_who_leaves_the_program_while_prepared_by_another_leaves_alone(
    store: Broker, path: Path
) -> None:
    def leave() -> Write[None]:
        raise SystemExit(3)

    works = [ask(store, "a"), lambda: queue_of(store).run(leave), ask(store, "c")]
    first, left, last = together(store, *works)
    assert isinstance(left, SystemExit)
    assert [first.actor_id, last.actor_id] == ["a", "c"] == actors(path)
    assert_idle(store, path)


def test_a_leader_that_cannot_be_prepared_lets_the_next_one_lead(store: Broker, path: Path) -> None:
    bad = {"actorId": "", "holderId": "holder", "ttlMs": TTL_MS}
    first, *others = together(store, lambda: store.acquire_lease(bad), ask(store, "b"))
    assert type(first) is InvalidRequest
    assert [lease.actor_id for lease in others] == ["b"] == actors(path)
    assert_idle(store, path)


def test_nobody_prepares_for_those_who_are_too_heavy_to_come_along(store: Broker) -> None:
    notes: list[str] = []
    queue = queue_of(store)
    weights = {"a": 0, "b": HEAVY, "c": 0}
    group = [Pending(preparing(notes, name, weights[name]), queue.deadline()) for name in "abc"]
    for each in group:
        queue.enter(each)
    queue.lead(group[0])
    assert [note[0] for note in notes] == ["a", "b"]
    assert [each.is_settled for each in group] == [True, False, False]
    for each in group[1:]:
        queue.lead(each)
    assert [note[0] for note in notes] == ["a", "b", "c"]
