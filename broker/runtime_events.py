"""Which payloads are runtime events, and whose.

A runtime event is recognised by the shape of its payload alone, never by the event's type. The
tables below are that shape: a field's rule says which values it may have, and further fields are
nobody's business. Integers are safe integers (at most 2**53 - 1 either way; 1.0 is 1, a boolean
is no number). Text lengths count UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from broker.clock import MAX_SAFE_INTEGER

READ_MODEL_EVENT_TYPE: Final = "teammate.runtime-read-model.frame.v2"
DOMAIN_EVENT: Final = "domain.event"


class ForeignStream(ValueError):
    """A runtime event names another stream than the one that it is written to."""

    def __init__(self, payload_stream_id: str) -> None:
        super().__init__(f"the runtime event belongs to the stream {payload_stream_id!r}")
        self.payload_stream_id = payload_stream_id


class Claim(NamedTuple):
    """What a runtime event says of itself: whose it is, and of which stream."""

    workspace_id: str
    stream_id: str


def claim_of(payload: object) -> Claim | None:
    """The claim of a runtime event; None if the payload is nobody's event."""
    if type(payload) is not dict or "actor" not in payload or not _is_runtime_event(payload):
        return None
    return Claim(payload["actor"]["workspaceId"], payload["streamId"])


def workspace_of(payload: object, stream_id: str) -> str | None:
    """The workspace that owns a runtime event; None if the payload is nobody's event.

    Raises `ForeignStream` if it is a runtime event, but not one of the stream `stream_id`.
    """
    claim = claim_of(payload)
    if claim is None:
        return None
    if claim.stream_id != stream_id:
        raise ForeignStream(claim.stream_id)
    return claim.workspace_id


# --- Rules ------------------------------------------------------------------------------------

Rule: TypeAlias = Callable[[object], bool]
Shape: TypeAlias = Mapping[str, Rule]

_ABSENT: Final = object()  # what a rule is given for a field that is not there


def _fits(record: dict[str, Any], shape: Shape) -> bool:
    return all(rule(record.get(field, _ABSENT)) for field, rule in shape.items())


def _object(shape: Shape) -> Rule:
    return lambda value: type(value) is dict and _fits(value, shape)


def _or(first: Rule, second: Rule) -> Rule:
    return lambda value: first(value) or second(value)


def _absent(value: object) -> bool:
    return value is _ABSENT


def _null(value: object) -> bool:
    return value is None


def _missing(value: object) -> bool:
    return value is None or value is _ABSENT


def _boolean(value: object) -> bool:
    return type(value) is bool


def _integer(least: int, most: int = MAX_SAFE_INTEGER) -> Rule:
    def rule(value: object) -> bool:
        if type(value) is float and value.is_integer():
            value = int(value)
        return type(value) is int and least <= value <= most

    return rule


def _word(*words: str) -> Rule:
    return lambda value: type(value) is str and value in words


def _text(max_bytes: int, *, lone_surrogates: bool = True) -> Rule:
    errors = "surrogatepass" if lone_surrogates else "strict"

    def rule(value: object) -> bool:
        if type(value) is not str or not value or "\0" in value:
            return False
        try:
            return len(value.encode(errors=errors)) <= max_bytes
        except UnicodeEncodeError:
            return False

    return rule


_id = _text(1_024, lone_surrogates=False)
_version = _or(_integer(2, 2), _word("2"))
_revision = _or(_integer(1, 1), _missing)

# --- Shapes -----------------------------------------------------------------------------------

_ACTOR: Final[Shape] = {
    "version": _version,
    "revision": _revision,
    "workspaceId": _id,
    "actorId": _id,
    "actorKind": _word("root", "teammate", "remote", "process", "schedule", "dispatch"),
    "generation": _integer(1),
}

_EVENT: Final[Shape] = {
    "version": _version,
    "revision": _revision,
    "streamId": _id,
    "sequence": _integer(1),
    "actor": _object(_ACTOR),
    "producerEpoch": _or(_integer(1), _missing),  # without one: the actor's generation
    "occurredAt": _integer(0),
}

_KINDS: Final[dict[str, Shape]] = {
    "tool.started": {"toolCallId": _id, "toolName": _id},
    "tool.finished": {
        "toolCallId": _id,
        "toolName": _id,
        "outcome": _word("succeeded", "failed"),
    },
    "result.published": {"publicationId": _id, "hasStructuredOutput": _boolean},
    "run.settled": {
        "outcome": _word("completed", "failed", "cancelled", "lost"),
        "error": _or(_text(65_536), _absent),
    },
    "process.reclaimed": {
        "processId": _id,
        "exitCode": _or(_integer(-MAX_SAFE_INTEGER), _null),
        "signal": _or(_text(128), _null),
    },
    DOMAIN_EVENT: {"eventType": _id, "eventId": _id},
}

_OLDER_SPELLINGS: Final = {
    "tool_start": "tool.started",
    "tool_end": "tool.finished",
    "result_published": "result.published",
    "run_settled": "run.settled",
    "process_reclaimed": "process.reclaimed",
}


def _is_runtime_event(payload: dict[str, Any]) -> bool:
    kind = payload.get("kind")
    if type(kind) is not str:
        return False
    shape = _KINDS.get(_OLDER_SPELLINGS.get(kind, kind))
    return shape is not None and _fits(payload, _EVENT) and _fits(payload, shape)
