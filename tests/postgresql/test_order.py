"""B47: who follows the journal by its cursor misses nothing, whatever overlaps with what."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from sqlalchemy.orm import Session

from broker import Broker
from broker.errors import RevisionConflict
from broker.messages import Lease
from broker.postgresql.transaction import PostgresTransaction
from tests.places import Place, rows
from tests.postgresql.support import locks_held, open_unit
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    event,
    in_threads,
    open_store,
    runtime_event,
)


def append(store: Any, stream: str, message: str, *, revision: int = 0) -> tuple[int, ...]:
    """Append a read-model event of workspace `w` to a stream of which an actor has the name."""
    lease = store.get_lease({"actorId": stream}) or acquire(store, stream, stream)
    payload = runtime_event(stream, "w")
    events = [event(message, payload, eventType="domain.event")]
    request = commit_request(lease, message, expectedRevision=revision, events=events)
    cursors: tuple[int, ...] = store.commit(request).event_cursors
    return cursors


def journal(store: Broker, after: int = 0) -> list[str]:
    return [each.event_id for each in store.read_journal({"afterCursor": after})]


def read_model(store: Broker, after: int = 0) -> list[str]:
    request = {"workspaceId": "w", "afterCursor": after, "limit": 128}
    return [each.event_id for each in store.read_model_events(request)]


@pytest.fixture
def leases(store: Broker) -> None:
    """Leases beforehand, for a unit that acquires one would hold its row until it ends."""
    for name in ("a", "b", "c"):
        acquire(store, name, name)


@pytest.mark.usefixtures("leases")
@pytest.mark.parametrize("read", [journal, read_model])
def test_b47_an_event_that_commits_later_than_one_behind_it_is_not_missed(
    store: Broker, read: Any
) -> None:
    with open_unit(store) as (session, unit):
        (earlier,) = append(unit, "a", "earlier")
        (later,) = append(store, "b", "later")
        assert earlier < later

        assert read(store) == []
        session.commit()

    assert read(store) == ["earlier", "later"]
    assert read(store, earlier) == ["later"]


@pytest.mark.usefixtures("leases")
def test_what_came_before_an_open_transaction_is_read_meanwhile(store: Broker) -> None:
    append(store, "a", "before")
    with open_unit(store) as (session, unit):
        append(unit, "b", "open")
        append(store, "c", "behind")
        assert journal(store) == ["before"]
        session.commit()

    assert journal(store) == ["before", "open", "behind"]


@pytest.mark.usefixtures("leases")
def test_the_oldest_of_several_open_transactions_counts(store: Broker) -> None:
    with open_unit(store) as (one, first), open_unit(store) as (two, second):
        append(first, "a", "first")
        append(second, "b", "second")
        append(store, "c", "third")
        two.commit()
        assert journal(store) == []
        one.commit()

    assert journal(store) == ["first", "second", "third"]


@pytest.mark.usefixtures("leases")
def test_b47_cursors_of_a_transaction_that_was_rolled_back_stall_nobody(store: Broker) -> None:
    with open_unit(store) as (session, unit):
        (lost,) = append(unit, "a", "lost")
        (kept,) = append(store, "b", "kept")
        session.rollback()

    assert lost < kept
    assert journal(store) == ["kept"]
    append(store, "a", "again")
    assert journal(store, kept) == ["again"]


@pytest.mark.usefixtures("leases")
def test_refused_commits_leave_no_mark_behind(store: Broker) -> None:
    append(store, "a", "first")
    with pytest.raises(RevisionConflict):
        append(store, "a", "refused")
    append(store, "b", "second")

    assert journal(store) == ["first", "second"]


@pytest.mark.usefixtures("leases")
def test_a_savepoint_that_is_rolled_back_keeps_the_mark_until_the_transaction_ends(
    store: Broker,
) -> None:
    with open_unit(store) as (session, unit):
        append(unit, "a", "kept")
        nested = session.begin_nested()
        append(unit, "b", "lost")
        nested.rollback()
        append(store, "c", "behind")
        assert journal(store) == []
        session.commit()

    assert journal(store) == ["kept", "behind"]


@pytest.mark.usefixtures("leases")
def test_a_session_sees_its_own_events_in_the_journal_once_they_are_committed(
    store: Broker,
) -> None:
    with open_unit(store) as (session, unit):
        append(unit, "a", "own")
        assert unit.read_journal({}) == []
        assert [each.event_id for each in unit.read_events({"streamId": "a"})] == ["own"]
        session.commit()
        assert [each.event_id for each in unit.read_journal({})] == ["own"]


@pytest.mark.usefixtures("leases")
def test_a_transaction_that_appends_many_times_holds_one_lock(store: Broker, place: Place) -> None:
    with open_unit(store) as (session, unit):
        for number in range(20):
            append(unit, "a", f"a-{number}", revision=number)
            append(store, "b", f"b-{number}", revision=number)
        assert locks_held(place) == 1
        assert journal(store) == []
        session.commit()

    assert len(journal(store)) == 40


@pytest.mark.usefixtures("leases")
def test_a_mark_that_went_with_its_savepoint_is_made_again(store: Broker) -> None:
    with open_unit(store) as (session, unit):
        nested = session.begin_nested()
        append(unit, "a", "lost")
        nested.rollback()
        append(unit, "b", "open")
        append(store, "c", "behind")
        assert journal(store) == []
        session.commit()

    assert journal(store) == ["open", "behind"]


@pytest.mark.usefixtures("leases")
def test_the_bits_of_the_mark_come_round(store: Broker, place: Place) -> None:
    start = 2**31 - 3
    rows(place, "SELECT setval('events_rowid_seq', ?)", start)
    append(store, "a", "before")
    with open_unit(store) as (session, unit):
        append(unit, "b", "open")
        append(store, "c", "behind")
        append(store, "c", "behind-2", revision=1)
        assert journal(store) == ["before"]
        session.commit()

    assert journal(store) == ["before", "open", "behind", "behind-2"]


def test_an_open_transaction_of_another_store_in_the_database_stalls_nobody(
    place: Place, clock: ManualClock
) -> None:
    with (
        open_store(place, clock, schema="one") as one,
        open_store(place, clock, schema="two") as two,
        Session(one.engine) as session,
    ):
        append(one.unit_of_work(session), "a", "open")
        append(two, "b", "elsewhere")
        assert journal(two) == ["elsewhere"]
        session.commit()
        assert journal(one) == ["open"]


# --------------------------------------------------------------------------------- many at random

WRITERS, COMMITS = 4, 25


def _write(store: Broker, number: int, chance: random.Random) -> None:
    stream, revision = f"s{number}", 0
    acquire(store, stream, stream)
    for count in range(COMMITS):
        message = f"{stream}-{count}"
        if chance.random() < 0.5:
            append(store, stream, message, revision=revision)
            revision += 1
            continue
        with open_unit(store) as (session, unit):
            append(unit, stream, message, revision=revision)
            if chance.random() < 0.4:
                session.rollback()
            else:
                session.commit()
                revision += 1


def _follow(store: Broker, seen: list[str], has_ended: threading.Event) -> None:
    """Read on from the last cursor seen, until nothing comes any more."""
    after = 0
    while True:
        was_over = has_ended.is_set()
        page = store.read_model_events({"workspaceId": "w", "afterCursor": after, "limit": 5})
        seen += [each.event_id for each in page]
        after = page[-1].cursor if page else after
        if was_over and not page:
            return


def _run(store: Broker, seed: int) -> list[str]:
    """Let writers and a reader work at the same time; what the reader has seen."""
    seen: list[str] = []
    has_ended = threading.Event()
    reader = threading.Thread(target=_follow, args=(store, seen, has_ended))
    reader.start()
    try:
        in_threads(
            *[partial(_write, store, each, random.Random(seed + each)) for each in range(WRITERS)]
        )
    finally:
        has_ended.set()
        reader.join()
    return seen


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_b47_a_reader_beside_many_writers_sees_every_event_once_and_in_order(
    store: Broker, place: Place, seed: int
) -> None:
    seen = _run(store, seed)

    assert seen == [name for (name,) in rows(place, "SELECT event_id FROM events ORDER BY rowid")]
    assert seen
    assert locks_held(place) == 0


@pytest.mark.usefixtures("leases")
def test_b47_without_the_horizon_an_event_would_be_missed(
    store: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresTransaction, "horizon", lambda _self: 2**53 - 1)
    with open_unit(store) as (session, unit):
        append(unit, "a", "earlier")
        (later,) = append(store, "b", "later")
        assert journal(store) == ["later"]
        session.commit()

    assert journal(store, later) == []


def _append_somehow(store: Broker, lease: Lease, message: str) -> None:
    """Append to a stream to which others append too."""
    while True:
        revision = store.get_stream_revision({"streamId": lease.stream_id})
        with suppress(RevisionConflict):
            store.commit(commit_request(lease, message, expectedRevision=revision))
            return


def test_cursors_of_a_stream_grow_with_its_revisions(store: Broker, place: Place) -> None:
    lease = acquire(store)

    def write(number: int) -> None:
        for count in range(10):
            _append_somehow(store, lease, f"{number}-{count}")

    in_threads(*[partial(write, number) for number in range(4)])

    ordered = rows(place, "SELECT revision FROM events ORDER BY rowid")
    assert ordered == [(number,) for number in range(1, 41)]
