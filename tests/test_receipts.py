"""Receipts: the same mutation under the same id happens once, and is answered alike ever after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.errors import CorruptRow, DatabaseError, IdempotencyConflict, InvalidRequest, StaleLease
from broker.leases import acquire as acquire_operation
from broker.messages import AcquireLeaseRequest
from broker.receipts import _MAKE_ROOM, Receipt
from broker.transaction import Write
from tests.places import Place, client, contents, raw, rows
from tests.support import ManualClock, expect_refusal, open_store, query_plan

LEASE = {"epoch": 1, "nonce": "nonce-1"}
ACQUIRE: dict[str, Any] = {"actorId": "ann", "streamId": "s", "holderId": "h", "ttlMs": 100}
MUTATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "lease.acquire": ("acquire_lease", ACQUIRE),
    "lease.heartbeat": ("heartbeat_lease", {"actorId": "ann", "lease": LEASE, "ttlMs": 50}),
    "lease.compare-and-swap": (
        "compare_and_swap_lease",
        {"actorId": "ann", "lease": LEASE, "ttlMs": 50, "nextHolderId": "n"},
    ),
    "lease.takeover": ("takeover_lease", ACQUIRE | {"streamId": "old"}),
    "lease.release": ("release_lease", {"actorId": "ann", "lease": LEASE}),
}
NEEDS_A_LEASE = {"lease.heartbeat", "lease.compare-and-swap", "lease.release"}


def mutate(store: Broker, method: str, request_id: str | None = "r", **changes: Any) -> Any:
    name, request = MUTATIONS[method]
    return getattr(store, name)(request | changes, request_id=request_id)


def prepare(store: Broker, clock: ManualClock, method: str) -> None:
    """Make the mutation possible: a lease for those that need one, an expired one for the other."""
    if method in NEEDS_A_LEASE:
        mutate(store, "lease.acquire", None)
    if method == "lease.takeover":
        store.acquire_lease({"actorId": "old", "holderId": "h", "ttlMs": 1})
        clock.advance(1)


def canonical_hash(request: dict[str, Any]) -> str:
    """Stated anew: canonical JSON of plain ASCII data is sorted and has no spaces."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("method", MUTATIONS)
def test_a_repeated_mutation_gets_the_recorded_response_and_changes_nothing(
    store: Broker, place: Place, clock: ManualClock, method: str
) -> None:
    prepare(store, clock, method)
    first = mutate(store, method)
    before = contents(place)
    clock.advance(5)
    assert mutate(store, method) == first
    assert contents(place) == before


@pytest.mark.parametrize("name", ["é", "\U0001f600", "\x7f", "\2", '"', "\\", "\u2028", "</a>"])
def test_an_id_goes_into_the_hash_with_the_least_escapes(name: str) -> None:
    request = AcquireLeaseRequest(actor_id=name, holder_id=name, ttl_ms=1)
    text = json.dumps(
        {"actorId": name, "holderId": name, "ttlMs": 1}, ensure_ascii=False, separators=(",", ":")
    )
    receipt = Receipt.of("lease.acquire", "r", request)
    assert receipt.params_hash == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("method", MUTATIONS)
def test_a_receipt_holds_method_hash_response_and_time(
    store: Broker, place: Place, clock: ManualClock, method: str
) -> None:
    prepare(store, clock, method)
    clock.advance(5)
    response = mutate(store, method)
    wire = None if response is None else response.to_json()
    ((*facts, response_json, created_at),) = rows(place, "SELECT * FROM mutation_receipts")
    assert facts == ["r", method, canonical_hash(MUTATIONS[method][1])]
    assert json.loads(response_json) == wire
    assert created_at == clock.wall_ms


@pytest.mark.parametrize("method", MUTATIONS)
def test_a_receipt_is_good_whatever_has_happened_to_the_lease_since(
    store: Broker, clock: ManualClock, method: str
) -> None:
    prepare(store, clock, method)
    first = mutate(store, method)
    clock.advance(10_000)
    store.acquire_lease({"actorId": "zoe", "streamId": "s", "holderId": "h", "ttlMs": 9_000})
    assert mutate(store, method) == first


def test_a_release_is_answered_with_none_again(store: Broker) -> None:
    mutate(store, "lease.acquire", None)
    assert mutate(store, "lease.release") is None
    assert mutate(store, "lease.release") is None
    with expect_refusal(StaleLease, actorId="ann"):
        mutate(store, "lease.release", None)


@pytest.mark.parametrize("method", [method for method in MUTATIONS if method != "lease.acquire"])
def test_an_id_used_by_another_method_is_a_conflict(store: Broker, method: str) -> None:
    mutate(store, "lease.acquire")
    with expect_refusal(IdempotencyConflict, requestId="r", method=method):
        mutate(store, method)


