"""Groups of writes: one that fails undoes only itself, and each is told its own outcome."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event as sqlalchemy_event

from broker import Broker
from broker.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    IdempotencyConflict,
    OutcomeUnknown,
    RevisionConflict,
)
from broker.messages import CommitResult
from broker.sqlite.channel import SQLiteChannel
from broker.sqlite.pending import Pending
from broker.transaction import Transaction, Write
from tests.failing_support import FAILING, acquiring, committing, copied, good, prepared
from tests.group_support import (
    actors,
    assert_idle,
    control_statements,
    crowd,
    grouped,
    interrupt_at,
    outcome_of,
    pending,
    queue_of,
    ready,
)
from tests.places import contents, raw, rows
from tests.sqlite.test_writer import VIOLATE_AT_COMMIT, refuse_rollback_to
from tests.support import ManualClock, acquire, break_commit, floor, is_write_locked, open_store

NONCE = "nonce"


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[Broker]:
    """A store whose nonces are all the same, so that two of them can have the same contents."""
    with open_store(path, clock, nonce=lambda: NONCE) as opened:
        yield opened


# ------------------------------------------------------------------------------ one of them fails


def everything(path: Path) -> dict[bytes, list[tuple[Any, ...]]]:
    """All rows, the clock floor included, of which some may not be UTF-8."""
    with raw(path) as connection:
        connection.text_factory = bytes
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: connection.execute(f"SELECT * FROM {name.decode()} ORDER BY 1").fetchall()
            for (name,) in names
        }


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("name", FAILING)
def test_one_that_fails_undoes_only_itself(
    store: Broker, path: Path, clock: ManualClock, name: str, position: int
) -> None:
    made = prepared(store, path)
    kind, make = FAILING[name]
    writes: list[Write[Any]] = [*good(store, made)]
    writes.insert(position, make(store, made["bad"]))
    clock.advance(5)
    with raw(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = copied(path, path.with_name("other.db"))

    answers = grouped(queue_of(store), writes)

    failed = answers.pop(position)
    assert type(failed) is kind
    with open_store(copy, clock, nonce=lambda: NONCE) as other:
        assert answers == [other._connections.write(ready(write)) for write in good(other, made)]
    assert everything(path) == everything(copy)
    assert_idle(store, path)
    assert acquire(store, "new", "new").epoch == 1


def test_an_error_of_reading_or_writing_the_file_fails_one_and_the_others_are_done_again(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepared(store, path)
    put_each = SQLiteChannel.put_each
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE

    def broken(channel: SQLiteChannel, statement: Any, rows: Any) -> None:
        if any("ioerr" in row for row in rows):
            raise failure
        put_each(channel, statement, rows)

    monkeypatch.setattr(SQLiteChannel, "put_each", broken)
    writes = [
        good(store, made)[0],
        committing(store, made["bad"], "ioerr", expectedRevision=1),
        good(store, made)[1],
    ]
    with control_statements() as statements:
        answers = grouped(queue_of(store), writes)
    assert [type(answer) for answer in answers] == [CommitResult, DatabaseUnavailable, CommitResult]
    assert answers[1].__cause__ is failure
    assert statements.count("BEGIN IMMEDIATE") == 3  # together, one by one, without the bad one
    assert_idle(store, path)


class Unwanted(Pending[Any]):
    """A write that nobody wants any more."""

    @property
    def is_wanted(self) -> bool:
        return False


def test_what_nobody_wants_any_more_is_not_done_with_the_others(store: Broker, path: Path) -> None:
    made = prepared(store, path)
    before = len(rows(path, "SELECT * FROM inbox"))
    queue = queue_of(store)
    writes = [good(store, made)[0], committing(store, made["bad"], "unwanted", expectedRevision=1)]
    group = [pending(writes[0]), Unwanted(ready(writes[1]), queue.deadline())]
    assert [queue.enter(each) for each in group] == [True, False]
    queue.lead(group[0])
    assert [each.is_settled for each in group] == [True, True]
    assert len(rows(path, "SELECT * FROM inbox")) == before + 1
    assert_idle(store, path)


def test_a_group_that_nobody_wants_leaves_nothing_locked(store: Broker, path: Path) -> None:
    queue = queue_of(store)
    alone = Unwanted(ready(acquiring("unwanted")), queue.deadline())
    assert queue.enter(alone)
    queue.lead(alone)
    assert alone.is_settled
    assert actors(path) == []
    assert_idle(store, path)


def test_all_may_fail_each_for_a_reason_of_its_own(store: Broker, path: Path) -> None:
    made = prepared(store, path)
    before = contents(path)
    kinds, failing = zip(
        *[FAILING[name] for name in FAILING if name not in {"row", "text", "full disk"}],
        strict=True,
    )
    answers = grouped(queue_of(store), [make(store, made["bad"]) for make in failing])
    assert [type(answer) for answer in answers] == list(kinds)
    assert contents(path) == before
    assert_idle(store, path)


def test_a_nonce_that_cannot_be_drawn_fails_one_and_no_nonce_is_given_twice(
    path: Path, clock: ManualClock
) -> None:
    drawn: list[str] = []

    def nonce() -> str:
        drawn.append(f"nonce-{len(drawn) + 1}")
        if len(drawn) == 2:
            raise ZeroDivisionError
        return drawn[-1]

    with open_store(path, clock, nonce=nonce) as store:
        answers = grouped(queue_of(store), [acquiring(name) for name in "abc"])
        assert isinstance(answers.pop(1), ZeroDivisionError)
        # They were drawn anew when it was done again; those of the first try were never given out.
        assert [lease.nonce for lease in answers] == ["nonce-3", "nonce-4"]
        assert rows(path, "SELECT actor_id, nonce FROM actor_leases ORDER BY 1") == [
            ("a", "nonce-3"),
            ("c", "nonce-4"),
        ]
        assert_idle(store, path)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_where_a_refused_commit_cannot_be_undone_alone_the_others_are_told_the_truth(
    store: Broker, path: Path, position: int
) -> None:
    def refuse(driver: Any, _record: object = None) -> None:
        driver.set_authorizer(refuse_rollback_to)

    made = prepared(store, path)
    channel = queue_of(store)._writer._channel
    assert channel is not None
    refuse(channel.connection)
    sqlalchemy_event.listen(store.engine, "connect", refuse)
    writes: list[Write[Any]] = [*good(store, made)]
    writes.insert(position, FAILING["event id"][1](store, made["bad"]))

    answers = grouped(queue_of(store), writes)

    assert isinstance(answers.pop(position), IdempotencyConflict)
    assert [answer.message_id for answer in answers] == ["first", "second"]
    stored = rows(path, "SELECT message_id FROM inbox ORDER BY 1")
    assert stored == [("first",), ("owner",), ("second",), ("used",)]
    assert_idle(store, path)


# ---------------------------------------------------------------------------- COMMIT is refused


def test_a_commit_that_sqlite_refuses_is_told_to_each_by_an_error_of_its_own(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    made = prepared(store, path)
    with raw(path) as connection:
        connection.execute(VIOLATE_AT_COMMIT)
    before, now = contents(path), floor(path)
    clock.advance(5)
    refused = FAILING["revision"][1](store, made["bad"])
    failed = FAILING["error in the middle"][1](store, made["bad"])

    answers = grouped(queue_of(store), [good(store, made)[0], refused, failed, acquiring("new")])

    assert isinstance(answers.pop(2), ZeroDivisionError)
    assert [type(answer) for answer in answers] == [DatabaseError] * 3
    assert all("FOREIGN KEY" in str(answer) for answer in answers)
    assert len(set(map(id, answers))) == 3
    assert all(isinstance(answer.__cause__, sqlite3.IntegrityError) for answer in answers)
    assert (contents(path), floor(path)) == (before, now)
    assert_idle(store, path)
    with raw(path) as connection:
        connection.execute("DROP TRIGGER violate")
    assert acquire(store, "new", "new").epoch == 1


BUSY = sqlite3.OperationalError("database is locked")
BUSY.sqlite_errorcode = sqlite3.SQLITE_BUSY
UNREADABLE = sqlite3.OperationalError("disk I/O error")
UNREADABLE.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC


@pytest.mark.parametrize(
    ("error", "kind", "takes_effect"),
    [
        (BUSY, DatabaseBusy, False),
        (UNREADABLE, OutcomeUnknown, False),
        (UNREADABLE, OutcomeUnknown, True),
        (ConnectionResetError("lost"), OutcomeUnknown, False),
        (ConnectionResetError("lost"), OutcomeUnknown, True),
    ],
)
def test_a_commit_that_fails_says_to_all_whether_the_outcome_is_known_and_a_retry_settles_it(
    store: Broker,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: type[Exception],
    takes_effect: bool,
) -> None:
    made = prepared(store, path)
    refused = FAILING["revision"][1](store, made["bad"])
    break_commit(monkeypatch, error, takes_effect=takes_effect)
    answers = grouped(queue_of(store), [refused, *good(store, made)])
    assert [type(answer) for answer in answers] == [kind] * 3
    assert len(set(map(id, answers))) == 3
    assert_idle(store, path)
    again = grouped(queue_of(store), [refused, *good(store, made)])
    assert isinstance(again[0], RevisionConflict)
    assert [answer.recovered for answer in again[1:]] == [takes_effect] * 2


@pytest.mark.parametrize("takes_effect", [True, False])
def test_who_is_in_a_group_whose_commit_is_interrupted_cannot_know_and_who_is_not_goes_on(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    late = []

    def let_one_come(_transaction: Transaction) -> None:
        late.append(waiting.join(lambda: acquire(store, "late", "late")))

    break_commit(monkeypatch, KeyboardInterrupt(), takes_effect=takes_effect)
    with crowd(store) as waiting:
        leader = waiting.join(lambda: queue_of(store).run(lambda: Write(let_one_come)))
        follower = waiting.join(lambda: acquire(store, "follower", "follower"))
        waiting.let_go()
        assert isinstance(leader.outcome(), KeyboardInterrupt)
        assert isinstance(follower.outcome(), OutcomeUnknown)
        assert late[0].outcome().actor_id == "late"
    expected = [("follower",), ("late",)] if takes_effect else [("late",)]
    assert rows(path, "SELECT actor_id FROM actor_leases ORDER BY 1") == expected
    assert_idle(store, path)


# ------------------------------------------------------------------------------------- interrupts

CONTROLS = [
    "BEGIN IMMEDIATE",
    "ROLLBACK",
    "SAVEPOINT broker_effects",
    "RELEASE SAVEPOINT broker_effects",
    "ROLLBACK TO SAVEPOINT broker_effects",
    "COMMIT",
]


@pytest.mark.parametrize("sql", CONTROLS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("count", [1, 2])
def test_an_interrupt_round_any_control_statement_of_a_second_try_leaves_no_lock(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, when: str, count: int
) -> None:
    made, control = prepared(store, path), SQLiteChannel.control
    counts = iter(range(1, count))

    def interrupted(channel: SQLiteChannel, statement: str) -> None:
        is_now = statement == sql and next(counts, None) is None
        if is_now and when == "before":
            raise KeyboardInterrupt
        control(channel, statement)
        if is_now:
            monkeypatch.undo()
            raise KeyboardInterrupt

    queue = queue_of(store)
    writes = [FAILING["event id"][1](store, made["bad"]), *good(store, made)]
    group = [Pending(ready(write), queue.deadline()) for write in writes]
    assert [queue.enter(each) for each in group] == [True, False, False]
    monkeypatch.setattr(SQLiteChannel, "control", interrupted)
    first = outcome_of(lambda: queue.lead(group[0]))
    monkeypatch.undo()

    assert not is_write_locked(path)
    for each in group[1:]:
        if queue._leader is each:
            queue.lead(each)
    answers = [outcome_of(each.outcome) for each in group[1:]]
    if sql == "COMMIT" and first is not None:
        assert [type(answer) for answer in answers] == [OutcomeUnknown] * 2
    else:
        assert [answer.message_id for answer in answers] == ["first", "second"]
    stored = rows(path, "SELECT message_id FROM inbox WHERE message_id IN ('first', 'second')")
    assert len(stored) == (0 if sql == "COMMIT" and first is not None and when == "before" else 2)
    assert_idle(store, path)


@pytest.mark.parametrize("name", ["event id", "error in the middle", "trigger that rolls back"])
def test_an_interrupt_at_any_point_of_a_group_that_is_done_again_harms_nobody_else(
    store: Broker, path: Path, name: str
) -> None:
    made, queue = prepared(store, path), queue_of(store)
    leases_of = {number: acquire(store, f"{number}", f"{number}") for number in range(2)}
    revisions = {0: 0, 1: 0}
    for point in itertools.count(1):
        writes = [
            committing(store, leases_of[n], f"{point}-{n}", expectedRevision=revisions[n])
            for n in (0, 1)
        ]
        writes.insert(1, FAILING[name][1](store, made["bad"]))
        group = [Pending(ready(write), queue.deadline()) for write in writes]
        for each in group:
            queue.enter(each)
        first = interrupt_at(point, partial(queue.lead, group[0]))
        if first is not None:
            queue.abandon(group[0])
        for each in group[1:]:
            if queue._leader is each:
                queue.lead(each)
        assert_idle(store, path)

        stored = {
            n: rows(path, "SELECT message_id FROM inbox WHERE message_id = ?", f"{point}-{n}")
            for n in (0, 1)
        }
        answer = outcome_of(group[2].outcome)
        assert isinstance(answer, CommitResult | OutcomeUnknown), (point, answer)
        assert not isinstance(answer, CommitResult) or not answer.recovered, point
        assert stored[1] or isinstance(answer, OutcomeUnknown), point
        revisions = {n: revisions[n] + len(stored[n]) for n in (0, 1)}
        if first is None:
            break
    assert point > 150
    assert outcome_of(group[0].outcome).message_id == f"{point}-0"
    assert isinstance(outcome_of(group[1].outcome), FAILING[name][0])
