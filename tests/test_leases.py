"""Leases: who gets one, what each refusal says, and the rows that keep the epochs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import InvalidRequest, LeaseUnavailable, StaleLease
from broker.messages import Lease
from tests.support import (
    TTL_MS,
    ManualClock,
    acquire,
    commit_request,
    contents,
    credential,
    expect_refusal,
    floor,
    open_store,
    raw,
    rows,
)


def takeover(store: Broker, actor: str, stream: str = "stream", **others: Any) -> Lease:
    request = {"actorId": actor, "streamId": stream, "holderId": "holder", "ttlMs": TTL_MS}
    return store.takeover_lease(request | others)


def shown(lease: Lease, **others: Any) -> dict[str, Any]:
    """A request that needs the lease."""
    return {"actorId": lease.actor_id, "lease": credential(lease)} | others


def get(store: Broker, actor: str) -> Lease | None:
    return store.get_lease({"actorId": actor})


def lineage(stream: str) -> str:
    """The actor id of the row that keeps a stream's epoch when its actor has moved on."""
    return "\0runtime-broker-lineage:" + stream.encode().hex().upper()


# --- acquire ----------------------------------------------------------------------------------


def test_the_first_lease_on_a_stream_has_epoch_1_and_all_times_from_now(
    store: Broker, path: Path
) -> None:
    lease = acquire(store, "ann", "s", ttlMs=500)
    assert lease == Lease("ann", "s", "holder", 1, "nonce-1", 1_000, 1_000, 1_500)
    assert rows(path, "SELECT * FROM actor_leases") == [
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
    store: Broker, path: Path, clock: ManualClock
) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    lease = acquire(store, "bob", "s")
    assert (lease.epoch, lease.nonce, lease.acquired_at) == (2, "nonce-2", 1_010)
    assert rows(path, "SELECT actor_id, epoch FROM actor_leases") == [("bob", 2)]
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
    store: Broker, path: Path, clock: ManualClock
) -> None:
    acquire(store, "ann", "schön", ttlMs=10)
    clock.advance(10)
    acquire(store, "ann", "t")
    kept, moved = rows(path, "SELECT * FROM actor_leases ORDER BY actor_id")
    nonce = kept[4]
    assert kept == (lineage("schön"), "schön", "\0runtime-broker-lineage", 1, nonce, 0, 0, 0)
    assert re.fullmatch("[0-9a-f]{32}", nonce)
    assert moved[:5] == ("ann", "t", "holder", 1, "nonce-2")


