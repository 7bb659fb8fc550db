"""Leases: who gets one, what each refusal says, and the rows that keep the epochs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from broker import Broker
from broker.errors import LeaseUnavailable, StaleLease
from broker.messages import Lease
from tests.leases_support import get, lineage, nobody, shown, takeover
from tests.places import Place, client, rows
from tests.support import ManualClock, acquire, expect_refusal

# --- acquire ----------------------------------------------------------------------------------


def test_the_first_lease_on_a_stream_has_epoch_1_and_all_times_from_now(
    store: Broker, place: Place
) -> None:
    lease = acquire(store, "ann", "s", ttlMs=500)
    assert lease == Lease("ann", "s", "holder", 1, "nonce-1", 1_000, 1_000, 1_500)
    assert rows(place, "SELECT * FROM actor_leases") == [
        ("ann", "s", "holder", 1, "nonce-1", 1_000, 1_000, 1_500)
    ]


def test_without_a_stream_the_lease_is_on_the_stream_of_the_actors_name(store: Broker) -> None:
    lease = store.acquire_lease({"actorId": "ann", "holderId": "h", "ttlMs": 5})
    assert (lease.actor_id, lease.stream_id) == ("ann", "ann")


def test_the_time_that_a_client_sends_is_ignored(store: Broker) -> None:
    assert acquire(store, now=5).acquired_at == 1_000


@pytest.mark.parametrize("stream", ["s", "t"])
def test_an_actor_with_a_live_lease_gets_no_other_wherever(store: Broker, stream: str) -> None:
    lease = acquire(store, "ann", "s")
    with expect_refusal(LeaseUnavailable, actorId="ann", expiresAt=lease.expires_at):
        acquire(store, "ann", stream)


def test_a_stream_with_a_live_lease_is_not_for_another_actor(store: Broker) -> None:
    lease = acquire(store, "ann", "s")
    with expect_refusal(LeaseUnavailable, actorId="bob", expiresAt=lease.expires_at, streamId="s"):
        acquire(store, "bob", "s")


def test_an_actors_own_live_lease_is_reported_before_somebody_elses(
    store: Broker, clock: ManualClock
) -> None:
    own = acquire(store, "bob", "t")
    clock.advance(5)
    acquire(store, "ann", "s")
    with expect_refusal(LeaseUnavailable, actorId="bob", expiresAt=own.expires_at):
        acquire(store, "bob", "s")


@pytest.mark.parametrize(("later", "is_live"), [(99, True), (100, False)])
def test_a_lease_is_live_until_the_very_millisecond_that_it_expires(
    store: Broker, clock: ManualClock, later: int, is_live: bool
) -> None:
    lease = acquire(store, "ann", "s", ttlMs=100)
    clock.advance(later)
    if is_live:
        with expect_refusal(LeaseUnavailable, actorId="bob", expiresAt=1_100, streamId="s"):
            acquire(store, "bob", "s")
    else:
        with expect_refusal(StaleLease, actorId="ann"):
            store.heartbeat_lease(shown(lease, ttlMs=1))
        assert acquire(store, "bob", "s").epoch == 2


def test_a_new_lease_replaces_the_streams_last_row(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    lease = acquire(store, "bob", "s")
    assert (lease.epoch, lease.nonce, lease.acquired_at) == (2, "nonce-2", 1_010)
    assert rows(place, "SELECT actor_id, epoch FROM actor_leases") == [("bob", 2)]
    assert get(store, "ann") is None


def test_an_actor_that_returns_to_its_stream_gets_the_next_epoch(
    store: Broker, clock: ManualClock
) -> None:
    first = acquire(store, ttlMs=10)
    clock.advance(10)
    second = acquire(store)
    assert (first.epoch, second.epoch) == (1, 2)
    with expect_refusal(StaleLease, actorId="actor"):
        store.heartbeat_lease(shown(first, ttlMs=5))


# --- lineage (section 12.1) ---------------------------------------------------------------------


def test_a_stream_that_its_actor_leaves_keeps_its_epoch_in_a_lineage_row(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    acquire(store, "ann", "schön", ttlMs=10)
    clock.advance(10)
    acquire(store, "ann", "t")
    kept, moved = rows(place, "SELECT * FROM actor_leases ORDER BY actor_id")
    nonce = kept[4]
    assert kept == (lineage(place, "schön"), "schön", nobody(place, "lineage"), 1, nonce, 0, 0, 0)
    assert re.fullmatch("[0-9a-f]{32}", nonce)
    assert moved[:5] == ("ann", "t", "holder", 1, "nonce-2")


def test_the_next_lease_on_a_stream_that_was_left_goes_on_from_its_epoch(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    acquire(store, "ann", "t")
    assert acquire(store, "bob", "s").epoch == 2
    assert rows(place, "SELECT actor_id FROM actor_leases ORDER BY 1") == [("ann",), ("bob",)]


@pytest.mark.parametrize("take", [acquire, takeover])
def test_an_actor_that_goes_and_comes_back_finds_both_epochs(
    store: Broker, place: Place, clock: ManualClock, take: Callable[..., Lease]
) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    acquire(store, "ann", "t", ttlMs=10)
    clock.advance(10)
    assert take(store, "ann", "s", ttlMs=10).epoch == 2
    clock.advance(10)
    assert take(store, "ann", "t").epoch == 2
    assert rows(place, "SELECT actor_id, stream_id, epoch FROM actor_leases ORDER BY 1") == [
        (lineage(place, "s"), "s", 2),
        ("ann", "t", 2),
    ]


def test_an_actor_that_leaves_for_a_strangers_expired_stream_takes_its_epoch_on(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    for epoch in (1, 2, 3):
        assert acquire(store, "ann", "s", ttlMs=10).epoch == epoch
        clock.advance(10)
    acquire(store, "bob", "t", ttlMs=10)
    clock.advance(10)
    assert takeover(store, "bob", "s").epoch == 4
    assert rows(place, "SELECT actor_id, stream_id, epoch FROM actor_leases ORDER BY 1") == [
        (lineage(place, "t"), "t", 1),
        ("bob", "s", 4),
    ]


def test_a_lineage_row_that_a_migration_has_made_is_gone_on_from(
    store: Broker, place: Place
) -> None:
    with client(place) as other:
        other.execute(
            "INSERT INTO actor_leases VALUES (?, 's', ?, 41, ?, 0, 0, 0)",
            (lineage(place, "s"), nobody(place, "migration"), "0" * 32),
        )
    assert takeover(store, "ann", "s").epoch == 42
    assert rows(place, "SELECT actor_id FROM actor_leases") == [("ann",)]


def test_lineage_draws_no_nonce_from_the_injected_source(store: Broker, clock: ManualClock) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    assert acquire(store, "ann", "t").nonce == "nonce-2"
    assert acquire(store, "bob", "s").nonce == "nonce-3"


# --- heartbeat --------------------------------------------------------------------------------


def test_a_heartbeat_moves_the_deadline_and_keeps_epoch_and_nonce(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store, ttlMs=100)
    clock.advance(40)
    kept = store.heartbeat_lease(shown(lease, ttlMs=200))
    assert kept == Lease("actor", "stream", "holder", 1, "nonce-1", 1_000, 1_040, 1_240)
    assert get(store, "actor") == kept
    assert rows(place, "SELECT heartbeat_at, expires_at FROM actor_leases") == [(1_040, 1_240)]


def test_a_heartbeat_may_shorten_the_lease(store: Broker, clock: ManualClock) -> None:
    lease = acquire(store, ttlMs=5_000)
    assert store.heartbeat_lease(shown(lease, ttlMs=1)).expires_at == 1_001
    clock.advance(1)
    assert acquire(store, "bob").epoch == 2


# --- compare and swap -------------------------------------------------------------------------


def test_a_swap_hands_the_lease_on_under_the_next_epoch_and_a_fresh_nonce(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store, ttlMs=100)
    clock.advance(40)
    swapped = store.compare_and_swap_lease(shown(lease, ttlMs=200, nextHolderId="next"))
    assert swapped == Lease("actor", "stream", "next", 2, "nonce-2", 1_040, 1_040, 1_240)
    assert rows(place, "SELECT * FROM actor_leases") == [tuple(swapped.to_json().values())]
    with expect_refusal(StaleLease, actorId="actor"):
        store.heartbeat_lease(shown(lease, ttlMs=5))


# --- takeover ---------------------------------------------------------------------------------


def test_a_stream_that_never_had_a_lease_cannot_be_taken_over(store: Broker) -> None:
    with expect_refusal(LeaseUnavailable, actorId="bob", streamId="s"):
        takeover(store, "bob", "s")


@pytest.mark.parametrize("actor", ["ann", "bob"])
def test_a_live_lease_cannot_be_taken_over_not_even_ones_own(store: Broker, actor: str) -> None:
    lease = acquire(store, "ann", "s")
    with expect_refusal(LeaseUnavailable, actorId=actor, expiresAt=lease.expires_at, streamId="s"):
        takeover(store, actor, "s")


@pytest.mark.parametrize("actor", ["ann", "bob"])
def test_an_expired_lease_can_be_taken_over_ones_own_included(
    store: Broker, clock: ManualClock, actor: str
) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    taken = takeover(store, actor, "s", ttlMs=70)
    assert taken == Lease(actor, "s", "holder", 2, "nonce-2", 1_010, 1_010, 1_080)


def test_an_actor_with_a_live_lease_elsewhere_takes_nothing_over(
    store: Broker, clock: ManualClock
) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    elsewhere = acquire(store, "bob", "t")
    clock.advance(10)
    with expect_refusal(
        LeaseUnavailable, actorId="bob", expiresAt=elsewhere.expires_at, streamId="t"
    ):
        takeover(store, "bob", "s")


def test_that_the_stream_is_not_to_be_had_is_reported_before_a_lease_elsewhere(
    store: Broker,
) -> None:
    lease = acquire(store, "ann", "s")
    acquire(store, "bob", "t", ttlMs=9)
    with expect_refusal(LeaseUnavailable, actorId="bob", expiresAt=lease.expires_at, streamId="s"):
        takeover(store, "bob", "s")
    with expect_refusal(LeaseUnavailable, actorId="bob", streamId="never"):
        takeover(store, "bob", "never")


def test_without_a_stream_the_actors_own_is_taken_over(store: Broker, clock: ManualClock) -> None:
    acquire(store, "ann", "ann", ttlMs=10)
    clock.advance(10)
    taken = store.takeover_lease({"actorId": "ann", "holderId": "h", "ttlMs": 5})
    assert (taken.stream_id, taken.epoch) == ("ann", 2)


# --- release and get --------------------------------------------------------------------------


def test_a_released_lease_keeps_its_row_and_ends_now(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store, ttlMs=100)
    clock.advance(40)
    store.release_lease(shown(lease))
    assert rows(place, "SELECT * FROM actor_leases") == [
        ("actor", "stream", "holder", 1, "nonce-1", 1_000, 1_040, 1_040)
    ]
    assert acquire(store, "bob").epoch == 2


def test_a_lease_is_shown_live_or_not_and_none_to_a_stranger(
    store: Broker, clock: ManualClock
) -> None:
    lease = acquire(store, ttlMs=10)
    assert get(store, "actor") == lease
    clock.advance(500)
    assert get(store, "actor") == lease
    assert get(store, "stream") is None
    assert get(store, "Actor") is None


def test_a_credential_is_what_requests_need(store: Broker) -> None:
    lease = acquire(store)
    assert lease.credential.to_json() == {"epoch": 1, "nonce": "nonce-1"}
    assert (
        store.heartbeat_lease({"actorId": "actor", "lease": lease.credential, "ttlMs": 5}).epoch
        == 1
    )
