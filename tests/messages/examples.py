"""Examples of every kind of message, complete, and where their fields are."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from broker import ABSENT
from broker.messages import (
    AcquireLeaseRequest,
    CommitRequest,
    CommitResult,
    EventsPage,
    HeartbeatLeaseRequest,
    JournalEvent,
    Lease,
    ListPendingOutboxRequest,
    ListStreamsRequest,
    MarkOutboxDeliveredRequest,
    ReadAuthorizedEventsPageRequest,
    ReadModelEventsRequest,
    ReadModelSource,
    ReadModelSourcesRequest,
    Request,
    Result,
    StoredEvent,
    StoredOutboxMessage,
    StoredProjection,
)

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

FieldPath = tuple[str | int, ...]


def at(value: Any, path: FieldPath) -> Any:
    """What is at a path of a value."""
    for step in path:
        value = value[step]
    return value


def changed(request: dict[str, Any], path: FieldPath, value: object) -> dict[str, Any]:
    """A copy of a request with the value at a path set, or taken out if it is ABSENT."""
    whole = copy.deepcopy(request)
    place = at(whole, path[:-1])
    if value is ABSENT:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return whole


def name_of(path: FieldPath) -> str:
    """A path as it is reported: `events[0].payload`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


# --- Where which fields are -------------------------------------------------------------------

NATURAL_PATHS: list[tuple[type[Request], FieldPath]] = [
    (AcquireLeaseRequest, ("now",)),
    (HeartbeatLeaseRequest, ("now",)),
    (CommitRequest, ("expectedRevision",)),
    (CommitRequest, ("committedAt",)),
    (CommitRequest, ("events", 0, "occurredAt")),
    (CommitRequest, ("outbox", 0, "availableAt")),
    (MarkOutboxDeliveredRequest, ("deliveredAt",)),
]
POSITIVE_PATHS: list[tuple[type[Request], FieldPath]] = [
    (AcquireLeaseRequest, ("ttlMs",)),
    (HeartbeatLeaseRequest, ("ttlMs",)),
    (HeartbeatLeaseRequest, ("lease", "epoch")),
    (ReadAuthorizedEventsPageRequest, ("limit",)),
    (ReadAuthorizedEventsPageRequest, ("maxBytes",)),
    (ListStreamsRequest, ("limit",)),
    (ListPendingOutboxRequest, ("limit",)),
]
INTEGER_PATHS = NATURAL_PATHS + POSITIVE_PATHS

FIELDS_IN_ORDER: list[FieldPath] = [
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

OPTIONAL: dict[type[Request], tuple[str, ...]] = {
    AcquireLeaseRequest: ("streamId", "now"),
    HeartbeatLeaseRequest: ("now",),
    CommitRequest: ("outbox", "projections", "committedAt"),
    ReadAuthorizedEventsPageRequest: ("throughRevision", "maxBytes"),
    ListStreamsRequest: ("afterStreamId",),
    ListPendingOutboxRequest: ("asOf",),
    MarkOutboxDeliveredRequest: ("deliveredAt",),
}


# --- Ids that are none, and lists --------------------------------------------------------------

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

LIST_KINDS: dict[type[Request], dict[str, Any]] = {
    ListStreamsRequest: LIST,
    ReadModelEventsRequest: {"workspaceId": "w"},
    ReadModelSourcesRequest: {"workspaceId": "w"},
}


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

#: A test of each of them.
each_result = pytest.mark.parametrize(
    ("result", "form"), FULL_RESULTS, ids=lambda each: type(each).__name__
)
