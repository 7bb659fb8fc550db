"""Connections that are lost: what was not done is done again, and what may be is said to be so."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from broker import Broker
from broker.errors import DatabaseUnavailable, OutcomeUnknown
from tests.places import PostgresPlace, client, contents, rows
from tests.postgresql.support_failures import (
    heartbeat,
    held,
    in_use,
    is_waiting,
    many_events,
    sessions,
    terminate_sessions,
    until,
    waiting,
    warm_up,
    with_settings,
)
from tests.postgresql.support_proxy import AFTER, BEFORE, COMMIT, HALFWAY, LosingProxy, losing
from tests.support import ManualClock, acquire, commit_request, messages, open_store

LOST = [BEFORE, HALFWAY, AFTER]


@pytest.fixture
def proxied(place: PostgresPlace, clock: ManualClock) -> Iterator[tuple[LosingProxy, Broker]]:
    """A proxy that loses connections when it is told to, and a store by way of it."""
    with losing(place) as (proxy, through), open_store(through, clock) as store:
        yield proxy, store


# ------------------------------------------------------------------------------ idle in the pool


def test_connections_that_died_in_the_pool_are_not_noticed(
    store: Broker, place: PostgresPlace
) -> None:
    lease = acquire(store)
    warm_up(store, 10)
    assert terminate_sessions(place) == 10
    assert store.commit(commit_request(lease)).revision == 1
    assert terminate_sessions(place) == 1
    assert store.get_stream_revision({"streamId": "stream"}) == 1
    assert in_use(store) == 0


def test_a_lease_mutation_without_request_id_is_done_once_after_all_connections_died(
    store: Broker, place: PostgresPlace
) -> None:
    warm_up(store, 10)
    terminate_sessions(place)
    assert acquire(store).epoch == 1
    assert rows(place, "SELECT epoch FROM actor_leases") == [(1,)]


# ----------------------------------------------------------------------------------- before COMMIT


@pytest.mark.parametrize("when", LOST)
def test_what_was_lost_before_commit_was_sent_is_done_again(
    proxied: tuple[LosingProxy, Broker], place: PostgresPlace, when: str
) -> None:
    proxy, store = proxied
    lease = acquire(store)
    proxy.lose("BEGIN", when)
    result = store.commit(commit_request(lease))
    assert (proxy.lost, result.revision, result.recovered) == (1, 1, False)
    assert messages(place) == ["message"]
    assert in_use(store) == 0


@pytest.mark.parametrize("when", LOST)
def test_a_lost_mutation_without_request_id_is_done_again_and_once(
    proxied: tuple[LosingProxy, Broker], place: PostgresPlace, when: str
) -> None:
    proxy, store = proxied
    proxy.lose("BEGIN", when)
    lease = acquire(store)
    assert (proxy.lost, lease.epoch) == (1, 1)
    assert rows(place, "SELECT epoch, nonce FROM actor_leases") == [(1, lease.nonce)]


@pytest.mark.parametrize("when", LOST)
def test_a_lost_copy_is_done_again(
    proxied: tuple[LosingProxy, Broker], place: PostgresPlace, when: str
) -> None:
    proxy, store = proxied
    lease = acquire(store)
    proxy.lose("COPY", when)
    assert store.commit(many_events(lease, 150)).revision == 150
    assert proxy.lost == 1
    assert rows(place, "SELECT count(*), max(revision) FROM events") == [(150, 150)]


@pytest.mark.parametrize("when", LOST)
def test_a_read_that_lost_its_connection_is_done_again(
    proxied: tuple[LosingProxy, Broker], when: str
) -> None:
    proxy, store = proxied
    store.commit(commit_request(acquire(store)))
    proxy.lose("FROM streams", when)
    assert store.get_stream_revision({"streamId": "stream"}) == 1
    assert (proxy.lost, in_use(store)) == (1, 0)


def test_a_session_that_was_ended_while_we_worked_is_noticed_before_commit_is_sent(
    place: PostgresPlace, clock: ManualClock
) -> None:
    ended: list[int] = []

    def nonce() -> str:
        if not ended:
            ended.append(terminate_sessions(place))
        return f"nonce-{len(ended)}"

    with open_store(place, clock, nonce=nonce) as store:
        assert acquire(store).epoch == 1
        assert in_use(store) == 0
    assert ended == [1]
    assert rows(place, "SELECT epoch FROM actor_leases") == [(1,)]


def test_a_session_that_was_ended_while_it_waited_for_a_lock_waits_again(
    store: Broker, place: PostgresPlace
) -> None:
    lease = acquire(store)
    results: list[int] = []
    working = threading.Thread(
        target=lambda: results.append(store.commit(commit_request(lease)).revision)
    )
    with held(place), client(place) as other:
        working.start()
        for _ in range(2):
            until(lambda: is_waiting(place))
            (pid,) = waiting(place)
            other.execute("SELECT pg_terminate_backend(?, 60000)", (pid,))
        until(lambda: is_waiting(place))
    working.join()
    assert (results, in_use(store)) == ([1], 0)
    assert messages(place) == ["message"]


def test_a_session_that_was_idle_for_too_long_is_not_missed(
    place: PostgresPlace, clock: ManualClock
) -> None:
    impatient = with_settings(place, idle_session_timeout="1s")
    with open_store(impatient, clock) as store:
        acquire(store)
        until(lambda: sessions(place) == [])
        assert acquire(store, "next", "next").epoch == 1
        until(lambda: sessions(place) == [])
        assert store.get_lease({"actorId": "next"}) is not None


# ----------------------------------------------------------------------------------- during COMMIT


@pytest.mark.parametrize("when", LOST)
def test_a_commit_that_lost_its_connection_is_unknown_and_its_repetition_happens_once(
    proxied: tuple[LosingProxy, Broker], place: PostgresPlace, when: str
) -> None:
    proxy, store = proxied
    lease = acquire(store)
    proxy.lose(COMMIT, when)
    with pytest.raises(OutcomeUnknown, match="repeat the call with the same messageId"):
        store.commit(commit_request(lease))
    took_effect = messages(place) == ["message"]
    assert took_effect == (when == AFTER)

    result = store.commit(commit_request(lease))
    assert (result.revision, result.recovered) == (1, took_effect)
    assert rows(place, "SELECT message_id, revision FROM events") == [("message", 1)]
    assert in_use(store) == 0


@pytest.mark.parametrize("when", LOST)
def test_a_keyed_mutation_that_lost_its_connection_is_unknown_and_its_repetition_happens_once(
    proxied: tuple[LosingProxy, Broker], place: PostgresPlace, when: str
) -> None:
    proxy, store = proxied
    request = {"actorId": "actor", "holderId": "holder", "ttlMs": 1_000}
    proxy.lose(COMMIT, when)
    with pytest.raises(OutcomeUnknown, match="requestId"):
        store.acquire_lease(request, request_id="request")
    recorded = rows(place, "SELECT nonce FROM actor_leases")
    assert len(recorded) == (when == AFTER)

    lease = store.acquire_lease(request, request_id="request")
    assert rows(place, "SELECT epoch, nonce FROM actor_leases") == [(1, lease.nonce)]
    assert recorded in ([], [(lease.nonce,)])


@pytest.mark.parametrize("when", LOST)
def test_a_mutation_without_request_id_is_never_done_twice(
    proxied: tuple[LosingProxy, Broker], place: PostgresPlace, clock: ManualClock, when: str
) -> None:
    proxy, store = proxied
    lease = acquire(store)
    proxy.lose(COMMIT, when)
    swap = heartbeat(lease) | {"nextHolderId": "next"}
    with pytest.raises(OutcomeUnknown):
        store.compare_and_swap_lease(swap)
    epochs = rows(place, "SELECT epoch, holder_id FROM actor_leases")
    assert epochs == [(2, "next") if when == AFTER else (1, "holder")]
    assert proxy.lost == 1


def test_the_call_after_an_unknown_outcome_needs_no_repetition_to_work(
    proxied: tuple[LosingProxy, Broker], place: PostgresPlace
) -> None:
    proxy, store = proxied
    lease = acquire(store)
    proxy.lose(COMMIT, BEFORE)
    with pytest.raises(OutcomeUnknown):
        store.commit(commit_request(lease, "first"))
    assert store.commit(commit_request(lease, "second")).revision == 1
    assert messages(place) == ["second"]


def test_a_refusal_whose_commit_was_lost_is_no_promise_of_anything(
    proxied: tuple[LosingProxy, Broker], place: PostgresPlace, clock: ManualClock
) -> None:
    proxy, store = proxied
    lease = acquire(store)
    clock.advance(10)
    before = contents(place)
    proxy.lose(COMMIT, BEFORE)
    with pytest.raises(OutcomeUnknown):
        store.commit(commit_request(lease, expectedRevision=7))
    assert contents(place) == before


# --------------------------------------------------------------------------------- after the COMMIT


def test_what_fails_once_commit_has_been_answered_is_not_done_again(
    store: Broker, place: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from psycopg import OperationalError

    from broker.postgresql.wire import Wire

    leave, answers = Wire.leave, [0]

    def fail_once(wire: Wire) -> None:
        answers[0] += 1
        if answers[0] == 1:
            raise OperationalError("lost between transactions")
        leave(wire)

    monkeypatch.setattr(Wire, "leave", fail_once)
    assert acquire(store).epoch == 1
    assert rows(place, "SELECT epoch FROM actor_leases") == [(1,)]
    assert in_use(store) == 0


# ------------------------------------------------------------------------------ never the connection


def test_if_every_connection_is_lost_the_call_ends_with_an_error_and_nothing_is_stored(
    proxied: tuple[LosingProxy, Broker], place: PostgresPlace
) -> None:
    proxy, store = proxied
    lease = acquire(store)
    proxy.keeps_losing = True
    proxy.lose("BEGIN", BEFORE)
    with pytest.raises(DatabaseUnavailable, match="out of reach"):
        store.commit(commit_request(lease))
    proxy.keeps_losing = False
    proxy.lose("", BEFORE)
    assert messages(place) == []
    assert store.commit(commit_request(lease)).revision == 1
    assert len(sessions(place)) <= 2
