"""Two at the same time: what is judged is locked, ids have one winner, and nobody waits for ever."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from broker import Broker
from broker.errors import (
    BrokerError,
    DatabaseBusy,
    IdempotencyConflict,
    LeaseUnavailable,
    RevisionConflict,
    StaleLease,
)
from tests.places import Place, rows
from tests.postgresql.support import (
    open_unit,
    started,
    transaction_of_another,
    wait_until_waiting,
)
from tests.support import (
    TTL_MS,
    ManualClock,
    acquire,
    commit_request,
    credential,
    event,
    in_threads,
    open_store,
    outbox_message,
)

# ------------------------------------------------------------------ what is judged stays as it is


def test_a_takeover_waits_for_a_commit_that_was_judged(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store)
    taking = {"actorId": "heir", "streamId": "stream", "holderId": "h", "ttlMs": TTL_MS}
    with open_unit(store) as (session, unit):
        unit.commit(commit_request(lease))
        clock.advance(TTL_MS)
        with started(lambda: store.takeover_lease(taking)) as takeover:
            wait_until_waiting(place)
            assert not takeover.done()
            session.commit()

    assert takeover.result().epoch == lease.epoch + 1
    assert store.get_stream_revision({"streamId": "stream"}) == 1


def test_a_commit_that_waited_for_a_takeover_is_stale(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store)
    clock.advance(TTL_MS)
    taking = {"actorId": "heir", "streamId": "stream", "holderId": "h", "ttlMs": TTL_MS}
    with open_unit(store) as (session, unit):
        unit.takeover_lease(taking)
        with started(lambda: store.commit(commit_request(lease))) as commit:
            wait_until_waiting(place)
            session.commit()

    assert isinstance(commit.exception(), StaleLease)
    assert rows(place, "SELECT event_id FROM events") == []


@pytest.mark.parametrize("events", [[], [event("e-1")], [event("e-1"), event("e-2")]])
def test_of_two_commits_at_one_revision_the_second_waits_and_is_refused(
    store: Broker, place: Place, events: list[object]
) -> None:
    lease = acquire(store)
    with open_unit(store) as (session, unit):
        unit.commit(commit_request(lease, "first"))
        with started(
            lambda: store.commit(commit_request(lease, "second", events=events))
        ) as second:
            wait_until_waiting(place)
            session.commit()

    refusal = second.exception()
    assert isinstance(refusal, RevisionConflict)
    assert refusal.details["actualRevision"] == 1
    assert rows(place, "SELECT message_id FROM events") == [("first",)]
    assert store.get_stream_revision({"streamId": "stream"}) == 1


def test_who_waited_for_one_that_was_rolled_back_goes_on_as_if_it_had_not_been(
    store: Broker, place: Place
) -> None:
    lease = acquire(store)
    with open_unit(store) as (session, unit):
        unit.commit(commit_request(lease, "first"))
        with started(lambda: store.commit(commit_request(lease, "second"))) as second:
            wait_until_waiting(place)
            session.rollback()

    assert second.result().revision == 1
    assert rows(place, "SELECT message_id FROM events") == [("second",)]


def test_a_commit_does_not_wait_for_the_row_of_the_clock(store: Broker, place: Place) -> None:
    lease = acquire(store)
    with transaction_of_another(place) as other:
        other.execute("UPDATE metadata SET value = value WHERE key = 'logical_time_floor'")
        assert store.commit(commit_request(lease)).revision == 1


# --------------------------------------------------------------------------- one winner for an id


def test_b41_of_two_with_one_message_id_the_second_waits_and_gets_the_recorded_result(
    store: Broker, place: Place
) -> None:
    request = commit_request(acquire(store))
    with open_unit(store) as (session, unit):
        first = unit.commit(request)
        with started(lambda: store.commit(request)) as again:
            wait_until_waiting(place)
            session.commit()

    assert again.result().recovered
    assert again.result().event_cursors == first.event_cursors
    assert rows(place, "SELECT count(*) FROM events") == [(1,)]


@pytest.mark.parametrize("events", [[], [event("e-1"), event("e-2")]])
def test_b41_many_at_once_with_one_message_id_have_one_effect(
    store: Broker, place: Place, events: list[object]
) -> None:
    request = commit_request(acquire(store), events=events)
    results: list[bool] = []

    in_threads(*[lambda: results.append(store.commit(request).recovered)] * 6)

    assert sorted(results) == [False] + [True] * 5
    assert rows(place, "SELECT count(*) FROM events") == [(len(events),)]


def test_a_message_id_of_another_stream_is_a_conflict_once_that_has_won(
    store: Broker, place: Place
) -> None:
    mine, theirs = acquire(store), acquire(store, "other", "other")
    with open_unit(store) as (session, unit):
        unit.commit(commit_request(theirs))
        request = commit_request(mine, events=[event("mine")])
        with started(lambda: store.commit(request)) as commit:
            wait_until_waiting(place)
            session.commit()

    refusal = commit.exception()
    assert isinstance(refusal, IdempotencyConflict)
    assert refusal.details == {"messageId": "message"}


@pytest.mark.parametrize("field", ["eventId", "outboxId"])
def test_an_id_that_another_stream_has_just_used_is_a_conflict(
    store: Broker, place: Place, field: str
) -> None:
    mine, theirs = acquire(store), acquire(store, "other", "other")
    used = outbox_message("used")
    with open_unit(store) as (session, unit):
        unit.commit(commit_request(theirs, "theirs", events=[event("used")], outbox=[used]))
        events = [event("used" if field == "eventId" else "unused")]
        request = commit_request(mine, "mine", events=events, outbox=[used])
        with started(lambda: store.commit(request)) as commit:
            wait_until_waiting(place)
            session.commit()

    refusal = commit.exception()
    assert isinstance(refusal, IdempotencyConflict)
    assert refusal.details == {"field": field, "id": "used"}
    assert store.get_stream_revision({"streamId": "stream"}) == 0


def test_two_first_leases_on_a_stream_have_one_winner(store: Broker, place: Place) -> None:
    with open_unit(store) as (session, unit):
        acquire(unit, "first", "stream")
        with started(lambda: acquire(store, "second", "stream")) as second:
            wait_until_waiting(place)
            session.commit()

    refusal = second.exception()
    assert isinstance(refusal, LeaseUnavailable)
    assert refusal.details["streamId"] == "stream"
    assert rows(place, "SELECT actor_id, epoch FROM actor_leases") == [("first", 1)]


def test_an_actor_gets_one_of_two_streams_that_it_asks_for_at_once(
    store: Broker, place: Place
) -> None:
    with open_unit(store) as (session, unit):
        acquire(unit, "actor", "one")
        with started(lambda: acquire(store, "actor", "two")) as second:
            wait_until_waiting(place)
            session.commit()

    assert isinstance(second.exception(), LeaseUnavailable)
    assert rows(place, "SELECT stream_id FROM actor_leases") == [("one",)]


def test_of_two_with_one_request_id_the_second_gets_the_recorded_lease(
    store: Broker, place: Place
) -> None:
    asked = {"actorId": "actor", "holderId": "holder", "ttlMs": TTL_MS}
    with open_unit(store) as (session, unit):
        first = unit.acquire_lease(asked, request_id="r")
        with started(lambda: store.acquire_lease(asked, request_id="r")) as again:
            wait_until_waiting(place)
            session.commit()

    assert again.result() == first
    assert rows(place, "SELECT epoch FROM actor_leases") == [(1,)]


def test_a_heartbeat_that_waited_for_a_compare_and_swap_is_stale(
    store: Broker, place: Place
) -> None:
    lease = acquire(store)
    shown = {"actorId": "actor", "lease": credential(lease), "ttlMs": TTL_MS}
    with open_unit(store) as (session, unit):
        swapped = unit.compare_and_swap_lease(shown | {"nextHolderId": "next"})
        with started(lambda: store.heartbeat_lease(shown)) as heartbeat:
            wait_until_waiting(place)
            session.commit()

    assert isinstance(heartbeat.exception(), StaleLease)
    assert store.get_lease({"actorId": "actor"}) == swapped


def test_an_acquire_that_waited_for_a_compare_and_swap_finds_the_lease_live(
    store: Broker, place: Place
) -> None:
    lease = acquire(store)
    shown = {"actorId": "actor", "lease": credential(lease), "ttlMs": TTL_MS}
    with open_unit(store) as (session, unit):
        unit.compare_and_swap_lease(shown | {"nextHolderId": "next"})
        with started(lambda: acquire(store, "other", "stream")) as taking:
            wait_until_waiting(place)
            session.commit()

    assert isinstance(taking.exception(), LeaseUnavailable)


# --------------------------------------------------------------------- deadlocks, levels, patience


def test_b53_a_deadlock_is_done_again_where_the_broker_owns_the_transaction(
    store: Broker, place: Place
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, "first"))
    request = commit_request(lease, "second", expectedRevision=1)
    with transaction_of_another(place) as other:
        other.execute("SET LOCAL deadlock_timeout = '60s'")  # so that the commit is the victim
        other.execute("SELECT 1 FROM streams FOR UPDATE")
        with started(
            lambda: store.commit(request)
        ) as commit:  # has the lease, waits for the stream
            wait_until_waiting(place)
            other.execute("SELECT 1 FROM actor_leases FOR UPDATE")
            other.execute("COMMIT")

    assert commit.result().revision == 2


def test_b53_a_session_that_is_the_victim_of_a_deadlock_runs_its_unit_again(
    store: Broker, place: Place
) -> None:
    one, two = acquire(store, "one", "one"), acquire(store, "two", "two")
    orders = [(one, two), (two, one)]
    busy: list[BrokerError] = []

    def append_to_both(number: int) -> None:
        while True:
            with open_unit(store) as (session, unit):
                try:
                    for lease in orders[number]:
                        revision = unit.get_stream_revision({"streamId": lease.stream_id})
                        name = f"{lease.stream_id}-{number}"
                        unit.commit(commit_request(lease, name, expectedRevision=revision))
                        session.execute(text("SELECT pg_sleep(0.1)"))
                    session.commit()
                except (DatabaseBusy, RevisionConflict) as error:
                    session.rollback()
                    busy.append(error)
                else:
                    return

    in_threads(lambda: append_to_both(0), lambda: append_to_both(1))

    assert rows(place, "SELECT stream_id, revision FROM streams ORDER BY 1") == [
        ("one", 2),
        ("two", 2),
    ]
    assert any(isinstance(error, DatabaseBusy) for error in busy)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_b53_other_levels_of_isolation_are_refused_before_anything_is_written(
    store: Broker, place: Place, level: str
) -> None:
    engine = store.engine.execution_options(isolation_level=level)
    with Session(engine) as session, pytest.raises(BrokerError, match=f"at {level}") as caught:
        acquire(store.unit_of_work(session))

    assert caught.value.code == "configuration_error"
    assert rows(place, "SELECT * FROM actor_leases") == []


def test_who_waits_for_longer_than_the_busy_timeout_is_told_so_and_nothing_was_stored(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock, busy_timeout_ms=100) as store:
        lease = acquire(store)
        with transaction_of_another(place) as other:
            other.execute("SELECT 1 FROM actor_leases FOR UPDATE")
            with pytest.raises(DatabaseBusy, match="busy_timeout_ms"):
                store.commit(commit_request(lease))

        assert rows(place, "SELECT * FROM inbox") == []
        assert store.commit(commit_request(lease)).revision == 1
