"""Messages: what a request may hold, which fault is named, and that no way in is unchecked."""

from __future__ import annotations

import copy
import json
import math
import re
from collections import UserDict
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import ValidationError

from broker import ABSENT, Broker, json_schemas
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import InvalidRequest
from broker.messages import (
    REQUESTS,
    RESULTS,
    AcquireLeaseRequest,
    CommitRequest,
    CommitResult,
    EventsPage,
    HeartbeatLeaseRequest,
    JournalEvent,
    Lease,
    LeaseCredential,
    ListPendingOutboxRequest,
    ListStreamsRequest,
    MarkOutboxDeliveredRequest,
    NewEvent,
    ReadAuthorizedEventsPageRequest,
    ReadEventsRequest,
    ReadModelEventsRequest,
    ReadModelSource,
    ReadModelSourcesRequest,
    Request,
    Result,
    StoredEvent,
    StoredOutboxMessage,
    StoredProjection,
    TakeoverLeaseRequest,
    validate,
    validate_request_id,
)
from tests.support import expect_refusal

CREDENTIAL = {"epoch": 1, "nonce": "nonce"}
ACQUIRE: dict[str, Any] = {"actorId": "a", "streamId": "s", "holderId": "h", "ttlMs": 5}
HEARTBEAT: dict[str, Any] = {"actorId": "a", "lease": CREDENTIAL, "ttlMs": 5}
EVENT = {
    "eventId": "e",
    "eventType": "t",
    "payload": {"a": 1},
    "occurredAt": 3,
    "correlationId": "c",
    "causationId": "d",
    "traceId": "f",
}
OUTBOX = {
    "outboxId": "o",
    "destination": "mail",
    "payload": None,
    "eventId": "e",
    "availableAt": 4,
}
PROJECTION = {"projectionId": "p", "value": [1]}
COMMIT: dict[str, Any] = {
    "messageId": "m",
    "actorId": "a",
    "lease": CREDENTIAL,
    "streamId": "s",
    "expectedRevision": 0,
    "events": [EVENT],
    "outbox": [OUTBOX],
    "projections": [PROJECTION],
    "inboxResult": "reply",
    "committedAt": 7,
}
PAGE: dict[str, Any] = {
    "streamId": "s",
    "afterRevision": 2,
    "throughRevision": 3,
    "limit": 4,
    "actorId": "a",
    "lease": CREDENTIAL,
    "maxBytes": 5,
}
LIST: dict[str, Any] = {"workspaceId": "w", "prefix": "p", "afterStreamId": "p1", "limit": 3}
PENDING: dict[str, Any] = {"limit": 3, "asOf": 4}
DELIVERED: dict[str, Any] = {"outboxId": "o", "deliveredAt": 4}

COMPLETE: dict[type[Request], dict[str, Any]] = {
    AcquireLeaseRequest: ACQUIRE | {"now": 1},
    HeartbeatLeaseRequest: HEARTBEAT | {"now": 1},
    CommitRequest: COMMIT,
    ReadAuthorizedEventsPageRequest: PAGE,
    ListStreamsRequest: LIST,
    ListPendingOutboxRequest: PENDING,
    MarkOutboxDeliveredRequest: DELIVERED,
}

Path_ = tuple[str | int, ...]


def changed(request: dict[str, Any], path: Path_, value: object) -> dict[str, Any]:
    """A copy of a request with the value at a path set, or taken out if it is ABSENT."""
    whole = copy.deepcopy(request)
    place: Any = whole
    for step in path[:-1]:
        place = place[step]
    if value is ABSENT:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return whole


