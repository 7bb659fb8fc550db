"""Requests that are nearly right: every operation, with one to three things in its request changed."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

from hypothesis import strategies as st

from broker import messages
from tests.proof.fuzz.values import hostile, texts, values

_CREDENTIAL = {"epoch": 1, "nonce": "nonce"}
_HELD = {"actorId": "a", "lease": _CREDENTIAL}
_TAKEN = {"actorId": "a", "streamId": "s", "holderId": "h", "ttlMs": 5_000, "now": 1}
_EVENT = {
    "eventId": "e",
    "eventType": "t",
    "payload": {"a": [1, None]},
    "occurredAt": 3,
    "correlationId": "c",
    "causationId": "d",
    "traceId": "f",
}
_OUTBOX = {
    "outboxId": "o",
    "destination": "mail",
    "payload": None,
    "eventId": "e",
    "availableAt": 4,
}
_COMMIT = _HELD | {
    "messageId": "m",
    "streamId": "s",
    "expectedRevision": 0,
    "events": [_EVENT, _EVENT | {"eventId": "e2"}],
    "outbox": [_OUTBOX],
    "projections": [{"projectionId": "p", "value": [1]}],
    "inboxResult": "reply",
    "committedAt": 7,
}


class Operation(NamedTuple):
    """One operation: the name of its method, its request's kind and an example with every field."""

    name: str
    kind: type[messages.Request]
    example: dict[str, Any]
    takes_request_id: bool = False


OPERATIONS = (
    Operation("acquire_lease", messages.AcquireLeaseRequest, _TAKEN, True),
    Operation("takeover_lease", messages.TakeoverLeaseRequest, _TAKEN, True),
    Operation(
        "heartbeat_lease", messages.HeartbeatLeaseRequest, _HELD | {"ttlMs": 5, "now": 1}, True
    ),
    Operation(
        "compare_and_swap_lease",
        messages.CompareAndSwapLeaseRequest,
        _HELD | {"ttlMs": 5, "now": 1, "nextHolderId": "h"},
        True,
    ),
    Operation("release_lease", messages.ReleaseLeaseRequest, _HELD | {"now": 1}, True),
    Operation("get_lease", messages.GetLeaseRequest, {"actorId": "a"}),
    Operation("commit", messages.CommitRequest, _COMMIT),
    Operation("get_stream_revision", messages.GetStreamRevisionRequest, {"streamId": "s"}),
    Operation("read_events", messages.ReadEventsRequest, {"streamId": "s", "afterRevision": 0}),
    Operation(
        "read_authorized_events",
        messages.ReadAuthorizedEventsRequest,
        {"streamId": "s", "afterRevision": 0, "authorization": _HELD},
    ),
    Operation(
        "read_authorized_events_page",
        messages.ReadAuthorizedEventsPageRequest,
        _HELD
        | {
            "streamId": "s",
            "afterRevision": 2,
            "throughRevision": 3,
            "limit": 4,
            "maxBytes": 5_000,
        },
    ),
    Operation(
        "list_streams",
        messages.ListStreamsRequest,
        {"workspaceId": "w", "prefix": "p", "afterStreamId": "p1", "limit": 3},
    ),
    Operation("read_journal", messages.ReadJournalRequest, {"afterCursor": 0, "limit": 3}),
    Operation(
        "read_model_events",
        messages.ReadModelEventsRequest,
        {"workspaceId": "w", "afterCursor": 0, "limit": 3},
    ),
    Operation(
        "read_model_sources",
        messages.ReadModelSourcesRequest,
        {"workspaceId": "w", "afterStreamId": "p", "limit": 3},
    ),
    Operation("read_projection", messages.ReadProjectionRequest, {"projectionId": "p"}),
    Operation("list_pending_outbox", messages.ListPendingOutboxRequest, {"limit": 3, "asOf": 4}),
    Operation(
        "mark_outbox_delivered",
        messages.MarkOutboxDeliveredRequest,
        {"outboxId": "o", "deliveredAt": 4},
    ),
)


class Asked(NamedTuple):
    """An operation with what it is asked, and the request id that goes with it."""

    operation: Operation
    request: Any
    request_id: Any


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    """Any operation, with a request that is nearly right."""
    operation = draw(st.sampled_from(OPERATIONS))
    request: Any = copy.deepcopy(operation.example)
    for _ in range(draw(st.integers(0, 3))):
        _change(draw, request)
    request = draw(_FORMS)(request)
    request_id = draw(st.none() | texts | hostile) if operation.takes_request_id else None
    return Asked(operation, request, request_id)


_FORMS: st.SearchStrategy[Callable[[Any], Any]] = st.sampled_from(
    [dict] * 13 + [MappingProxyType, UserDict, None]
).flatmap(lambda form: st.just(form) if form else hostile.map(lambda value: lambda _: value))


def _change(draw: st.DrawFn, request: dict[str, Any]) -> None:
    place = draw(st.sampled_from(_containers(request)))
    if not place:
        return
    if isinstance(place, list):
        step: Any = draw(st.integers(0, len(place) - 1))
    else:
        step = draw(st.sampled_from(list(place)))
    match draw(st.integers(0, 6)):
        case 0 | 1 | 2:
            place[step] = draw(hostile)
        case 3:
            place[step] = draw(values)
        case 4:
            del place[step]
        case 5 if isinstance(place, dict):
            place[draw(_KEYS)] = draw(values)
        case _:
            place[step] = draw(st.sampled_from([[place[step]], {"value": place[step]}, None]))


_KEYS = st.one_of(
    texts,
    st.sampled_from(["stream_id", "__class__", "__proto__", "model_config", "lease.epoch", "now"]),
    st.sampled_from([1, None, b"bytes", (), 1.5]),
)


def _containers(value: Any) -> list[Any]:
    """The objects and arrays of a request that is JSON in its upper levels, itself the first."""
    found: list[Any] = []
    left = [(value, 0)]
    while left:
        each, level = left.pop(0)
        if type(each) in (dict, list) and level < 5:
            found.append(each)
            left += [(item, level + 1) for item in (each.values() if type(each) is dict else each)]
    return found
