"""Fields: what an id, an integer, a limit, an array and a JSON value may be."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

from broker import ABSENT
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import InvalidRequest
from broker.messages import (
    AcquireLeaseRequest,
    CommitRequest,
    HeartbeatLeaseRequest,
    ListStreamsRequest,
    MarkOutboxDeliveredRequest,
    ReadAuthorizedEventsPageRequest,
    Request,
    validate,
)
from tests.messages.examples import (
    ACQUIRE,
    BAD_IDS,
    COMMIT,
    COMPLETE,
    INTEGER_PATHS,
    LIST,
    LIST_KINDS,
    NATURAL_PATHS,
    PAGE,
    POSITIVE_PATHS,
    FieldPath,
    at,
    changed,
    name_of,
)
from tests.support import expect_refusal

# --- Ids --------------------------------------------------------------------------------------

ID_PATHS: list[tuple[type[Request], FieldPath]] = [
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
    kind: type[Request], path: FieldPath, bad: object
) -> None:
    with expect_refusal(InvalidRequest, field=name_of(path)):
        validate(kind, changed(COMPLETE[kind], path, bad))


@pytest.mark.parametrize("good", GOOD_IDS)
def test_an_id_may_be_any_other_text_of_1024_bytes(good: str) -> None:
    for kind, path in ID_PATHS:
        request = changed(COMPLETE[kind], path, good)
        assert validate(kind, request).to_json() == validate(kind, request).model_dump()
        assert json.dumps(good) in json.dumps(validate(kind, request).to_json())


@pytest.mark.parametrize("bad", BAD_IDS.values(), ids=BAD_IDS)
def test_the_refusal_of_an_id_says_what_an_id_is(bad: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate(AcquireLeaseRequest, ACQUIRE | {"actorId": bad})
    assert str(caught.value) == (
        "actorId: must be text of 1 to 1024 bytes in UTF-8,"
        " without NUL and not beginning with U+0001"
    )


@pytest.mark.parametrize("good", ["", None, "x" * 1_024])
def test_an_after_stream_id_may_be_empty_or_absent(good: str | None) -> None:
    request = LIST | {"afterStreamId": good}
    assert validate(ListStreamsRequest, request).after_stream_id == good


# --- Integers ---------------------------------------------------------------------------------

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
        found = at(validate(kind, changed(COMPLETE[kind], path, value)).to_json(), path)
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


# --- Limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LIST_KINDS)
def test_512_is_the_greatest_limit_of_a_list(kind: type[Request]) -> None:
    assert validate(kind, LIST_KINDS[kind] | {"limit": 512})


def test_128_is_the_greatest_limit_of_a_page() -> None:
    assert validate(ReadAuthorizedEventsPageRequest, PAGE | {"limit": 128}).limit == 128
    with expect_refusal(InvalidRequest, field="limit"):
        validate(ReadAuthorizedEventsPageRequest, PAGE | {"limit": 129})


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


JSON_PATHS: list[FieldPath] = [
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
def test_a_value_that_is_not_json_is_refused_by_its_path(path: FieldPath, value: object) -> None:
    with expect_refusal(InvalidRequest, field=name_of(path)):
        validate(CommitRequest, changed(COMMIT, path, value))


@pytest.mark.parametrize("path", JSON_PATHS, ids=name_of)
@pytest.mark.parametrize(
    "value", [None, False, 0, -0.0, 1e16, 2**70, "", "\ud83d", "\0", [], {}, {"\ud800": 1}]
)
def test_any_finite_json_is_kept_as_it_is(path: FieldPath, value: object) -> None:
    found = at(validate(CommitRequest, changed(COMMIT, path, value)).to_json(), path)
    assert (type(found), repr(found)) == (type(value), repr(value))


def test_a_payload_of_200_levels_is_kept() -> None:
    request = changed(COMMIT, ("events", 0, "payload"), nested(200))
    assert validate(CommitRequest, request).events[0].payload == nested(200)
