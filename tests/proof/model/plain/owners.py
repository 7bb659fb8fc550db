"""Which payloads are runtime events, and whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.proof.model.plain.database import Refused

MOST = 2**53 - 1

Field = tuple[str, Callable[[Any], bool], bool]  # a name, what it must be, may it be absent


def _whole(least: int) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        is_number = type(value) is int or (type(value) is float and value.is_integer())
        return is_number and least <= value <= MOST

    return fits


def _text(most: int, *, is_id: bool) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        if type(value) is not str or value == "" or "\0" in value:
            return False
        has_surrogate = any("\ud800" <= character <= "\udfff" for character in value)
        return not (is_id and has_surrogate) and len(value.encode("utf-8", "surrogatepass")) <= most

    return fits


def _one_of(*allowed: Any) -> Callable[[Any], bool]:
    return lambda value: any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in allowed
    )


def _null_or(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


_id = _text(1_024, is_id=True)
_HEAD: Sequence[Field] = (
    ("version", _one_of(2, "2"), False),
    ("revision", _one_of(1, None), True),
)
_ACTOR: Sequence[Field] = (
    *_HEAD,
    ("workspaceId", _id, False),
    ("actorId", _id, False),
    (
        "actorKind",
        _one_of("root", "teammate", "remote", "process", "schedule", "dispatch"),
        False,
    ),
    ("generation", _whole(1), False),
)
_EVENT: Sequence[Field] = (
    *_HEAD,
    ("streamId", _id, False),
    ("sequence", _whole(1), False),
    ("actor", lambda value: type(value) is dict and _fits(value, _ACTOR), False),
    ("producerEpoch", _null_or(_whole(1)), True),
    ("occurredAt", _whole(0), False),
)
_TOOL: Sequence[Field] = (("toolCallId", _id, False), ("toolName", _id, False))
_OF_KIND: Mapping[str, Sequence[Field]] = {
    "tool.started": _TOOL,
    "tool.finished": (*_TOOL, ("outcome", _one_of("succeeded", "failed"), False)),
    "result.published": (
        ("publicationId", _id, False),
        ("hasStructuredOutput", lambda value: type(value) is bool, False),
    ),
    "run.settled": (
        ("outcome", _one_of("completed", "failed", "cancelled", "lost"), False),
        ("error", _text(65_536, is_id=False), True),
    ),
    "process.reclaimed": (
        ("processId", _id, False),
        ("exitCode", _null_or(_whole(-MOST)), False),
        ("signal", _null_or(_text(128, is_id=False)), False),
    ),
    "domain.event": (("eventType", _id, False), ("eventId", _id, False)),
}
_OLDER = {
    "tool_start": "tool.started",
    "tool_end": "tool.finished",
    "result_published": "result.published",
    "run_settled": "run.settled",
    "process_reclaimed": "process.reclaimed",
}


def _fits(value: Mapping[str, Any], fields: Sequence[Field]) -> bool:
    return all(
        fits(value[name]) if name in value else may_be_absent
        for name, fits, may_be_absent in fields
    )


def is_runtime_event(payload: Any) -> bool:
    """Whether a payload has the shape of a runtime event."""
    if type(payload) is not dict or type(payload.get("kind")) is not str:
        return False
    kind: str = payload["kind"]
    fields = _OF_KIND.get(_OLDER.get(kind, kind))
    return fields is not None and _fits(payload, _EVENT) and _fits(payload, fields)


def owner_after(owner: str | None, stream_id: str, payloads: Sequence[Any]) -> str | None:
    """Who owns a stream once these events are in it."""
    for payload in filter(is_runtime_event, payloads):
        if payload["streamId"] != stream_id:
            raise Refused(
                "invalid_request", streamId=stream_id, payloadStreamId=payload["streamId"]
            )
        workspace_id = payload["actor"]["workspaceId"]
        if owner is not None and workspace_id != owner:
            raise Refused(
                "invalid_request",
                streamId=stream_id,
                workspaceId=workspace_id,
                ownerWorkspaceId=owner,
            )
        owner = workspace_id
    return owner
