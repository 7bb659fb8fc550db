"""What a commit is before it meets the database: its hash, its texts, the events too large."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.commits import PreparedCommit, prepare
from broker.errors import IdempotencyConflict, InvalidRequest
from broker.messages import CommitRequest
from tests.support import expect_refusal

REQUEST: dict[str, Any] = {
    "messageId": "m",
    "actorId": "a",
    "lease": {"epoch": 3, "nonce": "n"},
    "streamId": "s",
    "expectedRevision": 4,
    "events": [
        {
            "eventId": "e",
            "eventType": "t",
            "payload": {"b": 1, "a": [True, None, "x"]},
            "occurredAt": 8,
            "correlationId": "c",
            "causationId": "d",
            "traceId": "f",
        },
        {"eventId": "e2", "eventType": "t", "payload": "text"},
    ],
    "outbox": [
        {"outboxId": "o", "destination": "d", "payload": 1, "eventId": "e", "availableAt": 9},
        {"outboxId": "o2", "destination": "d", "payload": {"y": 1, "x": 2}},
    ],
    "projections": [{"projectionId": "p", "value": {"z": 1, "k": []}}],
    "inboxResult": {"ok": True, "n": 0},
    "committedAt": 5,
}
ROOM = 10**6


def hash_of(request: dict[str, Any]) -> str:
    return prepare(request, ROOM).request_hash


def stated_anew(request: dict[str, Any]) -> str:
    """The hash of a request of plain ASCII data without floats, by the rule alone."""
    semantic = {k: v for k, v in request.items() if k not in {"lease", "committedAt"}}
    text = json.dumps(semantic, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


LEAST: dict[str, Any] = {
    name: value
    for name, value in REQUEST.items()
    if name not in {"outbox", "projections", "inboxResult", "committedAt"}
}


@pytest.mark.parametrize(
    "request_",
    [
        REQUEST,
        LEAST,
        LEAST | {"events": []},
        LEAST | {"outbox": [], "projections": []},
        LEAST | {"inboxResult": None},
    ],
)
def test_the_hash_is_that_of_the_canonical_request_without_lease_and_time(
    request_: dict[str, Any],
) -> None:
    assert hash_of(request_) == stated_anew(request_)


@pytest.mark.parametrize(
    "changes",
    [
        {"lease": {"epoch": 9, "nonce": "other"}},
        {"committedAt": None},
        {"committedAt": 77},
        {"expectedRevision": 4.0},
        {"projections": [{"value": {"k": [], "z": 1.0}, "projectionId": "p"}]},
        {"inboxResult": {"n": -0.0, "ok": True}},
        {"events": tuple(REQUEST["events"])},
    ],
    ids=str,
)
def test_this_is_no_other_request(changes: dict[str, Any]) -> None:
    assert hash_of(REQUEST | changes) == hash_of(REQUEST)


def test_the_order_of_keys_makes_no_other_request() -> None:
    assert hash_of(dict(reversed(REQUEST.items()))) == hash_of(REQUEST)


def test_a_message_made_by_hand_is_no_other_request() -> None:
    assert prepare(CommitRequest.model_validate(REQUEST), ROOM).request_hash == hash_of(REQUEST)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        *[("events", name) for name in ("occurredAt", "correlationId", "causationId", "traceId")],
        *[("outbox", name) for name in ("eventId", "availableAt")],
    ],
)
def test_null_that_means_absent_is_left_out_of_the_hash(group: str, name: str) -> None:
    bare = REQUEST[group][1]
    assert hash_of(REQUEST | {group: [bare | {name: None}]}) == hash_of(REQUEST | {group: [bare]})


@pytest.mark.parametrize("name", ["outbox", "projections"])
def test_an_absent_list_a_null_and_an_empty_list(name: str) -> None:
    assert hash_of(LEAST | {name: None}) == hash_of(LEAST)
    assert hash_of(LEAST | {name: []}) != hash_of(LEAST)


@pytest.mark.parametrize(
    "changes",
    [
        {"messageId": "M"},
        {"actorId": "b"},
        {"streamId": "t"},
        {"expectedRevision": 5},
        {"events": REQUEST["events"][:1]},
        {"events": REQUEST["events"][::-1]},
        {"events": [REQUEST["events"][0], REQUEST["events"][1] | {"payload": "text "}]},
        {"events": [REQUEST["events"][0], REQUEST["events"][1] | {"occurredAt": 0}]},
        {"outbox": REQUEST["outbox"][:1]},
        {"projections": [{"projectionId": "p", "value": {"z": True, "k": []}}]},
        {"inboxResult": None},
        {"inboxResult": {"ok": True, "n": "0"}},
    ],
    ids=str,
)
def test_this_is_another_request(changes: dict[str, Any]) -> None:
    assert hash_of(REQUEST | changes) != hash_of(REQUEST)


def test_a_reply_of_null_and_no_reply_are_other_requests() -> None:
    assert hash_of(LEAST | {"inboxResult": None}) != hash_of(LEAST)


def _payload(value: Any) -> dict[str, Any]:
    return LEAST | {"events": [{"eventId": "e", "eventType": "t", "payload": value}]}


@pytest.mark.parametrize(
    ("payload", "canonical"),
    [
        ({"n": 1.0}, '{"n":1}'),
        ({"n": 1e21}, '{"n":1e+21}'),
        ({"n": 2**53 + 1}, '{"n":9007199254740993}'),
        ({"n": 10**30}, '{"n":1' + "0" * 30 + "}"),
        ({"n": -0.0}, '{"n":0}'),
        ({"s": "é\u2028\x7f"}, '{"s":"é\u2028\x7f"}'),
        ({"s": "\ud83d"}, '{"s":"\\ud83d"}'),
        ({"\ufffd": 1, "\U0001f600": 2}, '{"\U0001f600":2,"\ufffd":1}'),
        ({"\ud800": 1}, '{"\\ud800":1}'),
        ({"s": "\1\n"}, '{"s":"\\u0001\\n"}'),
    ],
    ids=ascii,
)
def test_a_payload_goes_into_the_hash_in_its_canonical_form(
    payload: object, canonical: str
) -> None:
    text = (
        '{"actorId":"a","events":[{"eventId":"e","eventType":"t","payload":' + canonical + "}],"
        '"expectedRevision":4,"messageId":"m","streamId":"s"}'
    )
    assert hash_of(_payload(payload)) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("name", ["é", "\U0001f600", "\x7f", "\2", '"', "\\", "\u2028", "</a>"])
def test_an_id_goes_into_the_hash_with_the_least_escapes(name: str) -> None:
    text = json.dumps(
        {"actorId": name, "events": [], "expectedRevision": 0, "messageId": name, "streamId": "s"},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    request = LEAST | {"actorId": name, "messageId": name, "expectedRevision": 0, "events": []}
    assert hash_of(request) == hashlib.sha256(text.encode()).hexdigest()


def test_the_texts_keep_the_callers_order_of_keys() -> None:
    prepared = prepare(REQUEST, ROOM)
    assert list(prepared.payloads) == ['{"b":1,"a":[true,null,"x"]}', '"text"']
    assert list(prepared.outbox_payloads) == ["1", '{"y":1,"x":2}']
    assert list(prepared.values) == ['{"z":1,"k":[]}']
    assert prepared.reply == '{"ok":true,"n":0}'


@pytest.mark.parametrize(("reply", "text"), [(None, "null"), ([], "[]"), (0, "0")])
def test_a_reply_is_there_even_if_it_is_empty(reply: object, text: str) -> None:
    assert prepare(LEAST | {"inboxResult": reply}, ROOM).reply == text
    assert prepare(LEAST, ROOM).reply is None


# --- Ids within the request -------------------------------------------------------------------


def _twice(group: str, name: str, count: int = 2) -> list[dict[str, Any]]:
    bodies: dict[str, dict[str, Any]] = {
        "events": {"eventType": "t", "payload": 0},
        "outbox": {"destination": "d", "payload": 0},
        "projections": {"value": 0},
    }
    id_name = {"events": "eventId", "outbox": "outboxId", "projections": "projectionId"}[group]
    return [bodies[group] | {id_name: name} for _ in range(count)]


def unique(changes: dict[str, Any]) -> PreparedCommit:
    prepared = prepare(LEAST | changes, ROOM)
    prepared.require_unique_ids()
    return prepared


@pytest.mark.parametrize(
    ("group", "field"),
    [("events", "eventId"), ("outbox", "outboxId"), ("projections", "projectionId")],
)
def test_an_id_that_stands_twice_is_a_conflict(group: str, field: str) -> None:
    with expect_refusal(IdempotencyConflict, field=field, id="x"):
        unique({group: _twice(group, "x")})


def test_the_id_that_repeats_first_is_named() -> None:
    names = [_twice("events", name, 1)[0] for name in "abccba"]
    with expect_refusal(IdempotencyConflict, field="eventId", id="c"):
        unique({"events": names})


def test_events_come_before_outbox_and_outbox_before_projections() -> None:
    all_three = {group: _twice(group, "x") for group in ("projections", "outbox", "events")}
    with expect_refusal(IdempotencyConflict, field="eventId", id="x"):
        unique(all_three)
    with expect_refusal(IdempotencyConflict, field="outboxId", id="x"):
        unique(all_three | {"events": []})


def test_one_id_may_name_an_event_a_message_and_a_projection() -> None:
    groups = ("events", "outbox", "projections")
    assert unique({group: _twice(group, "x", 1) for group in groups})


# --- Size -------------------------------------------------------------------------------------


def wire_size(request: dict[str, Any], index: int = 0, occurred_at: int = 2**53 - 1) -> int:
    """The bytes of the page that holds the event alone, by `json` and the rule."""
    event = request["events"][index]
    stored = {
        "messageId": request["messageId"],
        "streamId": request["streamId"],
        "revision": request["expectedRevision"] + index + 1,
        "producerEpoch": request["lease"]["epoch"],
        "occurredAt": occurred_at,
    }
    page = json.dumps([stored | event], ensure_ascii=False, separators=(",", ":"))
    return len(page.encode())


SIZED: dict[str, Any] = {
    "ascii": {"text": "x" * 50},
    "escaped": {"text": '\\"\n\1' * 20},
    "two bytes": "é" * 60,
    "four bytes": ["\U0001f600"] * 20,
}


@pytest.mark.parametrize("payload", SIZED.values(), ids=SIZED)
@pytest.mark.parametrize("event", REQUEST["events"], ids=["full", "bare"])
def test_an_event_that_fits_into_a_page_is_accepted_and_one_byte_more_refused(
    payload: Any, event: dict[str, Any]
) -> None:
    request = LEAST | {"events": [event | {"payload": payload}]}
    size = wire_size(request)
    assert prepare(request, size)
    with expect_refusal(InvalidRequest, field="events[0].payload"):
        prepare(request, size - 1)


def test_the_event_that_is_too_large_is_named() -> None:
    small, large = REQUEST["events"][1], REQUEST["events"][0] | {"payload": "x" * 5_000}
    with expect_refusal(InvalidRequest, field="events[2].payload"):
        prepare(LEAST | {"events": [small, small, large]}, 5_000)


@given(
    payload=st.recursive(
        st.none()
        | st.integers(-(2**53), 2**53)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("aé", max_size=3), inner)
        ),
        max_leaves=6,
    ),
    name=st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0\1"),
        min_size=1,
        max_size=20,
    ),
)
def test_the_size_is_that_of_the_wire_form_whatever_the_event(payload: Any, name: str) -> None:
    event = {"eventId": name, "eventType": name, "payload": payload, "traceId": name}
    request = LEAST | {"messageId": name, "streamId": name, "events": [event]}
    size = wire_size(request)
    assert prepare(request, size)
    with expect_refusal(InvalidRequest, field="events[0].payload"):
        prepare(request, size - 1)


def test_what_is_no_json_is_reported_before_what_is_too_large() -> None:
    events = [
        REQUEST["events"][0] | {"payload": "x" * 900},
        REQUEST["events"][1] | {"payload": {1}},
    ]
    with expect_refusal(InvalidRequest, field="events[1].payload"):
        prepare(LEAST | {"events": events}, 500)