def test_a_takeover_with_the_parameters_of_an_acquire_is_another_method(store: Broker) -> None:
    mutate(store, "lease.acquire")
    with expect_refusal(IdempotencyConflict, requestId="r", method="lease.takeover"):
        store.takeover_lease(ACQUIRE, request_id="r")


@pytest.mark.parametrize(
    "changes",
    [
        {"ttlMs": 101},
        {"holderId": "i"},
        {"actorId": "bob"},
        {"streamId": "t"},
        {"streamId": None},
        {"now": 5},
        {"now": 1_000},
    ],
)
def test_other_parameters_are_a_conflict_and_change_nothing(
    store: Broker, place: Place, changes: dict[str, Any]
) -> None:
    mutate(store, "lease.acquire")
    before = contents(place)
    with expect_refusal(IdempotencyConflict, requestId="r", method="lease.acquire"):
        mutate(store, "lease.acquire", **changes)
    assert contents(place) == before


def test_a_stream_given_and_the_same_stream_by_default_are_other_parameters(store: Broker) -> None:
    absent = {"actorId": "ann", "holderId": "h", "ttlMs": 100}
    store.acquire_lease(absent, request_id="r")
    with expect_refusal(IdempotencyConflict, requestId="r", method="lease.acquire"):
        store.acquire_lease(absent | {"streamId": "ann"}, request_id="r")


@pytest.mark.parametrize(
    "request_again",
    [
        dict(reversed(ACQUIRE.items())),
        ACQUIRE | {"ttlMs": 100.0},
        ACQUIRE | {"now": None},
        AcquireLeaseRequest(actor_id="ann", stream_id="s", holder_id="h", ttl_ms=100),
        {"actor_id": "ann", "stream_id": "s", "holder_id": "h", "ttl_ms": 100},
    ],
    ids=str,
)
def test_the_same_parameters_written_otherwise_are_the_same(
    store: Broker, request_again: Any
) -> None:
    first = mutate(store, "lease.acquire")
    assert store.acquire_lease(request_again, request_id="r") == first


def test_the_time_that_was_sent_counts(store: Broker) -> None:
    first = mutate(store, "lease.acquire", now=7)
    assert mutate(store, "lease.acquire", now=7.0) == first
    with expect_refusal(IdempotencyConflict, requestId="r", method="lease.acquire"):
        mutate(store, "lease.acquire")


def test_the_id_itself_does_not_count(store: Broker, place: Place, clock: ManualClock) -> None:
    mutate(store, "lease.acquire", "one")
    clock.advance(100)
    mutate(store, "lease.acquire", "two")
    hashes = rows(place, "SELECT DISTINCT params_hash FROM mutation_receipts")
    assert hashes == [(canonical_hash(ACQUIRE),)]


@pytest.mark.parametrize("other", ["R", "r ", " r", "r\u0301"])
def test_an_id_of_another_spelling_is_another_id(
    store: Broker, clock: ManualClock, other: str
) -> None:
    mutate(store, "lease.acquire")
    clock.advance(100)
    assert mutate(store, "lease.acquire", other).epoch == 2


def test_without_an_id_nothing_is_recorded(store: Broker, place: Place) -> None:
    mutate(store, "lease.acquire", None)
    assert rows(place, "SELECT * FROM mutation_receipts") == []


