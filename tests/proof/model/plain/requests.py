"""What a request must be, and how the first thing wrong with it is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.proof.model.plain.database import Refused
from tests.proof.model.plain.text import is_json

MOST = 2**53 - 1
MOST_BYTES = 1_024


@dataclass(frozen=True)
class Fault:
    """What is wrong at a path; `is_unknown` for a field that nobody knows."""

    path: str
    value: Any = None
    is_unknown: bool = False


#: Finds what is wrong with a value at a path.
Rule = Callable[[Any, str], Iterator[Fault]]


@dataclass(frozen=True)
class Field:
    """A field of a request. Null for one that is optional means that it is absent."""

    name: str
    rule: Rule
    is_optional: bool = False
    is_null_a_value: bool = False


Shape = Sequence[Field]


# ----------------------------------------------------------------------------------------- values


def _simple(is_right: Callable[[Any], bool]) -> Rule:
    def rule(value: Any, path: str) -> Iterator[Fault]:
        if not is_right(value):
            yield Fault(path, value)

    return rule


def is_text(value: Any, least: int = 0, most: int = MOST_BYTES) -> bool:
    """Whether a value is text that may be kept, of so many bytes in UTF-8."""
    if type(value) is not str or "\0" in value:
        return False
    try:
        return least <= len(value.encode()) <= most
    except UnicodeEncodeError:  # a lone surrogate
        return False


def is_id(value: Any, most: int = MOST_BYTES) -> bool:
    """Whether a value is an id; U+0001 begins those that are the store's own."""
    return is_text(value, 1, most) and not value.startswith("\1")


def _is_integer(value: Any, least: int, most: int = MOST) -> bool:
    is_number = type(value) is int or (type(value) is float and value.is_integer())
    return is_number and least <= value <= most


def _integer(least: int, most: int = MOST) -> Rule:
    return _simple(lambda value: _is_integer(value, least, most))


def _object(shape: Shape) -> Rule:
    return lambda value, path: faults(shape, value, path)


def _array(shape: Shape) -> Rule:
    def rule(value: Any, path: str) -> Iterator[Fault]:
        if type(value) not in (list, tuple):
            yield Fault(path, value)
            return
        for place, each in enumerate(value):
            yield from faults(shape, each, f"{path}[{place}]")

    return rule


def faults(shape: Shape, value: Any, path: str = "") -> Iterator[Fault]:
    """All that is wrong with an object: of its fields, in their order, then those unknown."""
    if not isinstance(value, Mapping):
        yield Fault(path or "request", value)
        return
    before = f"{path}." if path else ""
    for field in shape:
        given = value.get(field.name)
        if given is None and not (field.name in value and field.is_null_a_value):
            if not field.is_optional:
                yield Fault(before + field.name)
        else:
            yield from field.rule(given, before + field.name)
    known = {field.name for field in shape}
    for name in value:
        if name not in known:
            yield Fault(before + name, is_unknown=True)


# ----------------------------------------------------------------------------------------- shapes

_ID, _NATURAL, _POSITIVE = _simple(is_id), _integer(0), _integer(1)
_JSON = _simple(is_json)
_PAGE, _LIST = _integer(1, 128), _integer(1, 512)
_NOW = Field("now", _NATURAL, is_optional=True)
_ACTOR = Field("actorId", _ID)
_TTL = Field("ttlMs", _POSITIVE)
_STREAM = Field("streamId", _ID)
_CREDENTIAL = Field("lease", _object([Field("epoch", _POSITIVE), Field("nonce", _ID)]))
_PAYLOAD = Field("payload", _JSON, is_null_a_value=True)
_AFTER_STREAM = Field("afterStreamId", _simple(is_text), is_optional=True)
_AFTER_CURSOR = Field("afterCursor", _NATURAL, is_optional=True)
_WORKSPACE = Field("workspaceId", _ID)


def _optional(name: str, rule: Rule = _ID) -> Field:
    return Field(name, rule, is_optional=True)


_EVENT = [
    Field("eventId", _ID),
    Field("eventType", _ID),
    _PAYLOAD,
    _optional("occurredAt", _NATURAL),
    _optional("correlationId"),
    _optional("causationId"),
    _optional("traceId"),
]
_MESSAGE = [
    Field("outboxId", _ID),
    Field("destination", _ID),
    _PAYLOAD,
    _optional("eventId"),
    _optional("availableAt", _NATURAL),
]
_PROJECTION = [Field("projectionId", _ID), Field("value", _JSON, is_null_a_value=True)]
_TAKE = [_ACTOR, _optional("streamId"), Field("holderId", _ID), _TTL, _NOW]

