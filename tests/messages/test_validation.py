"""Validation: which fault is named and how, and that no way in is unchecked."""

from __future__ import annotations

import math
from collections import UserDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import ValidationError

from broker import Broker
from broker.errors import InvalidRequest
from broker.messages import (
    AcquireLeaseRequest,
    CommitRequest,
    HeartbeatLeaseRequest,
    LeaseCredential,
    ListPendingOutboxRequest,
    ListStreamsRequest,
    NewEvent,
    ReadAuthorizedEventsPageRequest,
    ReadModelSourcesRequest,
    Request,
    TakeoverLeaseRequest,
    validate,
    validate_request_id,
)
from tests.messages.examples import (
    ACQUIRE,
    BAD_IDS,
    COMMIT,
    CREDENTIAL,
    EVENT,
    FIELDS_IN_ORDER,
    HEARTBEAT,
    LIST_KINDS,
    PAGE,
    FieldPath,
    changed,
    name_of,
)
from tests.support import expect_refusal

# --- Which fault ------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(len(FIELDS_IN_ORDER)))
def test_of_several_faults_the_first_field_is_reported(first: int) -> None:
    request = COMMIT
    for path in reversed(FIELDS_IN_ORDER[first:]):
        request = changed(request, path, math.nan)
    with expect_refusal(InvalidRequest, field=name_of(FIELDS_IN_ORDER[first])):
        validate(CommitRequest, request)


def test_a_fault_in_an_earlier_item_of_an_array_comes_first() -> None:
    request = COMMIT | {"events": [EVENT, EVENT | {"traceId": ""}, EVENT | {"eventId": ""}]}
    with expect_refusal(InvalidRequest, field="events[1].traceId"):
        validate(CommitRequest, request)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (("surprise",), "surprise"),
        (("lease", "holderId"), "lease.holderId"),
        (("events", 0, "event_type_"), "events[0].event_type_"),
        (("outbox", 0, "x.y"), "outbox[0].x.y"),
        (("projections", 0, "snake_case"), "projections[0].snake_case"),
    ],
)
def test_an_unknown_field_is_refused_by_its_own_path(path: FieldPath, field: str) -> None:
    with expect_refusal(InvalidRequest, field=field):
        validate(CommitRequest, changed(COMMIT, path, 1))


@pytest.mark.parametrize("last", FIELDS_IN_ORDER, ids=name_of)
def test_unknown_fields_come_after_all_known_ones(last: FieldPath) -> None:
    request = changed(COMMIT, ("aaa",), 1)
    request = changed(request, ("lease", "aaa"), 1)
    with expect_refusal(InvalidRequest, field=name_of(last)):
        validate(CommitRequest, changed(request, last, math.nan))


@pytest.mark.parametrize("changes", [{"limit": 129}, {"surprise": 1}, {"lease": None}])
def test_a_page_that_ends_before_it_begins_comes_in_the_order_of_the_fields(
    changes: dict[str, Any],
) -> None:
    with expect_refusal(InvalidRequest, field="throughRevision"):
        validate(ReadAuthorizedEventsPageRequest, PAGE | {"throughRevision": 0} | changes)
    with expect_refusal(InvalidRequest, field="afterRevision"):
        request = PAGE | {"throughRevision": 0, "afterRevision": -1} | changes
        validate(ReadAuthorizedEventsPageRequest, request)


@pytest.mark.parametrize("given", [None, 5, "text", [], [("actorId", "a")], {1, 2}])
def test_what_is_no_request_at_all_is_refused(given: Any) -> None:
    with expect_refusal(InvalidRequest, field="request"):
        validate(AcquireLeaseRequest, given)


def test_another_operations_request_is_refused() -> None:
    acquire = AcquireLeaseRequest(actor_id="a", holder_id="h", ttl_ms=1)
    with expect_refusal(InvalidRequest, field="request"):
        validate(TakeoverLeaseRequest, acquire)


# --- How it is reported -----------------------------------------------------------------------


@pytest.mark.parametrize("limit", [513, 513.0, 2**53 - 1])
@pytest.mark.parametrize("kind", LIST_KINDS)
def test_a_limit_over_512_is_reported_as_a_limit(kind: type[Request], limit: float) -> None:
    with expect_refusal(InvalidRequest, limit=limit):
        validate(kind, LIST_KINDS[kind] | {"limit": limit})


@pytest.mark.parametrize("limit", [0, -1, 2**53, 1.5, "513", True])
@pytest.mark.parametrize("kind", LIST_KINDS)
def test_a_limit_that_is_none_is_reported_as_a_field(kind: type[Request], limit: object) -> None:
    with expect_refusal(InvalidRequest, field="limit"):
        validate(kind, LIST_KINDS[kind] | {"limit": limit})


