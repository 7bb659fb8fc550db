"""Cases about what is there after a kill, a lost COMMIT, or a read in the middle."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    create_engine,
)
from sqlalchemy.orm import Session

from broker import Broker
from broker.errors import (
    BrokerError,
    DatabaseBusy,
    OutcomeUnknown,
)
from broker.postgresql.channel import PipelineChannel
from broker.sqlite.channel import SQLiteChannel
from tests import support
from tests.cases.conftest import HOOKED, make_hooked
from tests.places import Place, PostgresPlace, contents, rows, url_of
from tests.support import (
    TTL_MS,
    ManualClock,
    acquire,
    break_commit,
    commit_request,
    is_write_locked,
    open_store,
    outbox_message,
)

# --------------------------------------------------------------------------------------------- B39


def kill_at_statement(number: int, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process die before statement `number` of those that come."""
    channel = PipelineChannel if isinstance(place, PostgresPlace) else SQLiteChannel
    count = [0]

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            count[0] += 1
            if count[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments)

        return run

    for name in ("one", "all", "run", "put", "put_each", "control"):
        monkeypatch.setattr(channel, name, dying(getattr(channel, name)))


def die_committing(place: Place, request: dict[str, Any], at: int) -> bool:
    """Commit in a child that dies before statement `at`; whether it died."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.MonkeyPatch.context() as patch:
                store = Broker.open(url_of(place), options=ManualClock().options())
                kill_at_statement(at, place, patch)
                store.commit(request)
                code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in {0, -signal.SIGKILL}
    return code != 0


def test_b39_wherever_a_commit_is_killed_its_key_is_free_and_runs_exactly_once(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock) as store:
        lease = acquire(store)
    request = commit_request(
        lease,
        events=[support.event("one"), support.event("two")],
        outbox=[outbox_message("outgoing", eventId="one")],
        projections=[{"projectionId": "p", "value": 1}],
    )
    before, at = contents(place), 1
    while die_committing(place, request, at):
        assert contents(place) == before, f"before statement {at}"
        at += 1
    # BEGIN, look, five tables, COMMIT; on PostgreSQL what is put goes with what is asked for.
    assert at > (8 if isinstance(place, Path) else 5)

    with open_store(place, clock) as store:
        first, second = store.commit(request), store.commit(request)
        assert first.recovered
        assert first.event_cursors == second.event_cursors
    assert rows(place, "SELECT event_id FROM events ORDER BY rowid") == [("one",), ("two",)]
    if isinstance(place, Path):
        assert rows(place, "PRAGMA integrity_check") == [("ok",)]


def test_b39_after_a_kill_the_next_try_does_the_work(place: Place, clock: ManualClock) -> None:
    with open_store(place, clock) as store:
        lease = acquire(store)
    request = commit_request(lease)
    assert die_committing(place, request, 4)
    with open_store(place, clock) as store:
        first, second = store.commit(request), store.commit(request)
    assert (first.recovered, second.recovered) == (False, True)
    assert rows(place, "SELECT count(*) FROM events") == [(1,)]


# --------------------------------------------------------------------------------------------- B42
# What becomes of connections that are lost on the way to a server: tests/postgresql/test_failures.py

LOST = ConnectionResetError("lost on the way")


@pytest.mark.parametrize("takes_effect", [True, False])
def test_b42_a_commit_lost_on_the_way_has_an_unknown_outcome_and_its_retry_settles_it(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    lease = acquire(store)
    request = commit_request(lease)
    break_commit(monkeypatch, LOST, takes_effect=takes_effect)

    with pytest.raises(OutcomeUnknown, match="same messageId or requestId"):
        store.commit(request)

    assert not is_write_locked(path)
    assert rows(path, "SELECT count(*) FROM inbox") == [(int(takes_effect),)]
    assert store.commit(request).recovered == takes_effect
    assert rows(path, "SELECT revision FROM events") == [(1,)]


@pytest.mark.parametrize("takes_effect", [True, False])
def test_b42_a_lease_mutation_lost_on_the_way_is_settled_by_its_request_id(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    request = {"actorId": "actor", "holderId": "holder", "ttlMs": TTL_MS}
    break_commit(monkeypatch, LOST, takes_effect=takes_effect)
    with pytest.raises(OutcomeUnknown):
        store.acquire_lease(request, request_id="receipt")
    lease = store.acquire_lease(request, request_id="receipt")
    assert lease.nonce == ("nonce-1" if takes_effect else "nonce-2")
    assert rows(path, "SELECT nonce FROM actor_leases") == [(lease.nonce,)]


def test_b42_what_has_no_key_is_not_run_again(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def nonce() -> str:
        drawn.append("nonce")
        return "nonce"

    with open_store(path, clock, nonce=nonce) as store:
        break_commit(monkeypatch, LOST, takes_effect=False)
        with pytest.raises(OutcomeUnknown):
            acquire(store)
    assert drawn == ["nonce"]


@pytest.mark.parametrize("takes_effect", [True, False])
def test_b42_a_refusal_whose_clock_cannot_be_kept_leaves_no_lock(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    acquire(store)
    break_commit(monkeypatch, LOST, takes_effect=takes_effect)
    with pytest.raises(OutcomeUnknown):
        acquire(store, "second")
    assert not is_write_locked(path)
    assert rows(path, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_b42_a_commit_that_sqlite_turned_down_has_a_known_outcome(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    lease = acquire(store)
    break_commit(monkeypatch, busy, takes_effect=False)
    with pytest.raises(DatabaseBusy):
        store.commit(commit_request(lease))
    assert not is_write_locked(path)
    assert not store.commit(commit_request(lease)).recovered


# --------------------------------------------------------------------------------------------- B51


def between_the_statements(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]
) -> list[object]:
    """Do something after the first statement that comes, on any channel; the answer, once done."""
    one, answers = SQLiteChannel.one, list[object]()

    def then_work(channel: SQLiteChannel, *arguments: Any) -> Any:
        row = one(channel, *arguments)
        monkeypatch.setattr(SQLiteChannel, "one", one)
        answers.append(work())
        return row

    monkeypatch.setattr(SQLiteChannel, "one", then_work)
    return answers


def test_b51_the_statements_of_a_read_see_one_snapshot(
    store: Broker, path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    late = commit_request(lease, "late", expectedRevision=1)
    with open_store(path, clock) as other:
        answers = between_the_statements(monkeypatch, lambda: other.commit(late))
        found = store.read_authorized_events(
            {
                "streamId": "stream",
                "authorization": {"actorId": "actor", "lease": support.credential(lease)},
            }
        )
    assert len(answers) == 1
    assert [each.revision for each in found] == [1]
    assert store.get_stream_revision({"streamId": "stream"}) == 2


@pytest.mark.parametrize("kind", ["default", *HOOKED])
def test_b51_the_statements_of_a_units_read_see_one_snapshot_on_any_engine(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    late = commit_request(lease, "late", expectedRevision=1)
    engine = create_engine(url_of(path)) if kind == "default" else make_hooked(kind, path)
    with Session(engine) as session:
        answers = between_the_statements(monkeypatch, lambda: store.commit(late))
        found = store.unit_of_work(session).read_authorized_events(
            {
                "streamId": "stream",
                "authorization": {"actorId": "actor", "lease": support.credential(lease)},
            }
        )
        assert len(answers) == 1
        assert [each.revision for each in found] == [1]
    engine.dispose()


def test_b51_a_projection_and_its_events_are_killed_or_kept_together(
    store: Broker, place: Place
) -> None:
    lease = acquire(store)
    foreign = acquire(store, "other", "other")
    projections = [{"projectionId": "p", "value": 1}]
    store.commit(commit_request(lease, projections=projections))
    before = contents(place)
    with pytest.raises(BrokerError):
        store.commit(commit_request(foreign, "foreign", projections=projections))
    assert contents(place) == before