SHAPES: dict[str, Shape] = {
    "acquire_lease": _TAKE,
    "takeover_lease": _TAKE,
    "heartbeat_lease": [_ACTOR, _CREDENTIAL, _TTL, _NOW],
    "compare_and_swap_lease": [_ACTOR, _CREDENTIAL, _TTL, _NOW, Field("nextHolderId", _ID)],
    "release_lease": [_ACTOR, _CREDENTIAL, _NOW],
    "get_lease": [_ACTOR],
    "commit": [
        Field("messageId", _ID),
        _ACTOR,
        _CREDENTIAL,
        _STREAM,
        Field("expectedRevision", _NATURAL),
        Field("events", _array(_EVENT)),
        _optional("outbox", _array(_MESSAGE)),
        _optional("projections", _array(_PROJECTION)),
        Field("inboxResult", _JSON, is_optional=True, is_null_a_value=True),
        _optional("committedAt", _NATURAL),
    ],
    "get_stream_revision": [_STREAM],
    "read_events": [_STREAM, _optional("afterRevision", _NATURAL)],
    "read_authorized_events": [
        _STREAM,
        _optional("afterRevision", _NATURAL),
        Field("authorization", _object([_ACTOR, _CREDENTIAL])),
    ],
    "read_authorized_events_page": [
        _STREAM,
        Field("afterRevision", _NATURAL),
        _optional("throughRevision", _NATURAL),
        Field("limit", _PAGE),
        _ACTOR,
        _CREDENTIAL,
        _optional("maxBytes", _POSITIVE),
    ],
    "list_streams": [_WORKSPACE, Field("prefix", _ID), _AFTER_STREAM, Field("limit", _LIST)],
    "read_journal": [_AFTER_CURSOR, _optional("limit", _PAGE)],
    "read_model_events": [_WORKSPACE, _AFTER_CURSOR, _optional("limit", _LIST)],
    "read_model_sources": [_WORKSPACE, _AFTER_STREAM, _optional("limit", _LIST)],
    "read_projection": [Field("projectionId", _ID)],
    "list_pending_outbox": [_optional("limit", _POSITIVE), _optional("asOf", _NATURAL)],
    "mark_outbox_delivered": [Field("outboxId", _ID), _optional("deliveredAt", _NATURAL)],
}
SHAPES |= {
    "walk_events": SHAPES["read_events"],
    "walk_journal": SHAPES["read_journal"],
    "walk_read_model_events": SHAPES["read_model_events"],
}
_LISTING = {"list_streams", "read_model_events", "read_model_sources", "walk_read_model_events"}


# --------------------------------------------------------------------------------------- checking


def accepted(operation: str, request: Any) -> dict[str, Any]:
    """The request as it counts: without what is absent, integers as integers; or it is refused."""
    found = list(faults(SHAPES[operation], request))
    if operation == "read_authorized_events_page":
        found = _with_order(found, request)
    if found:
        first = next((fault for fault in found if not fault.is_unknown), found[0])
        raise Refused("invalid_request", **_details(operation, first))
    return _counting(SHAPES[operation], request)


def _with_order(found: list[Fault], request: Any) -> list[Fault]:
    """With the fault of a page that ends before it begins, in its place."""
    if not isinstance(request, Mapping) or request.get("throughRevision") is None:
        return found
    paths = {fault.path for fault in found}
    if paths & {"afterRevision", "throughRevision", "streamId"}:
        return found
    is_backward = request["throughRevision"] < request["afterRevision"]
    return [Fault("throughRevision"), *found] if is_backward else found


def _details(operation: str, fault: Fault) -> dict[str, Any]:
    """Usually the path."""
    if fault.path == "afterStreamId":
        return {}
    if fault.path == "asOf":
        return {"field": "now"}
    if operation in _LISTING and fault.path == "limit" and _is_integer(fault.value, 513):
        return {"limit": fault.value}
    return {"field": fault.path}


_ARRAYS: dict[str, Shape] = {"events": _EVENT, "outbox": _MESSAGE, "projections": _PROJECTION}


def _counting(shape: Shape, request: Mapping[str, Any]) -> dict[str, Any]:
    counting: dict[str, Any] = {}
    for field in shape:
        value: Any = request.get(field.name)
        if value is None and not (field.name in request and field.is_null_a_value):
            continue
        if field.name in _ARRAYS:
            value = [_counting(_ARRAYS[field.name], each) for each in value]
        elif field.rule is not _JSON:
            value = _as_integers(value)
        counting[field.name] = value
    return counting


def _as_integers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_integers(each) for name, each in value.items()}
    return int(value) if type(value) is float else value
