"""What proves a lease, and what is stale; nonces, deadlines and epochs at their ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker import Broker
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import InvalidRequest, LeaseUnavailable, StaleLease
from broker.messages import Lease
from tests.leases_support import get, lineage, shown, takeover
from tests.places import Place, client, contents, rows
from tests.support import ManualClock, acquire, commit_request, expect_refusal, floor, open_store

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
    store: Broker, place: Place, use: Use, wrong: dict[str, Any]
) -> None:
    given = shown(acquire(store)) | wrong
    before = contents(place)
    with expect_refusal(StaleLease, actorId=given["actorId"]):
        use(store, given)
    assert contents(place) == before


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


def test_the_row_of_a_lineage_lets_nobody_in(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    acquire(store, "ann", "s", ttlMs=10)
    clock.advance(10)
    acquire(store, "ann", "t")
    ((nonce,),) = rows(place, "SELECT nonce FROM actor_leases WHERE stream_id = 's'")
    with expect_refusal(InvalidRequest, field="actorId"):
        store.heartbeat_lease(
            {"actorId": lineage(place, "s"), "lease": {"epoch": 1, "nonce": nonce}, "ttlMs": 5}
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
    place: Place, clock: ManualClock, nonce: Any
) -> None:
    with (
        open_store(place, clock, nonce=lambda: nonce) as store,
        expect_refusal(InvalidRequest, field="nonce"),
    ):
        acquire(store)
    assert rows(place, "SELECT * FROM actor_leases") == []


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
    store: Broker, place: Place, clock: ManualClock, grant: Grant
) -> None:
    acquire(store, "old", "old", ttlMs=1)
    clock.advance(1)
    acquire(store, "ann", "s")
    before = contents(place)
    clock.advance(10)
    with expect_refusal(InvalidRequest, field="ttlMs"):
        grant(store, MAX_SAFE_INTEGER - 1_010)
    assert contents(place) == before
    assert floor(place) == "1011"
    assert grant(store, MAX_SAFE_INTEGER - 1_011).expires_at == MAX_SAFE_INTEGER


def test_a_deadline_out_of_range_is_reported_before_the_lease_is_judged(store: Broker) -> None:
    acquire(store, "ann", "s")
    with expect_refusal(InvalidRequest, field="ttlMs"):
        acquire(store, "ann", "s", ttlMs=MAX_SAFE_INTEGER)
    with expect_refusal(InvalidRequest, field="ttlMs"):
        store.heartbeat_lease(
            {"actorId": "x", "lease": {"epoch": 1, "nonce": "n"}, "ttlMs": MAX_SAFE_INTEGER}
        )


def _with_epoch(place: Place, epoch: int) -> None:
    with client(place) as other:
        other.execute("UPDATE actor_leases SET epoch = ?", (epoch,))


@pytest.mark.parametrize("grant", [acquire, takeover])
def test_epochs_that_are_used_up_are_refused_and_draw_no_nonce(
    store: Broker, place: Place, clock: ManualClock, grant: Callable[..., Lease]
) -> None:
    acquire(store, ttlMs=10)
    clock.advance(10)
    _with_epoch(place, MAX_SAFE_INTEGER - 1)
    assert grant(store, "bob", "stream", ttlMs=10).epoch == MAX_SAFE_INTEGER
    clock.advance(10)
    before = contents(place)
    with expect_refusal(InvalidRequest, field="lease.epoch"):
        grant(store, "ann", "stream")
    assert contents(place) == before
    assert acquire(store, "ann", "t").nonce == "nonce-3"


def test_the_last_epoch_can_be_kept_and_written_with_but_not_handed_on(
    store: Broker, place: Place
) -> None:
    acquire(store)
    _with_epoch(place, MAX_SAFE_INTEGER)
    lease = store.heartbeat_lease(
        {
            "actorId": "actor",
            "lease": {"epoch": MAX_SAFE_INTEGER, "nonce": "nonce-1"},
            "ttlMs": 500,
        }
    )
    store.commit(commit_request(lease))
    assert rows(place, "SELECT producer_epoch FROM events") == [(MAX_SAFE_INTEGER,)]
    with expect_refusal(InvalidRequest, field="lease.epoch"):
        store.compare_and_swap_lease(shown(lease, ttlMs=5, nextHolderId="n"))


@pytest.mark.parametrize("name", ["it's", 'a"b', "a;--", "%", "\u2028", "\x7f\2", "İ"])
def test_ids_are_compared_as_they_are(store: Broker, place: Place, name: str) -> None:
    lease = acquire(store, name, name, holderId=name)
    assert get(store, name) == lease
    assert rows(place, "SELECT actor_id, stream_id, holder_id FROM actor_leases") == [
        (name, name, name)
    ]
    assert acquire(store, name + " ", name.upper() + "!").epoch == 1
