"""The writer: what a lone write leaves behind, whichever way it ends, and other processes."""

from __future__ import annotations

import contextlib
import copy
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Pool
from sqlalchemy import event as sqlalchemy_event

from broker import Broker
from broker.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    IdempotencyConflict,
    LeaseUnavailable,
    Refusal,
    RevisionConflict,
    StaleLease,
)
from broker.messages import Lease
from broker.sqlite.channel import SQLiteChannel
from tests.places import contents, raw, rows, url_of
from tests.support import (
    TTL_MS,
    ManualClock,
    acquire,
    commit_request,
    event,
    floor,
    in_threads,
    is_write_locked,
    locked_by_a_process,
    open_files,
    open_store,
    outbox_message,
    runtime_event,
    write_locked,
)

LEASE_REQUEST = {"actorId": "new", "holderId": "holder", "ttlMs": TTL_MS}

# An outbox row whose message does not exist: its deferred foreign key makes COMMIT fail.
VIOLATE_AT_COMMIT = """
CREATE TRIGGER violate AFTER INSERT ON actor_leases BEGIN
  INSERT INTO outbox VALUES ('orphan', 'nowhere', NULL, 'd', '{}', 1, 1, NULL, 0);
END
"""


@pytest.fixture
def hasty(path: Path, clock: ManualClock) -> Iterator[Broker]:
    """A store that does not wait for others."""
    with open_store(path, clock, busy_timeout_ms=0) as opened:
        yield opened


# --------------------------------------------------------------------------------- how it ends


def test_a_commit_is_there_for_others_when_the_call_returns(store: Broker, path: Path) -> None:
    store.commit(commit_request(acquire(store)))
    assert rows(path, "SELECT message_id FROM inbox") == [("message",)]
    assert not is_write_locked(path)


def test_a_commit_that_sqlite_refuses_leaves_neither_a_lock_nor_a_trace(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    with raw(path) as connection:
        connection.execute(VIOLATE_AT_COMMIT)
    before, now = contents(path), floor(path)
    clock.advance(5)

    with pytest.raises(DatabaseError, match="FOREIGN KEY") as caught:
        acquire(store)

    assert isinstance(caught.value.__cause__, DatabaseError | sqlite3.IntegrityError)
    assert not is_write_locked(path)
    assert (contents(path), floor(path)) == (before, now)
    with raw(path) as connection:
        connection.execute("DROP TRIGGER violate")
    assert acquire(store).epoch == 1


def refusals(store: Broker, lease: Lease) -> dict[str, tuple[type[Refusal], Callable[[], Any]]]:
    def commit(**changes: Any) -> Callable[[], Any]:
        return lambda: store.commit(commit_request(lease, "refused") | changes)

    stale = {"epoch": lease.epoch, "nonce": "wrong"}
    used = [event("fresh"), event("message-event")]
    return {
        "lease taken": (LeaseUnavailable, lambda: acquire(store, "second")),
        "credential": (StaleLease, commit(lease=stale, expectedRevision=1)),
        "revision": (RevisionConflict, commit(expectedRevision=7)),
        "event id": (IdempotencyConflict, commit(expectedRevision=1, events=used)),
        "outbox id": (
            IdempotencyConflict,
            commit(expectedRevision=1, outbox=[outbox_message("new"), outbox_message("outgoing")]),
        ),
        "heartbeat": (
            StaleLease,
            lambda: store.heartbeat_lease({"actorId": "actor", "lease": stale, "ttlMs": 1}),
        ),
    }


@pytest.mark.parametrize(
    "name", ["lease taken", "credential", "revision", "event id", "outbox id", "heartbeat"]
)
def test_a_refusal_persists_the_clock_and_nothing_else(
    store: Broker, path: Path, clock: ManualClock, name: str
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, outbox=[outbox_message("outgoing")]))
    before = contents(path)
    clock.advance(250)

    kind, refused = refusals(store, lease)[name]
    with pytest.raises(kind):
        refused()

    assert (contents(path), floor(path)) == (before, "1250")
    assert not is_write_locked(path)