def test_a_refused_mutation_leaves_no_receipt_and_the_id_can_be_used(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    with expect_refusal(StaleLease, actorId="ann"):
        mutate(store, "lease.heartbeat")
    with expect_refusal(InvalidRequest, field="ttlMs"):
        mutate(store, "lease.acquire", ttlMs=2**53 - 1)
    assert rows(place, "SELECT * FROM mutation_receipts") == []
    assert mutate(store, "lease.acquire").epoch == 1


def test_validation_comes_before_the_receipt(store: Broker) -> None:
    mutate(store, "lease.acquire")
    with expect_refusal(InvalidRequest, field="holderId"):
        mutate(store, "lease.acquire", holderId="")


def test_a_bad_id_comes_after_the_request_itself(store: Broker) -> None:
    with expect_refusal(InvalidRequest, field="ttlMs"):
        mutate(store, "lease.acquire", "", ttlMs=0)


def test_the_greatest_duration_is_recovered_although_time_has_moved_on(
    store: Broker, clock: ManualClock
) -> None:
    first = mutate(store, "lease.acquire", ttlMs=2**53 - 1 - 1_000)
    clock.advance(10)
    assert mutate(store, "lease.acquire", ttlMs=2**53 - 1 - 1_000) == first


def test_a_receipt_that_appears_after_the_first_look_is_found_in_the_transaction(
    store: Broker, place: Place
) -> None:
    first = mutate(store, "lease.acquire")
    before = contents(place)
    late = acquire_operation(ACQUIRE, "r")
    assert store._write(lambda: Write(late.apply)) == first
    other = acquire_operation(ACQUIRE | {"ttlMs": 1}, "r")
    with expect_refusal(IdempotencyConflict, requestId="r", method="lease.acquire"):
        store._write(lambda: Write(other.apply))
    assert contents(place) == before


def test_a_receipt_outlives_the_store_that_recorded_it(place: Place, clock: ManualClock) -> None:
    with open_store(place, clock) as store:
        first = mutate(store, "lease.acquire")
    clock.advance(1_000)
    with open_store(place, clock) as store:
        assert mutate(store, "lease.acquire") == first


# --- Capacity ---------------------------------------------------------------------------------


def fill(store: Broker, clock: ManualClock, *request_ids: str, step: int = 1) -> None:
    for request_id in request_ids:
        mutate(store, "lease.acquire", request_id, actorId=f"a-{request_id}", streamId=request_id)
        clock.advance(step)


def kept(place: Place) -> list[str]:
    query = "SELECT request_id FROM mutation_receipts ORDER BY created_at, request_id"
    return [request_id for (request_id,) in rows(place, query)]


def test_the_oldest_receipt_makes_room_for_the_new_one(place: Place, clock: ManualClock) -> None:
    with open_store(place, clock, receipt_capacity=3) as store:
        fill(store, clock, "d", "c", "b")
        assert kept(place) == ["d", "c", "b"]
        fill(store, clock, "a")
        assert kept(place) == ["c", "b", "a"]


def test_of_receipts_of_one_moment_the_first_by_id_goes(place: Place, clock: ManualClock) -> None:
    with open_store(place, clock, receipt_capacity=3) as store:
        fill(store, clock, "b", "B", "é", "a", step=0)
        assert kept(place) == ["a", "b", "é"]


def test_the_new_receipt_stays_even_if_it_is_the_first_by_order(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock, receipt_capacity=1) as store:
        fill(store, clock, "b", "a", step=0)
        assert kept(place) == ["a"]


def test_a_smaller_capacity_takes_effect_with_the_next_receipt(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock) as store:
        fill(store, clock, *"abcdef")
    with open_store(place, clock, receipt_capacity=2, nonce=lambda: "n") as store:
        assert kept(place) == list("abcdef")
        fill(store, clock, "g")
        assert kept(place) == ["f", "g"]


def test_a_recovered_response_makes_no_room(place: Place, clock: ManualClock) -> None:
    with open_store(place, clock, receipt_capacity=2) as store:
        fill(store, clock, "a", "b")
        mutate(store, "lease.acquire", "a", actorId="a-a", streamId="a")
        assert kept(place) == ["a", "b"]


def test_b38_a_mutation_whose_receipt_has_made_room_runs_again(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock, receipt_capacity=1) as store:
        first = mutate(store, "lease.acquire")
        clock.advance(100)
        fill(store, clock, "other")
        assert mutate(store, "lease.acquire").epoch == first.epoch + 1


def test_room_is_made_in_the_same_transaction_as_the_mutation(
    path: Path, clock: ManualClock
) -> None:
    with open_store(path, clock, receipt_capacity=1) as store:
        fill(store, clock, "a")
        before = contents(path)
        with raw(path) as other:
            other.execute(
                "CREATE TRIGGER no BEFORE INSERT ON mutation_receipts"
                " BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
        with pytest.raises(DatabaseError):
            fill(store, clock, "b")
    assert contents(path) == before


def test_making_room_scans_no_table(store: Broker, path: Path) -> None:
    steps = query_plan(path, _MAKE_ROOM)
    assert any("mutation_receipts_created_idx" in step for step in steps)
    assert not any("TEMP B-TREE" in step for step in steps)
    assert all("SCAN" not in step or "USING COVERING INDEX" in step for step in steps)


# --- Receipts of another writer ----------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["{", "5", "null", '"text"', "[]", "{}", '{"actorId":"ann"}', "[" * 5_000]
)
def test_a_receipt_that_holds_no_lease_is_named(store: Broker, place: Place, text: str) -> None:
    mutate(store, "lease.acquire")
    with client(place) as other:
        other.execute("UPDATE mutation_receipts SET response_json = ?", (text,))
    look: list[Callable[[], object]] = [
        lambda: mutate(store, "lease.acquire"),
        lambda: store._write(lambda: Write(acquire_operation(ACQUIRE, "r").apply)),
    ]
    for find in look:
        with expect_refusal(CorruptRow, table="mutation_receipts", row="r", column="response_json"):
            find()


@pytest.mark.parametrize("method", sorted(set(MUTATIONS) - {"lease.release"}))
def test_a_receipt_of_nothing_is_no_answer_to_who_asks_for_a_lease(
    store: Broker, place: Place, clock: ManualClock, method: str
) -> None:
    prepare(store, clock, method)
    mutate(store, method)
    with client(place) as other:
        other.execute("UPDATE mutation_receipts SET response_json = 'null'")
    before = contents(place)
    with expect_refusal(CorruptRow, table="mutation_receipts", row="r", column="response_json"):
        mutate(store, method)
    assert contents(place) == before
