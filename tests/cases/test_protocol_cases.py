"""Cases B38, B56 and B57 in one place, and those about JSON as a commit meets them.

Each rule has more tests next to the module that keeps it; these try the inputs of the cases.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from broker import Broker
from broker.errors import IdempotencyConflict, InvalidRequest
from broker.messages import AcquireLeaseRequest, validate
from tests.places import Place, rows
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    event,
    expect_refusal,
    open_store,
    runtime_event,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def commit_payload(store: Broker, payload: Any, message_id: str = "message") -> Any:
    """Commit one event with a payload, after those that were committed before."""
    lease = store.get_lease({"actorId": "actor"}) or acquire(store)
    revision = store.get_stream_revision({"streamId": "stream"})
    events = [event(f"e-{message_id}", payload)]
    return store.commit(commit_request(lease, message_id, expectedRevision=revision, events=events))


def stored_payload(place: Place) -> str:
    ((text,),) = rows(place, "SELECT payload_json FROM events")
    return str(text)


# --- B28, B29, B30, B31, B33 --------------------------------------------------------------------


def test_b28_a_replay_with_keys_in_another_order_is_recovered(store: Broker, place: Place) -> None:
    lease = acquire(store)
    payload = {"\ufffd": 1, "\U0001f600": 2, "__proto__": {"x": 1}, "10": 3, "2": 4}
    request = commit_request(lease, events=[event("e", payload)])
    store.commit(request)
    assert stored_payload(place) == '{"\ufffd":1,"\U0001f600":2,"__proto__":{"x":1},"10":3,"2":4}'
    turned = dict(reversed(payload.items()))
    assert store.commit(request | {"events": [event("e", turned)]}).recovered


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-0.0, "0"),
        (1.0, "1"),
        (1e16, "10000000000000000"),
        (9007199254740993, "9007199254740993"),
        (-(2**80), "-1208925819614629174706176"),
    ],
)
def test_b29_a_number_is_stored_in_its_ecmascript_text_and_read_back(
    store: Broker, place: Place, number: float, text: str
) -> None:
    commit_payload(store, [number])
    assert stored_payload(place) == f"[{text}]"
    (found,) = store.read_events({"streamId": "stream"})
    assert found.payload == [number]


@pytest.mark.parametrize(("first", "again"), [(1, 1.0), (0, -0.0), (10**16, 1e16), (100, 1e2)])
def test_b29_numbers_of_one_value_are_one_request(store: Broker, first: int, again: float) -> None:
    request = commit_request(acquire(store), events=[event("e", first)])
    store.commit(request)
    assert store.commit(request | {"events": [event("e", again)]}).recovered


@pytest.mark.parametrize("again", [True, "1", [1], 1.5])
def test_b29_another_value_is_another_request(store: Broker, again: Any) -> None:
    request = commit_request(acquire(store), events=[event("e", 1)])
    store.commit(request)
    with expect_refusal(IdempotencyConflict, messageId="message"):
        store.commit(request | {"events": [event("e", again)]})


@pytest.mark.parametrize("integer", [2**53, 9007199254740993, 1e16])
def test_b29_integers_beyond_the_safe_ones_are_refused_as_revisions(
    store: Broker, integer: float
) -> None:
    with expect_refusal(InvalidRequest, field="expectedRevision"):
        store.commit(commit_request(acquire(store), expectedRevision=integer))


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, math.nan, [math.inf], {"a": -math.inf}])
def test_b30_what_json_would_bend_is_refused_before_anything_is_stored(
    store: Broker, place: Place, value: Any
) -> None:
    with expect_refusal(InvalidRequest, field="events[0].payload"):
        commit_payload(store, value)
    assert rows(place, "SELECT * FROM inbox") == []


def test_b30_a_lone_surrogate_is_kept_in_a_payload_and_refused_in_an_id(
    store: Broker, place: Place
) -> None:
    commit_payload(store, {"\ud83d": "\udc00"})
    assert stored_payload(place) == r'{"\ud83d":"\udc00"}'
    (found,) = store.read_events({"streamId": "stream"})
    assert found.payload == {"\ud83d": "\udc00"}
    with expect_refusal(InvalidRequest, field="messageId"):
        commit_payload(store, 1, "\ud83d")


def test_b30_two_surrogates_that_make_a_character_are_that_character(
    store: Broker, place: Place
) -> None:
    commit_payload(store, "\ud83d\ude00")
    assert stored_payload(place) == '"\U0001f600"'
    with expect_refusal(InvalidRequest, field="events[0].payload"):
        commit_payload(store, {"\ud83d\ude00": 1, "\U0001f600": 2}, "m2")


@pytest.mark.parametrize("depth", [201, 1_000, 100_000])
def test_b31_a_payload_too_deep_is_refused_without_a_recursion_error(
    store: Broker, depth: int
) -> None:
    with expect_refusal(InvalidRequest, field="events[0].payload"):
        commit_payload(store, nested(depth))


def test_b31_a_payload_of_200_levels_goes_all_the_way_and_back(store: Broker) -> None:
    commit_payload(store, nested(200))
    (found,) = store.read_events({"streamId": "stream"})
    assert found.payload == nested(200)


def test_b31_an_integer_of_5000_digits_is_refused(store: Broker) -> None:
    with expect_refusal(InvalidRequest, field="events[0].payload"):
        commit_payload(store, 10**5_000)
    lease = acquire(store, "b", "t")
    with expect_refusal(InvalidRequest, field="expectedRevision"):
        store.commit(commit_request(lease, expectedRevision=10**5_000))


def test_b33_what_was_stored_makes_the_same_request_again(store: Broker) -> None:
    request = commit_request(acquire(store), events=[event("e", {"b": 1.0, "a": 1e2})])
    store.commit(request)
    (found,) = store.read_events({"streamId": "stream"})
    assert store.commit(request | {"events": [event("e", found.payload)]}).recovered


# --- B38 ----------------------------------------------------------------------------------------


def test_b38_one_key_with_two_bodies(store: Broker) -> None:
    request = commit_request(acquire(store), "K", events=[event("e", {"a": 1, "b": 2})])
    store.commit(request)
    assert store.commit(request | {"events": [event("e", {"b": 2, "a": 1})]}).recovered
    with expect_refusal(IdempotencyConflict, messageId="K"):
        store.commit(request | {"events": [event("e", {"a": 1, "b": 2, "c": 3})]})


@pytest.mark.parametrize("other", ["k", "K ", " K", "K" * 300])
def test_b38_keys_are_never_folded_or_trimmed(store: Broker, place: Place, other: str) -> None:
    commit_payload(store, 1, "K")
    assert not commit_payload(store, 2, other).recovered
    keys = rows(place, "SELECT message_id FROM inbox ORDER BY length(message_id), message_id")
    assert sorted(key for (key,) in keys) == sorted(["K", other])


def test_b38_an_empty_key_is_refused(store: Broker) -> None:
    with expect_refusal(InvalidRequest, field="messageId"):
        commit_payload(store, 1, "")


def test_b38_the_inbox_is_never_pruned_so_a_key_is_good_for_ever(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock) as store:
        request = commit_request(acquire(store), "K")
        store.commit(request)
        clock.advance(10 * 365 * 86_400_000)
        acquire(store, "someone else")
    with open_store(place, clock) as store:
        assert store.commit(request).recovered


def test_b38_receipts_are_pruned_at_their_capacity_and_not_a_receipt_sooner(
    place: Place, clock: ManualClock
) -> None:
    request = {"actorId": "a", "holderId": "h", "ttlMs": 10}
    with open_store(place, clock, receipt_capacity=2) as store:
        first = store.acquire_lease(request, request_id="K")
        store.acquire_lease(request | {"actorId": "b"}, request_id="L")
        assert store.acquire_lease(request, request_id="K") == first
        clock.advance(10)
        store.acquire_lease(request | {"actorId": "b"}, request_id="M")
        assert store.acquire_lease(request, request_id="K").epoch == first.epoch + 1


# --- B56, B57 -----------------------------------------------------------------------------------


def test_b56_a_prefix_with_wildcards_and_capitals_means_itself(store: Broker) -> None:
    for number, stream in enumerate(("a_b/1", "axb/1", "A_B/1", "a_b/2")):
        lease = acquire(store, f"actor {number}", stream)
        events = [event(f"e{number}", runtime_event(stream, "ws"))]
        store.commit(commit_request(lease, f"m{number}", events=events))
    request = {"workspaceId": "ws", "prefix": "a_b/", "limit": 10}
    assert store.list_streams(request) == ["a_b/1", "a_b/2"]


@pytest.mark.parametrize(
    "value", [True, False, "1", "1.0", " 7 ", "1_000", b"5", 2**53, -(2**53), 2**70, 1.5]
)
def test_b57_this_is_no_integer(value: Any) -> None:
    request = {"actorId": "a", "holderId": "h", "ttlMs": value}
    with expect_refusal(InvalidRequest, field="ttlMs"):
        validate(AcquireLeaseRequest, request)
    with pytest.raises(ValidationError):
        AcquireLeaseRequest(actor_id="a", holder_id="h", ttl_ms=value)
    with pytest.raises(ValidationError):
        AcquireLeaseRequest(actor_id="a", holder_id="h", ttl_ms=1).model_copy(
            update={"ttl_ms": value}
        )


@pytest.mark.parametrize(("value", "integer"), [(1.0, 1), (1e3, 1_000), (2.0**53 - 1, 2**53 - 1)])
def test_b57_an_integral_float_counts_as_its_integer(value: Any, integer: int) -> None:
    request = validate(AcquireLeaseRequest, {"actorId": "a", "holderId": "h", "ttlMs": value})
    assert (type(request.ttl_ms), request.ttl_ms) == (int, integer)


def test_b57_json_text_is_read_by_the_same_rules() -> None:
    text = '{"actorId":"a","holderId":"h","ttlMs":1e3}'
    assert AcquireLeaseRequest.model_validate_json(text).ttl_ms == 1_000
    with pytest.raises(ValidationError):
        AcquireLeaseRequest.model_validate_json(text.replace("1e3", "true"))


@pytest.mark.parametrize("ms", [86_400_000, 20_000_000_001, 0])
def test_b57_milliseconds_stay_integers_and_never_become_dates(
    store: Broker, place: Place, ms: int
) -> None:
    events = [event("e", occurredAt=ms)]
    store.commit(commit_request(acquire(store), events=events))
    assert rows(place, "SELECT occurred_at FROM events") == [(ms,)]


def test_b57_a_dumped_request_can_be_loaded_again() -> None:
    request = AcquireLeaseRequest(actor_id="a", stream_id="s", holder_id="h", ttl_ms=5)
    assert request.to_json() == {"actorId": "a", "streamId": "s", "holderId": "h", "ttlMs": 5}
    assert AcquireLeaseRequest.model_validate(request.model_dump()) == request
