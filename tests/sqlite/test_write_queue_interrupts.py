"""Interrupts: whoever is interrupted, the others go on, and nothing is left locked."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.errors import (
    OutcomeUnknown,
)
from broker.messages import Lease
from broker.sqlite.pending import Pending
from broker.transaction import Transaction, Write
from tests.group_support import (
    acquiring,
    actors,
    ask,
    assert_idle,
    crowd,
    interrupt_at,
    joined,
    outcome_of,
    pending,
    queue_of,
    ready,
    together,
)
from tests.support import (
    acquire,
)


def interrupt(_transaction: Transaction) -> None:
    raise KeyboardInterrupt


def test_a_leader_that_is_interrupted_takes_nobody_with_it(store: Broker, path: Path) -> None:
    with crowd(store) as waiting:
        leader = waiting.join(lambda: queue_of(store).run(lambda: Write(interrupt)))
        followers = [waiting.join(ask(store, name)) for name in "ab"]
    assert isinstance(leader.outcome(), KeyboardInterrupt)
    assert [caller.outcome().actor_id for caller in followers] == ["a", "b"]
    assert actors(path) == ["a", "b"]
    assert_idle(store, path)


def test_a_follower_that_interrupts_its_leader_is_interrupted_itself_when_it_leads(
    store: Broker, path: Path
) -> None:
    with crowd(store) as waiting:
        leader = waiting.join(ask(store, "leader"))
        follower = waiting.join(lambda: queue_of(store).run(lambda: Write(interrupt)))
        last = waiting.join(ask(store, "last"))
    assert isinstance(leader.outcome(), KeyboardInterrupt)
    assert isinstance(follower.outcome(), KeyboardInterrupt)
    assert last.outcome().actor_id == "last"
    assert actors(path) == ["last"]
    assert_idle(store, path)


def test_one_that_is_interrupted_while_it_waits_is_not_done(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with crowd(store) as waiting:
        before = waiting.join(ask(store, "before"))
        with monkeypatch.context() as patch:
            patch.setattr(Pending, "wait", interrupted_wait)
            with pytest.raises(KeyboardInterrupt):
                acquire(store, "interrupted", "interrupted")
        after = waiting.join(ask(store, "after"))
    assert [before.outcome().actor_id, after.outcome().actor_id] == ["before", "after"]
    assert actors(path) == ["before", "after"]
    assert_idle(store, path)


def interrupted_wait(_pending: Pending[Any], *, patiently: bool = False) -> bool:
    raise KeyboardInterrupt


def test_one_that_is_interrupted_when_it_is_made_leader_hands_on(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, holder = queue_of(store), pending(acquiring("holder"))
    assert queue.enter(holder)
    followers = []

    def be_made_leader(_pending: Pending[Any], *, patiently: bool = False) -> bool:
        monkeypatch.undo()
        followers.append(joined(store, "follower"))
        queue.abandon(holder)
        raise KeyboardInterrupt

    monkeypatch.setattr(Pending, "wait", be_made_leader)
    with pytest.raises(KeyboardInterrupt):
        queue.run(lambda: acquiring("interrupted"))
    assert followers[0].outcome().actor_id == "follower"
    assert actors(path) == ["follower"]
    assert_idle(store, path)


def test_one_that_was_started_and_interrupted_is_not_led_by_nobody(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is in a group, its thread is interrupted, and so is its leader's before the COMMIT.
    queue = queue_of(store)
    gone, last = pending(acquiring("gone")), pending(acquiring("last"))

    def be_left_and_interrupted(_transaction: Transaction) -> None:
        queue.abandon(gone)
        raise KeyboardInterrupt

    leader = pending(Write(be_left_and_interrupted))
    assert [queue.enter(each) for each in (leader, gone, last)] == [True, False, False]
    with pytest.raises(KeyboardInterrupt):
        queue.lead(leader)
    assert queue._leader is last
    queue.lead(last)
    assert last.outcome().actor_id == "last"
    assert actors(path) == ["last"]
    assert_idle(store, path)


def test_what_was_started_by_then_is_done_though_its_caller_was_interrupted(
    store: Broker, path: Path
) -> None:
    queue = queue_of(store)
    gone = pending(acquiring("gone"))
    leader = pending(Write(lambda _transaction: queue.abandon(gone)))
    assert [queue.enter(leader), queue.enter(gone)] == [True, False]
    queue.lead(leader)
    assert actors(path) == ["gone"]
    assert_idle(store, path)


IS_SETTLED: Any = vars(Pending)["is_settled"]  # the slot


class InterruptedWhenSettled(Pending[Any]):
    """A write whose thread is interrupted when it has just been told that all are stored."""

    @property
    def is_settled(self) -> bool:
        return bool(IS_SETTLED.__get__(self))

    @is_settled.setter
    def is_settled(self, value: bool) -> None:
        IS_SETTLED.__set__(self, value)
        if value:
            raise KeyboardInterrupt


def test_an_interrupt_right_after_the_commit_does_not_let_the_others_be_done_twice(
    store: Broker, path: Path
) -> None:
    queue = queue_of(store)
    leader = InterruptedWhenSettled(ready(acquiring("leader")), queue.deadline())
    follower = pending(acquiring("follower"))
    assert [queue.enter(leader), queue.enter(follower)] == [True, False]
    with pytest.raises(KeyboardInterrupt):
        queue.lead(leader)
    assert isinstance(outcome_of(follower.outcome), OutcomeUnknown)
    assert actors(path) == ["leader", "follower"]
    assert_idle(store, path)


def test_an_interrupt_at_any_point_of_a_lone_write_leaves_the_queue_idle(
    store: Broker, path: Path
) -> None:
    for point in itertools.count(1):
        answer = interrupt_at(point, partial(queue_of(store).run, partial(acquiring, f"{point}")))
        assert_idle(store, path)
        if not isinstance(answer, KeyboardInterrupt):
            break
    assert answer.actor_id == f"{point}"
    assert point > 100
    assert acquire(store).epoch == 1


@pytest.mark.parametrize("position", [0, 1, 2])
def test_an_interrupt_at_any_point_of_a_member_of_a_group_harms_none_of_the_others(
    store: Broker, path: Path, position: int
) -> None:
    for point in itertools.count(1):
        names = [f"{point}-{number}" for number in range(3)]
        works: list[Callable[[], object]] = [
            partial(queue_of(store).run, partial(acquiring, name)) for name in names
        ]
        works[position] = partial(interrupt_at, point, works[position])
        answers = together(store, *works)
        assert_idle(store, path)

        interrupted = answers.pop(position)
        stored = actors(path)
        del names[position]
        for name, answer in zip(names, answers, strict=True):
            assert isinstance(answer, Lease | OutcomeUnknown), (point, answer)
            assert name in stored or isinstance(answer, OutcomeUnknown), point
            assert stored.count(name) <= 1
        if not isinstance(interrupted, KeyboardInterrupt):
            break
    assert interrupted.actor_id == f"{point}-{position}"


def test_one_that_was_woken_twice_leads_once(store: Broker, path: Path) -> None:
    queue, actor = queue_of(store), pending(acquiring("actor"))
    assert queue.enter(actor)
    queue.lead(actor)
    queue.lead(actor)
    assert actor.outcome().actor_id == "actor"
    assert_idle(store, path)