def test_a_request_that_fails_validation_does_not_advance_the_clock(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    clock.advance(250)
    with pytest.raises(Refusal):
        store.acquire_lease({**LEASE_REQUEST, "ttlMs": 0})
    assert floor(path) == "1000"


def store_with_nonce(path: Path, clock: ManualClock, nonce: Callable[[], str]) -> Broker:
    return open_store(path, clock, nonce=nonce)


def fail_once(error: BaseException) -> Callable[[], str]:
    """A nonce source that raises when it is first asked."""
    answers = iter([error])

    def nonce() -> str:
        for answer in answers:
            raise answer
        return "nonce"

    return nonce


def test_an_unexpected_error_undoes_everything_and_the_store_goes_on(
    path: Path, clock: ManualClock
) -> None:
    surprise = ZeroDivisionError("in the middle of a write")
    with store_with_nonce(path, clock, fail_once(surprise)) as store:
        before = contents(path)
        clock.advance(250)
        with pytest.raises(ZeroDivisionError) as caught:
            acquire(store)
        assert caught.value is surprise
        assert (contents(path), floor(path)) == (before, "1000")
        assert not is_write_locked(path)
        assert acquire(store).epoch == 1


def interrupt() -> str:
    signal.raise_signal(signal.SIGINT)
    return "not reached"


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_in_the_middle_leaves_neither_a_lock_nor_half_the_work(
    path: Path, clock: ManualClock
) -> None:
    sources: Iterator[Callable[[], str]] = iter([interrupt, lambda: "nonce"])

    def nonce() -> str:
        return next(sources)()

    with store_with_nonce(path, clock, nonce) as store:
        before = contents(path)
        with pytest.raises(KeyboardInterrupt):
            acquire(store)
        assert contents(path) == before
        assert not is_write_locked(path)
        assert acquire(store).nonce == "nonce"


@pytest.mark.parametrize("sql", ["BEGIN IMMEDIATE", "COMMIT"])
@pytest.mark.parametrize("refused", [False, True])
def test_an_interrupt_round_any_control_statement_leaves_no_lock(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, refused: bool
) -> None:
    lease = acquire(store)
    control = SQLiteChannel.control

    def interrupted(channel: SQLiteChannel, statement: str) -> None:
        if statement == sql and sql != "COMMIT":
            control(channel, statement)
        if statement == sql:
            raise KeyboardInterrupt
        control(channel, statement)

    monkeypatch.setattr(SQLiteChannel, "control", interrupted)
    with pytest.raises((KeyboardInterrupt, RevisionConflict)):
        store.commit(commit_request(lease, expectedRevision=3 if refused else 0))
    monkeypatch.undo()

    assert not is_write_locked(path)
    assert rows(path, "SELECT count(*) FROM inbox") == [(0,)]
    assert store.commit(commit_request(lease)).revision == 1


def test_a_broken_connection_is_replaced(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    sqlalchemy_event.listen(store.engine, "connect", lambda connection, _: made.append(connection))
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ

    def broken(channel: SQLiteChannel, statement: str) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(SQLiteChannel, "control", broken)
        with pytest.raises(DatabaseUnavailable, match="out of reach"):
            acquire(store)
    assert made == []
    assert acquire(store).epoch == 1
    assert len(made) == 1


SQLITE_SAVEPOINT = 32  # which the standard library gives no name


def refuse_rollback_to(action: int, operation: str | None, *_: str | None) -> int:
    """An authorizer under which ROLLBACK TO fails, as it may for reasons of its own."""
    is_refused = action == SQLITE_SAVEPOINT and operation == "ROLLBACK"
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK


def test_half_a_refused_commit_is_not_committed_with_the_clock_where_it_cannot_be_undone(
    path: Path, clock: ManualClock
) -> None:
    made: list[Any] = []
    sqlalchemy_event.listen(Pool, "connect", lambda driver, _record: made.append(driver))
    with open_store(path, clock) as store:
        lease = acquire(store)
        store.commit(commit_request(lease))
        before = contents(path)
        for driver in made:
            with contextlib.suppress(sqlite3.ProgrammingError):  # closed since
                driver.set_authorizer(refuse_rollback_to)
        clock.advance(5)
        bad = commit_request(
            lease, "bad", expectedRevision=1, events=[event("new"), event("message-event")]
        )
        with pytest.raises((IdempotencyConflict, DatabaseError)):
            store.commit(bad)
        assert contents(path) == before
        assert not is_write_locked(path)
        assert store.commit(commit_request(lease, "good", expectedRevision=1)).revision == 2


# ------------------------------------------------------------------------------- other processes


def test_while_another_process_writes_the_store_is_busy_and_afterwards_it_is_not(
    hasty: Broker, path: Path
) -> None:
    with locked_by_a_process(path):
        with pytest.raises(DatabaseBusy, match="nothing was stored"):
            acquire(hasty)
        assert hasty.get_lease({"actorId": "actor"}) is None
    assert acquire(hasty).epoch == 1


def test_what_is_only_repeated_is_answered_while_another_holds_the_lock(
    hasty: Broker, path: Path
) -> None:
    lease = hasty.acquire_lease(LEASE_REQUEST, request_id="receipt")
    first = hasty.commit(commit_request(lease))
    with write_locked(path):
        assert hasty.acquire_lease(LEASE_REQUEST, request_id="receipt") == lease
        assert hasty.commit(commit_request(lease)).event_cursors == first.event_cursors
        assert hasty.commit(commit_request(lease)).recovered
        with pytest.raises(IdempotencyConflict):
            hasty.commit(commit_request(lease, events=[event("other")]))
        with pytest.raises(DatabaseBusy):
            hasty.commit(commit_request(lease, "new", expectedRevision=1))


def test_a_payload_that_is_changed_while_its_commit_waits_is_stored_as_it_was(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, control = threading.Event(), SQLiteChannel.control

    def tell_that_it_waits(channel: SQLiteChannel, sql: str) -> None:
        if sql == "BEGIN IMMEDIATE":
            waits.set()
        control(channel, sql)

    def commit() -> None:
        store.commit(request)

    def change_meanwhile() -> None:
        with write_locked(path):
            may_start.set()
            assert waits.wait(60)
            payload["actor"]["workspaceId"] = "changed"
            payload["streamId"] = "changed"

    def commit_once_it_is_locked() -> None:
        assert may_start.wait(60)
        commit()

    lease = acquire(store)
    payload = runtime_event("stream", "mine")
    original = copy.deepcopy(payload)
    request = commit_request(lease, events=[event("e", payload, eventType="domain.event")])
    may_start = threading.Event()
    monkeypatch.setattr(SQLiteChannel, "control", tell_that_it_waits)
    in_threads(change_meanwhile, commit_once_it_is_locked)

    assert payload["actor"]["workspaceId"] == "changed"
    assert rows(path, "SELECT workspace_id FROM streams") == [("mine",)]
    assert [each.payload for each in store.read_events({"streamId": "stream"})] == [original]
    assert len(store.read_model_events({"workspaceId": "mine"})) == 1
    as_sent = commit_request(lease, events=[event("e", original, eventType="domain.event")])
    assert store.commit(as_sent).recovered
    with pytest.raises(IdempotencyConflict):
        commit()


def test_each_call_sees_what_another_process_wrote(store: Broker, path: Path) -> None:
    lease = acquire(store)
    with Broker.open(url_of(path), options=ManualClock().options()) as other:
        other.commit(commit_request(lease))
    assert store.get_stream_revision({"streamId": "stream"}) == 1
    assert store.commit(commit_request(lease, "two", expectedRevision=1)).event_cursors == (2,)


@pytest.mark.skipif(sys.platform != "linux", reason="counts by /proc")
def test_errors_do_not_pile_up_connections(store: Broker, path: Path) -> None:
    with raw(path) as connection:
        connection.execute(VIOLATE_AT_COMMIT)
    before = len(open_files(path))
    for _ in range(20):
        with pytest.raises(DatabaseError):
            acquire(store)
    assert len(open_files(path)) <= before