def test_the_next_lease_on_a_stream_that_was_left_goes_on_from_its_epoch(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    acquire(store, "ann", "t")
    assert acquire(store, "bob", "s").epoch == 2
    assert rows(path, "SELECT actor_id FROM actor_leases ORDER BY 1") == [("ann",), ("bob",)]


@pytest.mark.parametrize("take", [acquire, takeover])
def test_an_actor_that_goes_and_comes_back_finds_both_epochs(
    store: Broker, path: Path, clock: ManualClock, take: Callable[..., Lease]
) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    acquire(store, "ann", "t", ttlMs=10)
    clock.advance(10)
    assert take(store, "ann", "s", ttlMs=10).epoch == 2
    clock.advance(10)
    assert take(store, "ann", "t").epoch == 2
    assert rows(path, "SELECT actor_id, stream_id, epoch FROM actor_leases ORDER BY 1") == [
        (lineage("s"), "s", 2),
        ("ann", "t", 2),
    ]


def test_an_actor_that_leaves_for_a_strangers_expired_stream_takes_its_epoch_on(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    for epoch in (1, 2, 3):
        assert acquire(store, "ann", "s", ttlMs=10).epoch == epoch
        clock.advance(10)
    acquire(store, "bob", "t", ttlMs=10)
    clock.advance(10)
    assert takeover(store, "bob", "s").epoch == 4
    assert rows(path, "SELECT actor_id, stream_id, epoch FROM actor_leases ORDER BY 1") == [
        (lineage("t"), "t", 1),
        ("bob", "s", 4),
    ]


def test_a_lineage_row_that_a_migration_has_made_is_gone_on_from(store: Broker, path: Path) -> None:
    with raw(path) as other:
        other.execute(
            "INSERT INTO actor_leases VALUES (?, 's', ?, 41, ?, 0, 0, 0)",
            (lineage("s"), "\0runtime-broker-migration", "0" * 32),
        )
    assert takeover(store, "ann", "s").epoch == 42
    assert rows(path, "SELECT actor_id FROM actor_leases") == [("ann",)]


def test_lineage_draws_no_nonce_from_the_injected_source(store: Broker, clock: ManualClock) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    assert acquire(store, "ann", "t").nonce == "nonce-2"
    assert acquire(store, "bob", "s").nonce == "nonce-3"


# --- heartbeat --------------------------------------------------------------------------------


def test_a_heartbeat_moves_the_deadline_and_keeps_epoch_and_nonce(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    lease = acquire(store, ttlMs=100)
    clock.advance(40)
    kept = store.heartbeat_lease(shown(lease, ttlMs=200))
    assert kept == Lease("actor", "stream", "holder", 1, "nonce-1", 1_000, 1_040, 1_240)
    assert get(store, "actor") == kept
    assert rows(path, "SELECT heartbeat_at, expires_at FROM actor_leases") == [(1_040, 1_240)]


def test_a_heartbeat_may_shorten_the_lease(store: Broker, clock: ManualClock) -> None:
    lease = acquire(store, ttlMs=5_000)
    assert store.heartbeat_lease(shown(lease, ttlMs=1)).expires_at == 1_001
    clock.advance(1)
    assert acquire(store, "bob").epoch == 2


# --- compare and swap -------------------------------------------------------------------------


def test_a_swap_hands_the_lease_on_under_the_next_epoch_and_a_fresh_nonce(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    lease = acquire(store, ttlMs=100)
    clock.advance(40)
    swapped = store.compare_and_swap_lease(shown(lease, ttlMs=200, nextHolderId="next"))
    assert swapped == Lease("actor", "stream", "next", 2, "nonce-2", 1_040, 1_040, 1_240)
    assert rows(path, "SELECT * FROM actor_leases") == [tuple(swapped.to_json().values())]
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
    store: Broker, path: Path, clock: ManualClock
) -> None:
    lease = acquire(store, ttlMs=100)
    clock.advance(40)
    store.release_lease(shown(lease))
    assert rows(path, "SELECT * FROM actor_leases") == [
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


# --- stale ------------------------------------------------------------------------------------

Use = Callable[[Broker, dict[str, Any]], object]
USES: dict[str, Use] = {
    "heartbeat": lambda store, given: store.heartbeat_lease(given | {"ttlMs": 5}),
    "swap": lambda store, given: store.compare_and_swap_lease(
        given | {"ttlMs": 5, "nextHolderId": "n"}
    ),
    "release": lambda store, given: store.release_lease(given),
    "commit": lambda store, given: store.commit(
        given | {"messageId": "m", "streamId": "stream", "expectedRevision": 0, "events": []}
    ),
    "authorized": lambda store, given: store.read_authorized_events(
        {"streamId": "stream", "authorization": given}
    ),
    "page": lambda store, given: store.read_authorized_events_page(
        given | {"streamId": "stream", "afterRevision": 0, "limit": 1}
    ),
}
WRONG: list[dict[str, Any]] = [
    {"actorId": "nobody"},
    {"actorId": "ACTOR"},
    {"lease": {"epoch": 2, "nonce": "nonce-1"}},
    {"lease": {"epoch": 1, "nonce": "nonce-2"}},
    {"lease": {"epoch": 1, "nonce": "nonce-1 "}},
    {"lease": {"epoch": 1, "nonce": "é"}},
    {"lease": {"epoch": MAX_SAFE_INTEGER, "nonce": "nonce-1"}},
]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_not_the_live_credential_is_stale(
    store: Broker, path: Path, use: Use, wrong: dict[str, Any]
) -> None:
    given = shown(acquire(store)) | wrong
    before = contents(path)
    with expect_refusal(StaleLease, actorId=given["actorId"]):
        use(store, given)
    assert contents(path) == before


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_right_credential_is_stale_from_the_millisecond_that_it_expires(
    store: Broker, clock: ManualClock, use: Use
) -> None:
    given = shown(acquire(store, ttlMs=10))
    clock.advance(10)
    with expect_refusal(StaleLease, actorId="actor"):
        use(store, given)


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_right_credential_serves_until_then(
    store: Broker, clock: ManualClock, use: Use
) -> None:
    given = shown(acquire(store, ttlMs=10))
    clock.advance(9)
    use(store, given)
    assert get(store, "actor") is not None


@pytest.mark.parametrize("use", ["commit", "authorized", "page"])
def test_a_live_lease_on_another_stream_is_stale_with_both_streams(store: Broker, use: str) -> None:
    lease = acquire(store, "ann", "elsewhere")
    with expect_refusal(
        StaleLease, actorId="ann", authorizedStreamId="elsewhere", streamId="stream"
    ):
        USES[use](store, shown(lease))


def test_a_wrong_credential_is_reported_before_another_stream(store: Broker) -> None:
    lease = acquire(store, "ann", "elsewhere")
    with expect_refusal(StaleLease, actorId="ann"):
        USES["commit"](store, shown(lease) | {"lease": {"epoch": 1, "nonce": "x"}})


def test_the_row_of_a_lineage_lets_nobody_in(store: Broker, path: Path, clock: ManualClock) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    acquire(store, "ann", "t")
    ((nonce,),) = rows(path, "SELECT nonce FROM actor_leases WHERE stream_id = 's'")
    with expect_refusal(InvalidRequest, field="actorId"):
        store.heartbeat_lease(
            {"actorId": lineage("s"), "lease": {"epoch": 1, "nonce": nonce}, "ttlMs": 5}
        )


# --- nonces, deadlines, epochs ----------------------------------------------------------------


def test_a_refused_operation_draws_no_nonce(store: Broker, clock: ManualClock) -> None:
    lease = acquire(store, "ann", "s")
    operations: list[Callable[[], object]] = [
        lambda: acquire(store, "ann", "s"),
        lambda: acquire(store, "bob", "s"),
        lambda: takeover(store, "bob", "s"),
        lambda: takeover(store, "bob", "never"),
        lambda: acquire(store, "bob", "t", ttlMs=MAX_SAFE_INTEGER),
        lambda: store.compare_and_swap_lease(
            shown(lease, ttlMs=MAX_SAFE_INTEGER, nextHolderId="n")
        ),
        lambda: USES["swap"](store, shown(lease) | WRONG[2]),
        lambda: USES["heartbeat"](store, shown(lease) | WRONG[2]),
    ]
    for refuse in operations:
        with pytest.raises((InvalidRequest, LeaseUnavailable, StaleLease)):
            refuse()
    assert acquire(store, "bob", "t").nonce == "nonce-2"


def test_no_other_operation_draws_a_nonce(store: Broker) -> None:
    lease = acquire(store, "ann", "s")
    store.heartbeat_lease(shown(lease, ttlMs=50))
    store.commit(commit_request(lease))
    store.release_lease(shown(lease))
    assert acquire(store, "bob", "t").nonce == "nonce-2"


@pytest.mark.parametrize("nonce", ["", "a\0", "\ud800", "x" * 1_025, None, 5, b"n"])
def test_a_nonce_source_that_answers_nonsense_gives_no_lease(
    path: Path, clock: ManualClock, nonce: Any
) -> None:
    with (
        open_store(path, clock, nonce=lambda: nonce) as store,
        expect_refusal(InvalidRequest, field="nonce"),
    ):
        acquire(store)
    assert rows(path, "SELECT * FROM actor_leases") == []


Grant = Callable[[Broker, int], Lease]
GRANTS: dict[str, Grant] = {
    "acquire": lambda store, ttl: acquire(store, "bob", "t", ttlMs=ttl),
    "takeover": lambda store, ttl: takeover(store, "bob", "old", ttlMs=ttl),
    "heartbeat": lambda store, ttl: store.heartbeat_lease(
        {"actorId": "ann", "lease": {"epoch": 1, "nonce": "nonce-2"}, "ttlMs": ttl}
    ),
    "swap": lambda store, ttl: store.compare_and_swap_lease(
        {
            "actorId": "ann",
            "lease": {"epoch": 1, "nonce": "nonce-2"},
            "ttlMs": ttl,
            "nextHolderId": "n",
        }
    ),
}


@pytest.mark.parametrize("grant", GRANTS.values(), ids=GRANTS)
def test_a_deadline_is_a_safe_integer_or_refused(
    store: Broker, path: Path, clock: ManualClock, grant: Grant
) -> None:
    acquire(store, "old", "old", ttlMs=1)
    clock.advance(1)
    acquire(store, "ann", "s")
    before = contents(path)
    clock.advance(10)
    with expect_refusal(InvalidRequest, field="ttlMs"):
        grant(store, MAX_SAFE_INTEGER - 1_010)
    assert contents(path) == before
    assert floor(path) == "1011"
    assert grant(store, MAX_SAFE_INTEGER - 1_011).expires_at == MAX_SAFE_INTEGER


def test_a_deadline_out_of_range_is_reported_before_the_lease_is_judged(store: Broker) -> None:
    acquire(store, "ann", "s")
    with expect_refusal(InvalidRequest, field="ttlMs"):
        acquire(store, "ann", "s", ttlMs=MAX_SAFE_INTEGER)
    with expect_refusal(InvalidRequest, field="ttlMs"):
        store.heartbeat_lease(
            {"actorId": "x", "lease": {"epoch": 1, "nonce": "n"}, "ttlMs": MAX_SAFE_INTEGER}
        )


def _with_epoch(path: Path, epoch: int) -> None:
    with raw(path) as other:
        other.execute("UPDATE actor_leases SET epoch = ?", (epoch,))


@pytest.mark.parametrize("grant", [acquire, takeover])
def test_epochs_that_are_used_up_are_refused_and_draw_no_nonce(
    store: Broker, path: Path, clock: ManualClock, grant: Callable[..., Lease]
) -> None:
    acquire(store, ttlMs=10)
    clock.advance(10)
    _with_epoch(path, MAX_SAFE_INTEGER - 1)
    assert grant(store, "bob", "stream", ttlMs=10).epoch == MAX_SAFE_INTEGER
    clock.advance(10)
    before = contents(path)
    with expect_refusal(InvalidRequest, field="lease.epoch"):
        grant(store, "ann", "stream")
    assert contents(path) == before
    assert acquire(store, "ann", "t").nonce == "nonce-3"


def test_the_last_epoch_can_be_kept_and_written_with_but_not_handed_on(
    store: Broker, path: Path
) -> None:
    acquire(store)
    _with_epoch(path, MAX_SAFE_INTEGER)
    lease = store.heartbeat_lease(
        {
            "actorId": "actor",
            "lease": {"epoch": MAX_SAFE_INTEGER, "nonce": "nonce-1"},
            "ttlMs": 500,
        }
    )
    store.commit(commit_request(lease))
    assert rows(path, "SELECT producer_epoch FROM events") == [(MAX_SAFE_INTEGER,)]
    with expect_refusal(InvalidRequest, field="lease.epoch"):
        store.compare_and_swap_lease(shown(lease, ttlMs=5, nextHolderId="n"))


@pytest.mark.parametrize("name", ["it's", 'a"b', "a;--", "%", "\u2028", "\x7f\2", "İ"])
def test_ids_are_compared_as_they_are(store: Broker, path: Path, name: str) -> None:
    lease = acquire(store, name, name, holderId=name)
    assert get(store, name) == lease
    assert rows(path, "SELECT actor_id, stream_id, holder_id FROM actor_leases") == [
        (name, name, name)
    ]
    assert acquire(store, name + " ", name.upper() + "!").epoch == 1