def name_of(path: Path_) -> str:
    """A path as it is reported: `events[0].payload`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


# --- Ids --------------------------------------------------------------------------------------

ID_PATHS: list[tuple[type[Request], Path_]] = [
    (AcquireLeaseRequest, ("actorId",)),
    (AcquireLeaseRequest, ("streamId",)),
    (AcquireLeaseRequest, ("holderId",)),
    (HeartbeatLeaseRequest, ("lease", "nonce")),
    *[(CommitRequest, (name,)) for name in ("messageId", "actorId", "streamId")],
    *[
        (CommitRequest, ("events", 0, name))
        for name in ("eventId", "eventType", "correlationId", "causationId", "traceId")
    ],
    *[(CommitRequest, ("outbox", 0, name)) for name in ("outboxId", "destination", "eventId")],
    (CommitRequest, ("projections", 0, "projectionId")),
    (ListStreamsRequest, ("workspaceId",)),
    (ListStreamsRequest, ("prefix",)),
    (MarkOutboxDeliveredRequest, ("outboxId",)),
]
BAD_IDS = {
    "empty": "",
    "1,025 bytes": "x" * 1_025,
    "1,025 bytes of two each": "é" * 512 + "x",
    "1,028 bytes of four each": "\U0001f600" * 257,
    "NUL": "a\0b",
    "begins with U+0001": "\1a",
    "lone surrogate": "a\ud83d",
    "bytes": b"a",
    "integer": 1,
    "boolean": True,
    "array": ["a"],
}
GOOD_IDS = [
    "x" * 1_024,
    "é" * 512,
    "\U0001f600" * 256,
    "a\1\2\x7f\u2028",
    "' OR 1=1; --",
    '"quoted" \\ %_',
    " ",
    "\U0010ffff",
]


@pytest.mark.parametrize("bad", BAD_IDS.values(), ids=BAD_IDS)
@pytest.mark.parametrize(
    ("kind", "path"), ID_PATHS, ids=lambda each: getattr(each, "__name__", None) or name_of(each)
)
def test_an_id_that_is_none_is_refused_by_its_path(
    kind: type[Request], path: Path_, bad: object
) -> None:
    with expect_refusal(InvalidRequest, field=name_of(path)):
        validate(kind, changed(COMPLETE[kind], path, bad))


@pytest.mark.parametrize("good", GOOD_IDS)
def test_an_id_may_be_any_other_text_of_1024_bytes(good: str) -> None:
    for kind, path in ID_PATHS:
        request = changed(COMPLETE[kind], path, good)
        assert validate(kind, request).to_json() == validate(kind, request).model_dump()
        assert json.dumps(good) in json.dumps(validate(kind, request).to_json())


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


# --- Integers ---------------------------------------------------------------------------------

NATURAL_PATHS: list[tuple[type[Request], Path_]] = [
    (AcquireLeaseRequest, ("now",)),
    (HeartbeatLeaseRequest, ("now",)),
    (CommitRequest, ("expectedRevision",)),
    (CommitRequest, ("committedAt",)),
    (CommitRequest, ("events", 0, "occurredAt")),
    (CommitRequest, ("outbox", 0, "availableAt")),
    (MarkOutboxDeliveredRequest, ("deliveredAt",)),
]
POSITIVE_PATHS: list[tuple[type[Request], Path_]] = [
    (AcquireLeaseRequest, ("ttlMs",)),
    (HeartbeatLeaseRequest, ("ttlMs",)),
    (HeartbeatLeaseRequest, ("lease", "epoch")),
    (ReadAuthorizedEventsPageRequest, ("limit",)),
    (ReadAuthorizedEventsPageRequest, ("maxBytes",)),
    (ListStreamsRequest, ("limit",)),
    (ListPendingOutboxRequest, ("limit",)),
]
INTEGER_PATHS = NATURAL_PATHS + POSITIVE_PATHS
NO_INTEGERS = [
    True,
    False,
    "1",
    " 7 ",
    "1_000",
    b"1",
    1.5,
    -1,
    -1.0,
    2**53,
    float(2**53),
    1e300,
    2**70,
    10**5_000,
    -(2**53),
    math.inf,
    math.nan,
    [1],
]


@pytest.mark.parametrize(
    "value", NO_INTEGERS, ids=lambda value: str(value)[:20] if value != 10**5_000 else "5001 digits"
)
def test_b57_what_is_no_integer_in_range_is_refused_by_its_path(value: object) -> None:
    for kind, path in INTEGER_PATHS:
        with expect_refusal(InvalidRequest, field=name_of(path)):
            validate(kind, changed(COMPLETE[kind], path, value))


@pytest.mark.parametrize(("value", "integer"), [(1.0, 1), (3.0, 3), (1, 1)])
def test_b57_an_integral_float_counts_as_its_integer(value: float, integer: int) -> None:
    for kind, path in INTEGER_PATHS:
        found: Any = validate(kind, changed(COMPLETE[kind], path, value)).to_json()
        for step in path:
            found = found[step]
        assert (type(found), found) == (int, integer)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, MAX_SAFE_INTEGER, float(MAX_SAFE_INTEGER)])
def test_b57_revisions_and_times_go_from_nought_to_the_greatest_safe_integer(value: float) -> None:
    for kind, path in NATURAL_PATHS:
        assert validate(kind, changed(COMPLETE[kind], path, value))


@pytest.mark.parametrize("value", [0, 0.0, -0.0])
def test_b57_epochs_limits_and_durations_are_not_nought(value: float) -> None:
    for kind, path in POSITIVE_PATHS:
        with expect_refusal(InvalidRequest, field=name_of(path)):
            validate(kind, changed(COMPLETE[kind], path, value))


def test_b57_subclasses_of_text_and_integers_are_kept_as_plain_values() -> None:
    class Number(IntEnum):
        FIVE = 5

    class Word(str):
        __slots__ = ()

    request = validate(AcquireLeaseRequest, ACQUIRE | {"ttlMs": Number.FIVE, "actorId": Word("w")})
    assert (type(request.ttl_ms), type(request.actor_id)) == (int, str)
    assert (request.ttl_ms, request.actor_id) == (5, "w")


# --- Limits and other special details -----------------------------------------------------------

LIST_KINDS: dict[type[Request], dict[str, Any]] = {
    ListStreamsRequest: LIST,
    ReadModelEventsRequest: {"workspaceId": "w"},
    ReadModelSourcesRequest: {"workspaceId": "w"},
}


@pytest.mark.parametrize("limit", [513, 513.0, 2**53 - 1])
@pytest.mark.parametrize("kind", LIST_KINDS)
def test_a_limit_over_512_is_reported_as_a_limit(kind: type[Request], limit: float) -> None:
    with expect_refusal(InvalidRequest, limit=limit):
        validate(kind, LIST_KINDS[kind] | {"limit": limit})


@pytest.mark.parametrize("limit", [0, -1, 2**53, 1.5, "513", True, None])
@pytest.mark.parametrize("kind", LIST_KINDS)
def test_a_limit_that_is_none_is_reported_as_a_field(kind: type[Request], limit: object) -> None:
    with expect_refusal(InvalidRequest, field="limit"):
        validate(kind, LIST_KINDS[kind] | {"limit": limit})


@pytest.mark.parametrize("kind", LIST_KINDS)
def test_512_is_the_greatest_limit_of_a_list(kind: type[Request]) -> None:
    assert validate(kind, LIST_KINDS[kind] | {"limit": 512})


def test_128_is_the_greatest_limit_of_a_page() -> None:
    assert validate(ReadAuthorizedEventsPageRequest, PAGE | {"limit": 128}).limit == 128
    with expect_refusal(InvalidRequest, field="limit"):
        validate(ReadAuthorizedEventsPageRequest, PAGE | {"limit": 129})


@pytest.mark.parametrize("bad", [5, "a\0", "\ud800", "x" * 1_025, "é" * 513, True])
@pytest.mark.parametrize("kind", [ListStreamsRequest, ReadModelSourcesRequest])
@pytest.mark.parametrize("name", ["afterStreamId", "after_stream_id"])
def test_a_bad_after_stream_id_is_reported_without_details(
    kind: type[Request], bad: object, name: str
) -> None:
    request = {key: value for key, value in LIST_KINDS[kind].items() if key != "afterStreamId"}
    with expect_refusal(InvalidRequest):
        validate(kind, request | {name: bad})


@pytest.mark.parametrize("good", ["", None, "x" * 1_024])
def test_an_after_stream_id_may_be_empty_or_absent(good: str | None) -> None:
    request = LIST | {"afterStreamId": good}
    assert validate(ListStreamsRequest, request).after_stream_id == good


@pytest.mark.parametrize("name", ["asOf", "as_of"])
def test_a_bad_time_of_the_pending_outbox_is_reported_as_now(name: str) -> None:
    with expect_refusal(InvalidRequest, field="now"):
        validate(ListPendingOutboxRequest, {name: -1})


def test_a_page_that_ends_before_it_begins_is_refused_by_field() -> None:
    with expect_refusal(InvalidRequest, field="throughRevision"):
        validate(ReadAuthorizedEventsPageRequest, PAGE | {"throughRevision": 1})
    assert validate(ReadAuthorizedEventsPageRequest, PAGE | {"throughRevision": 2})


# --- Arrays and JSON --------------------------------------------------------------------------

ARRAYS = ("events", "outbox", "projections")


@pytest.mark.parametrize("name", ARRAYS)
def test_a_list_or_a_tuple_is_an_array_and_either_is_kept_as_a_tuple(name: str) -> None:
    as_list = validate(CommitRequest, COMMIT)
    as_tuple = validate(CommitRequest, COMMIT | {name: tuple(COMMIT[name])})
    assert as_tuple == as_list
    assert type(getattr(as_list, name)) is tuple


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "make",
    [
        lambda items: (item for item in items),
        lambda _items: {"e"},
        lambda _items: "text",
        lambda _items: b"",
        lambda items: {0: items[0]},
        lambda items: dict(enumerate(items)).values(),
        lambda _items: 0,
    ],
)
def test_anything_else_is_no_array(name: str, make: Callable[[Any], Any]) -> None:
    with expect_refusal(InvalidRequest, field=name):
        validate(CommitRequest, COMMIT | {name: make(COMMIT[name])})


def test_events_must_be_there_but_may_be_empty() -> None:
    assert validate(CommitRequest, COMMIT | {"events": []}).events == ()
    for request in (changed(COMMIT, ("events",), ABSENT), COMMIT | {"events": None}):
        with expect_refusal(InvalidRequest, field="events"):
            validate(CommitRequest, request)


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def looped() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


JSON_PATHS: list[Path_] = [
    ("events", 0, "payload"),
    ("outbox", 0, "payload"),
    ("projections", 0, "value"),
    ("inboxResult",),
]
NO_JSON = [
    math.nan,
    [math.inf],
    {1: "a", "1": "b"},
    {None: 1},
    (1, 2),
    {1, 2},
    b"bytes",
    Path(),
    10**400,
    nested(201),
    nested(50_000),
    looped(),
    {"a": ABSENT},
]


@pytest.mark.parametrize("path", JSON_PATHS, ids=name_of)
@pytest.mark.parametrize("value", NO_JSON, ids=range(len(NO_JSON)))
def test_a_value_that_is_not_json_is_refused_by_its_path(path: Path_, value: object) -> None:
    request = changed(COMMIT, path, None)
    place: Any = request
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with expect_refusal(InvalidRequest, field=name_of(path)):
        validate(CommitRequest, request)


@pytest.mark.parametrize("path", JSON_PATHS, ids=name_of)
@pytest.mark.parametrize(
    "value", [None, False, 0, -0.0, 1e16, 2**70, "", "\ud83d", "\0", [], {}, {"\ud800": 1}]
)
def test_any_finite_json_is_kept_as_it_is(path: Path_, value: object) -> None:
    found: Any = validate(CommitRequest, changed(COMMIT, path, value)).to_json()
    for step in path:
        found = found[step]
    assert (type(found), repr(found)) == (type(value), repr(value))


def test_a_payload_of_200_levels_is_kept() -> None:
    request = changed(COMMIT, ("events", 0, "payload"), nested(200))
    assert validate(CommitRequest, request).events[0].payload == nested(200)


# --- Which fault ------------------------------------------------------------------------------

FIELDS_IN_ORDER: list[Path_] = [
    ("messageId",),
    ("actorId",),
    ("lease", "epoch"),
    ("lease", "nonce"),
    ("streamId",),
    ("expectedRevision",),
    *[("events", 0, name) for name in EVENT],
    *[("outbox", 0, name) for name in OUTBOX],
    *[("projections", 0, name) for name in PROJECTION],
    ("inboxResult",),
    ("committedAt",),
]


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
def test_an_unknown_field_is_refused_by_its_own_path(path: Path_, field: str) -> None:
    with expect_refusal(InvalidRequest, field=field):
        validate(CommitRequest, changed(COMMIT, path, 1))


@pytest.mark.parametrize("last", FIELDS_IN_ORDER, ids=name_of)
def test_unknown_fields_come_after_all_known_ones(last: Path_) -> None:
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


# --- Ways in ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", COMPLETE, ids=lambda kind: kind.__name__)
def test_b57_the_wire_form_is_camel_case_and_can_be_loaded_again(kind: type[Request]) -> None:
    request = kind.model_validate(COMPLETE[kind])
    form = json.loads(json.dumps(request.to_json()))
    assert form == COMPLETE[kind]
    assert kind.model_validate(form) == request
    assert kind.model_validate_json(request.model_dump_json()) == request


@pytest.mark.parametrize("kind", COMPLETE, ids=lambda kind: kind.__name__)
def test_keywords_in_python_spelling_make_the_same_request(kind: type[Request]) -> None:
    request = kind.model_validate(COMPLETE[kind])
    assert kind(**{name: getattr(request, name) for name in kind.model_fields}) == request


@pytest.mark.parametrize("make", [MappingProxyType, UserDict])
def test_any_mapping_is_as_good_as_a_dict(make: Callable[[Any], Any]) -> None:
    request = HEARTBEAT | {"lease": make(CREDENTIAL)}
    assert validate(HeartbeatLeaseRequest, make(request)) == validate(
        HeartbeatLeaseRequest, HEARTBEAT
    )


def test_b57_a_field_under_both_of_its_names_is_refused() -> None:
    with expect_refusal(InvalidRequest, field="actor_id"):
        validate(AcquireLeaseRequest, ACQUIRE | {"actor_id": "b"})


def test_a_fault_is_named_as_on_the_wire_whichever_way_the_field_was_given() -> None:
    given = {"actor_id": "a", "holder_id": "h", "ttl_ms": 0}
    with expect_refusal(InvalidRequest, field="ttlMs"):
        validate(AcquireLeaseRequest, given)


OPTIONAL: dict[type[Request], tuple[str, ...]] = {
    AcquireLeaseRequest: ("streamId", "now"),
    HeartbeatLeaseRequest: ("now",),
    CommitRequest: ("outbox", "projections", "committedAt"),
    ReadAuthorizedEventsPageRequest: ("throughRevision", "maxBytes"),
    ListStreamsRequest: ("afterStreamId",),
    ListPendingOutboxRequest: ("asOf",),
    MarkOutboxDeliveredRequest: ("deliveredAt",),
}


@pytest.mark.parametrize("kind", OPTIONAL, ids=lambda kind: kind.__name__)
def test_null_for_an_optional_field_means_absent(kind: type[Request]) -> None:
    for name in OPTIONAL[kind]:
        absent = validate(kind, changed(COMPLETE[kind], (name,), ABSENT))
        null = validate(kind, changed(COMPLETE[kind], (name,), None))
        assert null == absent
        assert name not in null.to_json()


@pytest.mark.parametrize("name", ["occurredAt", "correlationId", "causationId", "traceId"])
def test_null_for_an_optional_field_of_an_event_means_absent(name: str) -> None:
    null = validate(CommitRequest, changed(COMMIT, ("events", 0, name), None))
    assert null == validate(CommitRequest, changed(COMMIT, ("events", 0, name), ABSENT))
    assert name not in null.to_json()["events"][0]


def test_null_is_a_reply_and_absence_is_none() -> None:
    null = validate(CommitRequest, COMMIT | {"inboxResult": None})
    absent = validate(CommitRequest, changed(COMMIT, ("inboxResult",), ABSENT))
    assert null.to_json()["inboxResult"] is None
    assert "inboxResult" not in absent.to_json()
    assert absent.inbox_result is ABSENT
    assert repr(ABSENT) == "ABSENT"


def test_a_request_is_frozen() -> None:
    request = AcquireLeaseRequest.model_validate(ACQUIRE)
    with pytest.raises(ValidationError, match="frozen"):
        request.ttl_ms = 9


@pytest.mark.parametrize(
    "update", [{"ttl_ms": True}, {"ttl_ms": 2**53}, {"actor_id": ""}, {"surprise": 1}]
)
def test_b57_a_copy_is_validated_like_any_other_request(update: dict[str, Any]) -> None:
    request = AcquireLeaseRequest.model_validate(ACQUIRE)
    with pytest.raises(ValidationError):
        request.model_copy(update=update)


def test_a_copy_has_the_changed_fields_and_the_others() -> None:
    request = AcquireLeaseRequest.model_validate(ACQUIRE)
    assert request.model_copy(update={"ttl_ms": 9}).to_json() == ACQUIRE | {"ttlMs": 9}
    assert request.model_copy() == request


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


def test_a_nonce_is_in_no_representation() -> None:
    lease = Lease("a", "s", "h", 1, "s3cret", 0, 0, 9)
    request = validate(CommitRequest, COMMIT | {"lease": {"epoch": 1, "nonce": "s3cret"}})
    for shown in (lease, lease.credential, request, str(request), f"{lease.credential}"):
        assert "s3cret" not in repr(shown)


@pytest.mark.parametrize("bad", [{"nonce": "s3cret"}, {"epoch": 0, "nonce": "s3cret\0"}])
def test_a_nonce_is_in_no_error(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as by_pydantic:
        LeaseCredential.model_validate(bad)
    assert "s3cret" not in str(by_pydantic.value)
    with pytest.raises(InvalidRequest) as ours:
        validate(HeartbeatLeaseRequest, HEARTBEAT | {"lease": bad})
    assert "s3cret" not in f"{ours.value} {ours.value.to_json()} {ours.value.__cause__}"


# --- Results ----------------------------------------------------------------------------------

STORED_EVENT = StoredEvent("e", "m", "s", 1, "t", {"a": [1]}, 2, 3, "c", None, "f")
FULL_RESULTS: list[tuple[Result, dict[str, Any]]] = [
    (
        Lease("a", "s", "h", 1, "n", 2, 3, 4),
        {
            "actorId": "a",
            "streamId": "s",
            "holderId": "h",
            "epoch": 1,
            "nonce": "n",
            "acquiredAt": 2,
            "heartbeatAt": 3,
            "expiresAt": 4,
        },
    ),
    (
        CommitResult("m", "s", 0, 2, ("e", "f"), (1, 2), (), 9, False, [None]),
        {
            "messageId": "m",
            "streamId": "s",
            "previousRevision": 0,
            "revision": 2,
            "eventIds": ["e", "f"],
            "eventCursors": [1, 2],
            "outboxIds": [],
            "appliedAt": 9,
            "recovered": False,
            "reply": [None],
        },
    ),
    (
        STORED_EVENT,
        {
            "eventId": "e",
            "messageId": "m",
            "streamId": "s",
            "revision": 1,
            "eventType": "t",
            "payload": {"a": [1]},
            "producerEpoch": 2,
            "occurredAt": 3,
            "correlationId": "c",
            "traceId": "f",
        },
    ),
    (
        JournalEvent("e", "m", "s", 1, "t", None, 2, 3, cursor=7),
        {
            "eventId": "e",
            "messageId": "m",
            "streamId": "s",
            "revision": 1,
            "eventType": "t",
            "payload": None,
            "producerEpoch": 2,
            "occurredAt": 3,
            "cursor": 7,
        },
    ),
    (
        EventsPage((STORED_EVENT,), 1, 4, done=False),
        {
            "events": [STORED_EVENT.to_json()],
            "nextRevision": 1,
            "throughRevision": 4,
            "done": False,
        },
    ),
    (
        ReadModelSource("s", 3, active=True),
        {"streamId": "s", "generation": 3, "active": True},
    ),
    (
        StoredProjection("s", 1, None, 5),
        {"streamId": "s", "revision": 1, "value": None, "updatedAt": 5},
    ),
    (
        StoredOutboxMessage("o", "m", "mail", None, 1, 2, 0),
        {
            "outboxId": "o",
            "messageId": "m",
            "destination": "mail",
            "payload": None,
            "createdAt": 1,
            "availableAt": 2,
            "attempts": 0,
        },
    ),
]


@pytest.mark.parametrize(("result", "form"), FULL_RESULTS, ids=lambda each: type(each).__name__)
def test_a_result_has_its_wire_form_and_comes_back_from_it(
    result: Result, form: dict[str, Any]
) -> None:
    assert result.to_json() == form
    assert type(result).from_json(json.loads(json.dumps(form))) == result


def test_every_kind_of_result_is_tried_above() -> None:
    assert {type(result) for result, _ in FULL_RESULTS} == set(RESULTS)


@pytest.mark.parametrize("reply", [None, False, 0, "", [], {}])
def test_a_reply_that_is_empty_is_still_a_reply(reply: Any) -> None:
    result = CommitResult("m", "s", 0, 0, (), (), (), 9, recovered=True, reply=reply)
    assert result.to_json()["reply"] == reply
    assert CommitResult.from_json(result.to_json()) == result


def test_a_commit_without_a_reply_has_none_on_the_wire() -> None:
    result = CommitResult("m", "s", 0, 0, (), (), (), 9, recovered=True)
    assert "reply" not in result.to_json()
    assert CommitResult.from_json(result.to_json()).reply is ABSENT


def test_an_undelivered_message_of_no_event_has_neither_on_the_wire() -> None:
    message = StoredOutboxMessage("o", "m", "mail", None, 1, 2, 0)
    assert {"eventId", "deliveredAt"}.isdisjoint(message.to_json())


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("form", [{}, {"surprise": 1}])
def test_a_form_that_is_no_result_is_refused(kind: type[Result], form: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        kind.from_json(form)


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_a_result_is_frozen_and_has_no_room_for_more(kind: type[Result]) -> None:
    (result,) = [result for result, _ in FULL_RESULTS if type(result) is kind]
    with pytest.raises((AttributeError, TypeError)):
        result.surprise = 1  # type: ignore[attr-defined]  # which is the point


# --- JSON Schema ------------------------------------------------------------------------------

SCHEMAS = json_schemas()
TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
CHECKED = {
    "$ref",
    "anyOf",
    "type",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "items",
    "properties",
    "required",
    "additionalProperties",
}
SAYING_NOTHING = {"$defs", "title", "description", "default"}


def accepts(schema: Any, value: Any, whole: dict[str, Any]) -> bool:
    """Whether a schema accepts a value, for as much of JSON Schema as ours are written in."""
    assert schema.keys() <= CHECKED | SAYING_NOTHING, schema
    if "$ref" in schema:
        return accepts(whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, whole)
    if "anyOf" in schema:
        return any(accepts(one, value, whole) for one in schema["anyOf"])
    if "type" in schema and not TYPES[schema["type"]](value):
        return False
    if isinstance(value, str):
        low, high = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        return bool(low <= len(value) <= high and re.search(schema.get("pattern", ""), value))
    if type(value) is int:
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        return bool(low <= value <= high)
    if isinstance(value, list):
        return all(accepts(schema.get("items", {}), item, whole) for item in value)
    return not isinstance(value, dict) or accepts_object(schema, value, whole)


def accepts_object(schema: Any, value: dict[str, Any], whole: dict[str, Any]) -> bool:
    properties = schema.get("properties", {})
    known = schema.get("additionalProperties", True) or value.keys() <= properties.keys()
    return (
        known
        and set(schema.get("required", ())) <= value.keys()
        and all(
            accepts(properties[name], item, whole)
            for name, item in value.items()
            if name in properties
        )
    )


def test_there_is_a_schema_of_every_message_and_it_is_json() -> None:
    assert SCHEMAS.keys() == {kind.__name__ for kind in (*REQUESTS, *RESULTS)}
    assert json.loads(json.dumps(SCHEMAS)) == SCHEMAS


def test_a_schema_describes_the_wire_form_and_tells_what_it_is() -> None:
    for schema in SCHEMAS.values():
        assert schema["type"] == "object"
        assert schema["description"]
        assert not any("_" in name for name in schema["properties"])


@pytest.mark.parametrize("kind", COMPLETE, ids=lambda kind: kind.__name__)
def test_a_schema_accepts_a_request_complete_or_with_nothing_optional(kind: type[Request]) -> None:
    schema = SCHEMAS[kind.__name__]
    least = {name: value for name, value in COMPLETE[kind].items() if name not in OPTIONAL[kind]}
    for form in (COMPLETE[kind], least):
        wire = json.loads(json.dumps(validate(kind, form).to_json()))
        assert accepts(schema, wire, schema)


@pytest.mark.parametrize("path", FIELDS_IN_ORDER, ids=name_of)
def test_a_schema_of_commits_refuses_a_field_of_another_type(path: Path_) -> None:
    schema = SCHEMAS["CommitRequest"]
    accepts_anything = path[-1] in {"payload", "value", "inboxResult"}
    assert accepts(schema, changed(COMMIT, path, [False]), schema) == accepts_anything


@pytest.mark.parametrize(("kind", "path"), INTEGER_PATHS, ids=str)
def test_a_schema_knows_the_bounds_of_an_integer(kind: type[Request], path: Path_) -> None:
    schema = SCHEMAS[kind.__name__]
    for value in (-1, 2**53):
        assert not accepts(schema, changed(COMPLETE[kind], path, value), schema)


def test_a_schema_refuses_unknown_fields() -> None:
    schema = SCHEMAS["CommitRequest"]
    assert not accepts(schema, COMMIT | {"surprise": 1}, schema)
    assert not accepts(schema, changed(COMMIT, ("events", 0, "surprise"), 1), schema)


@pytest.mark.parametrize(("result", "form"), FULL_RESULTS, ids=lambda each: type(each).__name__)
def test_a_schema_accepts_a_result(result: Result, form: dict[str, Any]) -> None:
    schema = SCHEMAS[type(result).__name__]
    assert accepts(schema, form, schema)
    for name in schema["required"]:
        assert not accepts(schema, {key: form[key] for key in form if key != name}, schema)


def test_the_authorized_read_is_not_taken_for_the_plain_one() -> None:
    request = {"streamId": "s", "authorization": {"actorId": "a", "lease": CREDENTIAL}}
    with expect_refusal(InvalidRequest, field="authorization"):
        validate(ReadEventsRequest, request)