@pytest.mark.parametrize("bad", [5, "a\0", "\ud800", "x" * 1_025, "é" * 513, True])
@pytest.mark.parametrize("kind", [ListStreamsRequest, ReadModelSourcesRequest])
@pytest.mark.parametrize("name", ["afterStreamId", "after_stream_id"])
def test_a_bad_after_stream_id_is_reported_without_details(
    kind: type[Request], bad: object, name: str
) -> None:
    request = {key: value for key, value in LIST_KINDS[kind].items() if key != "afterStreamId"}
    with expect_refusal(InvalidRequest):
        validate(kind, request | {name: bad})


@pytest.mark.parametrize("name", ["asOf", "as_of"])
def test_a_bad_time_of_the_pending_outbox_is_reported_as_now(name: str) -> None:
    with expect_refusal(InvalidRequest, field="now"):
        validate(ListPendingOutboxRequest, {name: -1})


def test_b57_a_field_under_both_of_its_names_is_refused() -> None:
    with expect_refusal(InvalidRequest, field="actor_id"):
        validate(AcquireLeaseRequest, ACQUIRE | {"actor_id": "b"})


def test_a_fault_is_named_as_on_the_wire_whichever_way_the_field_was_given() -> None:
    given = {"actor_id": "a", "holder_id": "h", "ttl_ms": 0}
    with expect_refusal(InvalidRequest, field="ttlMs"):
        validate(AcquireLeaseRequest, given)


@pytest.mark.parametrize("bad", [{"nonce": "s3cret"}, {"epoch": 0, "nonce": "s3cret\0"}])
def test_a_nonce_is_in_no_error(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as by_pydantic:
        LeaseCredential.model_validate(bad)
    assert "s3cret" not in str(by_pydantic.value)
    with pytest.raises(InvalidRequest) as ours:
        validate(HeartbeatLeaseRequest, HEARTBEAT | {"lease": bad})
    assert "s3cret" not in f"{ours.value} {ours.value.to_json()} {ours.value.__cause__}"


# --- Request ids ------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [*BAD_IDS.values(), "x" * 257, "é" * 128 + "x"])
def test_a_request_id_that_is_none_is_refused(store: Broker, bad: Any) -> None:
    with expect_refusal(InvalidRequest, field="requestId"):
        store.acquire_lease(ACQUIRE, request_id=bad)
    assert store.get_lease({"actorId": "a"}) is None


@pytest.mark.parametrize("bad", [*BAD_IDS.values(), "x" * 257])
def test_a_refused_request_id_is_explained_in_words_and_not_by_a_pattern(bad: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_request_id(bad)
    said = str(caught.value)
    assert said.startswith("requestId: ")
    assert "pattern" not in said
    assert not set("^$[]\\") & set(said)


@pytest.mark.parametrize("good", ["x" * 256, "é" * 128, "\U0001f600" * 64, "'"])
def test_a_request_id_may_have_256_bytes(good: str) -> None:
    assert validate_request_id(good) == good


# --- Ways in ----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [MappingProxyType, UserDict])
def test_any_mapping_is_as_good_as_a_dict(make: Callable[[Any], Any]) -> None:
    request = HEARTBEAT | {"lease": make(CREDENTIAL)}
    assert validate(HeartbeatLeaseRequest, make(request)) == validate(
        HeartbeatLeaseRequest, HEARTBEAT
    )


def test_a_request_that_was_made_unchecked_gets_past_no_operation(store: Broker) -> None:
    request = AcquireLeaseRequest.model_construct(actor_id="a\0", holder_id="h", ttl_ms=5)
    with expect_refusal(InvalidRequest, field="actorId"):
        store.acquire_lease(request)
    with expect_refusal(InvalidRequest, field="holderId"):
        store.acquire_lease(AcquireLeaseRequest.model_construct(actor_id="a", ttl_ms=5))


def test_an_event_that_was_made_unchecked_gets_past_no_operation(store: Broker) -> None:
    event = NewEvent.model_construct(event_id="", event_type="t", payload=None)
    with expect_refusal(InvalidRequest, field="events[0].eventId"):
        store.commit(COMMIT | {"events": [event]})


def test_a_payload_that_was_changed_meanwhile_gets_past_no_operation(store: Broker) -> None:
    payload: dict[str, Any] = {"a": 1}
    request = CommitRequest.model_validate(changed(COMMIT, ("events", 0, "payload"), payload))
    request.events[0].payload["a"] = math.nan
    with expect_refusal(InvalidRequest, field="events[0].payload"):
        store.commit(request)
