"""Whose a runtime event is: the recorded cases, and each rule of the shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.runtime_events import DOMAIN_EVENT, READ_MODEL_EVENT_TYPE, ForeignStream, workspace_of

VECTOR_FILE = Path(__file__).parent / "vectors" / "workspaces.jsonl"
VECTORS = [json.loads(line) for line in VECTOR_FILE.read_text(encoding="ascii").splitlines()]
UNSAFE = 2**53
ABSENT = object()
KINDS: dict[str, dict[str, Any]] = {
    "tool.started": {"toolCallId": "call", "toolName": "grep"},
    "tool_start": {"toolCallId": "call", "toolName": "grep"},
    "tool.finished": {"toolCallId": "call", "toolName": "grep", "outcome": "succeeded"},
    "tool_end": {"toolCallId": "call", "toolName": "grep", "outcome": "failed"},
    "result.published": {"publicationId": "p", "hasStructuredOutput": False},
    "result_published": {"publicationId": "p", "hasStructuredOutput": True},
    "run.settled": {"outcome": "completed"},
    "run_settled": {"outcome": "cancelled", "error": "x" * 65_536},
    "process.reclaimed": {"processId": "p", "exitCode": -9, "signal": "é" * 64},
    "process_reclaimed": {"processId": "p", "exitCode": None, "signal": None},
    "domain.event": {"eventType": "t", "eventId": "e"},
}


def runtime_event(kind: str = DOMAIN_EVENT, /, **changes: Any) -> dict[str, Any]:
    """A runtime event of stream `s` and workspace `ws`; `actor_x=…` changes the actor's `x`."""
    actor: dict[str, Any] = {
        "version": 2,
        "revision": 1,
        "workspaceId": "ws",
        "actorKind": "root",
        "actorId": "a",
        "generation": 1,
    }
    event: dict[str, Any] = {
        "version": 2,
        "revision": 1,
        "streamId": "s",
        "sequence": 1,
        "actor": actor,
        "producerEpoch": 1,
        "occurredAt": 0,
        "kind": kind,
        **KINDS[kind],
    }
    for field, value in changes.items():
        record, name = (actor, field[6:]) if field.startswith("actor_") else (event, field)
        record[name] = value
        if value is ABSENT:
            del record[name]
    return event


@pytest.mark.parametrize("vector", VECTORS)
def test_a_recorded_payload_has_the_recorded_owner(vector: dict[str, Any]) -> None:
    payload, stream_id, expect = vector["payload"], vector["streamId"], vector["expect"]
    if "error" in expect:
        with pytest.raises(ForeignStream) as caught:
            workspace_of(payload, stream_id)
        assert caught.value.payload_stream_id == expect["error"]["details"]["payloadStreamId"]
    else:
        assert workspace_of(payload, stream_id) == expect["result"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_both_spellings_is_a_runtime_event(kind: str) -> None:
    assert workspace_of(runtime_event(kind), "s") == "ws"


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (kind, field)
        for kind, fields in KINDS.items()
        for field in (*fields, "kind", "streamId", "sequence", "version", "occurredAt", "actor")
        if field != "error"
    ],
)
def test_a_kind_without_one_of_its_fields_is_nobodys_event(kind: str, field: str) -> None:
    assert workspace_of(runtime_event(kind, **{field: ABSENT}), "s") is None


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (DOMAIN_EVENT, {"version": 2.0, "actor_version": "2", "sequence": 7.0}),
        (DOMAIN_EVENT, {"revision": None, "actor_revision": ABSENT, "producerEpoch": ABSENT}),
        (DOMAIN_EVENT, {"producerEpoch": None, "payload": {"deep": []}, "whatever": object()}),
        (DOMAIN_EVENT, {"occurredAt": UNSAFE - 1, "actor_extra": 1}),
        (DOMAIN_EVENT, {"eventId": "é" * 512}),
        ("run.settled", {"error": "\ud800"}),
        ("process.reclaimed", {"exitCode": 1 - UNSAFE}),
    ],
)
def test_the_shape_leaves_this_much_room(kind: str, changes: dict[str, Any]) -> None:
    assert workspace_of(runtime_event(kind, **changes), "s") == "ws"


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (DOMAIN_EVENT, {"version": True}),
        (DOMAIN_EVENT, {"version": "2.0"}),
        (DOMAIN_EVENT, {"version": 3}),
        (DOMAIN_EVENT, {"revision": "1"}),
        (DOMAIN_EVENT, {"revision": True}),
        (DOMAIN_EVENT, {"revision": 2}),
        (DOMAIN_EVENT, {"actor_version": 1}),
        (DOMAIN_EVENT, {"actor_revision": 0}),
        (DOMAIN_EVENT, {"sequence": True}),
        (DOMAIN_EVENT, {"sequence": "1"}),
        (DOMAIN_EVENT, {"sequence": UNSAFE}),
        (DOMAIN_EVENT, {"sequence": 1e300}),
        (DOMAIN_EVENT, {"sequence": float("inf")}),
        (DOMAIN_EVENT, {"sequence": float("nan")}),
        (DOMAIN_EVENT, {"producerEpoch": False}),
        (DOMAIN_EVENT, {"actor_generation": ABSENT}),
        (DOMAIN_EVENT, {"actor_actorKind": ["root"]}),
        (DOMAIN_EVENT, {"actor_workspaceId": "\ud800"}),
        (DOMAIN_EVENT, {"actor_actorId": "\0"}),
        (DOMAIN_EVENT, {"eventId": "é" * 512 + "a"}),
        (DOMAIN_EVENT, {"kind": ["domain.event"]}),
        (DOMAIN_EVENT, {"kind": "domain_event"}),
        ("tool.finished", {"outcome": "completed"}),
        ("result.published", {"hasStructuredOutput": None}),
        ("run.settled", {"outcome": "succeeded"}),
        ("run.settled", {"error": "a\0"}),
        ("run.settled", {"error": "x" * 65_537}),
        ("process.reclaimed", {"exitCode": -UNSAFE}),
        ("process.reclaimed", {"exitCode": True}),
        ("process.reclaimed", {"signal": "x" * 129}),
        ("process.reclaimed", {"signal": "a\0"}),
    ],
)
def test_one_wrong_field_makes_it_nobodys_event(kind: str, changes: dict[str, Any]) -> None:
    assert workspace_of(runtime_event(kind, **changes), "s") is None


@pytest.mark.parametrize("payload", [None, 1, "actor", [], {}, {"actor": {}}, {"version": 2}])
def test_an_ordinary_payload_is_nobodys_event(payload: object) -> None:
    assert workspace_of(payload, "s") is None


def test_a_runtime_event_of_another_stream_is_refused_with_that_streams_id() -> None:
    with pytest.raises(ForeignStream, match="'s'") as caught:
        workspace_of(runtime_event(), "t")
    assert caught.value.payload_stream_id == "s"


def test_an_event_that_is_nobodys_may_name_any_stream() -> None:
    assert workspace_of(runtime_event(sequence=0), "t") is None


def test_the_event_type_of_the_read_model_is_part_of_the_protocol() -> None:
    assert READ_MODEL_EVENT_TYPE == "teammate.runtime-read-model.frame.v2"
