"""What a group takes: no statement more than it must, and nothing that is kept alive by it."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from broker import Broker
from broker.errors import (
    IdempotencyConflict,
    StaleLease,
)
from broker.messages import Lease
from broker.transaction import Transaction, Write
from tests.failing_support import FAILING, acquiring, good, prepared
from tests.group_support import (
    control_statements,
    grouped,
    queue_of,
    ready,
    together,
)
from tests.places import raw
from tests.sqlite.test_writer import VIOLATE_AT_COMMIT
from tests.support import ManualClock, acquire, commit_request, floor, outbox_message


def traced(store: Broker, work: Callable[[], object]) -> list[str]:
    """The statements that the writer's connection executes meanwhile, by their first words."""
    channel = queue_of(store)._writer._channel
    assert channel is not None
    statements: list[str] = []
    channel.connection.set_trace_callback(statements.append)
    work()
    channel.connection.set_trace_callback(None)
    # Once for each row, and for each trigger.
    return [
        each for each, _ in itertools.groupby(" ".join(each.split()[:3]) for each in statements)
    ]


def test_a_lone_caller_takes_no_statement_more_than_its_own(
    store: Broker, clock: ManualClock
) -> None:
    lease = acquire(store)
    clock.advance(5)
    request = commit_request(lease, outbox=[outbox_message("o")])
    assert traced(store, lambda: store.commit(request)) == [
        "BEGIN IMMEDIATE",
        "SELECT (SELECT metadata.value",
        "UPDATE metadata SET",
        "INSERT INTO streams",
        "INSERT INTO inbox",
        "INSERT INTO events",
        "INSERT INTO outbox",
        "COMMIT",
    ]


def test_a_group_takes_one_transaction_and_one_clock_write(
    store: Broker, clock: ManualClock
) -> None:
    writes = [acquiring(name) for name in "abcde"]
    clock.advance(5)
    statements = traced(store, lambda: grouped(queue_of(store), writes))
    assert statements[0] == "BEGIN IMMEDIATE"
    assert statements[-1] == "COMMIT"
    assert statements.count("UPDATE metadata SET") == 1
    assert statements.count("INSERT INTO actor_leases") == 5
    assert len(statements) == 3 + 2 * 5


def test_a_refusal_by_judging_costs_the_others_no_second_try(store: Broker, path: Path) -> None:
    made = prepared(store, path)
    with control_statements() as statements:
        answers = grouped(
            queue_of(store), [FAILING["stale lease"][1](store, made["bad"]), *good(store, made)]
        )
    assert isinstance(answers[0], StaleLease)
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"]


def test_the_writes_of_a_group_have_one_time(store: Broker, path: Path, clock: ManualClock) -> None:
    def let_time_pass(_transaction: Transaction) -> None:
        clock.advance(500)

    first, _, second = grouped(
        queue_of(store), [acquiring("a"), Write(let_time_pass), acquiring("b")]
    )
    assert (first.acquired_at, second.acquired_at, floor(path)) == (1_000, 1_000, "1000")


class Surprise(Exception):
    """An error that no module of the store knows."""


class Kept:
    """Something of which one can tell whether it is still there."""


def keeping(kept: Kept) -> Write[Kept]:
    return Write(lambda _transaction: kept)


def raising(kind: type[Exception]) -> Write[None]:
    def apply(_transaction: Transaction) -> None:
        raise kind("for this test")

    return Write(apply)


def test_nothing_of_a_group_is_kept_alive_by_a_cycle(store: Broker, path: Path) -> None:
    made = prepared(store, path)
    seen: list[weakref.ref[Any]] = []

    def write_and_forget() -> None:
        kept = Kept()
        writes: list[Write[Any]] = [
            keeping(kept),
            acquiring("new"),
            raising(StaleLease),
            FAILING["event id"][1](store, made["bad"]),
            FAILING["trigger that aborts"][1](store, made["bad"]),
            raising(Surprise),
            keeping(kept),
        ]
        answers = together(store, *[partial(queue_of(store).run, ready(write)) for write in writes])
        assert len(set(map(type, answers))) > 1
        seen.extend(weakref.ref(answer) for answer in answers if not isinstance(answer, Lease))
        seen.extend(weakref.ref(write.apply) for write in writes)

    gc.collect()
    gc.disable()
    try:
        write_and_forget()
        with raw(path) as connection:
            connection.execute(VIOLATE_AT_COMMIT)
        write_and_forget()
        alive = [each() for each in seen if each() is not None]
    finally:
        gc.enable()
    assert alive == []


def test_an_error_that_is_kept_keeps_nothing_of_the_others(store: Broker, path: Path) -> None:
    made = prepared(store, path)
    result = keeping(Kept())
    other = weakref.ref(result.apply)
    writes: list[Write[Any]] = [
        acquiring("leader"),
        result,
        FAILING["event id"][1](store, made["bad"]),
    ]
    del result
    answers = together(store, *[partial(queue_of(store).run, ready(write)) for write in writes])
    error = answers.pop()
    del writes, answers
    gc.collect()
    assert isinstance(error, IdempotencyConflict)
    assert other() is None
