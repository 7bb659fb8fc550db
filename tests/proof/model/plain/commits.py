"""The commit, in the order of its questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.proof.model.plain import owners
from tests.proof.model.plain.database import Database, Refused, Row
from tests.proof.model.plain.leases import require_authority
from tests.proof.model.plain.text import size

MOST = 2**53 - 1
_OPTIONAL = ("correlationId", "causationId", "traceId")


def require_readable(request: Row, most_bytes: int) -> None:
    """Refuse an event that no page could hold, however late it occurs."""
    for place, event in enumerate(request["events"]):
        row = _event(request, event, request["expectedRevision"] + place + 1, MOST)
        if len("[]") + size(row) > most_bytes:
            raise Refused("invalid_request", field=f"events[{place}].payload")


def judge(database: Database, request: Row, now: int) -> str | None:
    """The owner of the stream once the commit is in it, which may be written then."""
    stream_id = request["streamId"]
    require_authority(database, request["actorId"], request["lease"], stream_id, now)
    actual = database.revision_of(stream_id)
    if actual != request["expectedRevision"]:
        raise Refused(
            "revision_conflict",
            streamId=stream_id,
            expectedRevision=request["expectedRevision"],
            actualRevision=actual,
        )
    payloads = [event["payload"] for event in request["events"]]
    owner = owners.owner_after(database.owner_of(stream_id), stream_id, payloads)
    _require_ids(database, request)
    for projection in request.get("projections", []):
        name = projection["projectionId"]
        if database.projections.get(name, {"streamId": stream_id})["streamId"] != stream_id:
            raise Refused("idempotency_conflict", projectionId=name, streamId=stream_id)
    return owner


def _require_ids(database: Database, request: Row) -> None:
    ids = {
        "eventId": [event["eventId"] for event in request["events"]],
        "outboxId": [message["outboxId"] for message in request.get("outbox", [])],
        "projectionId": [each["projectionId"] for each in request.get("projections", [])],
    }
    for field, given in ids.items():
        for place, each in enumerate(given):
            if each in given[:place]:
                raise Refused("idempotency_conflict", field=field, id=each)
    stored_events = {event["eventId"] for event in database.events}
    for field, used in (("eventId", stored_events), ("outboxId", set(database.outbox))):
        for each in ids[field]:
            if each in used:
                raise Refused("idempotency_conflict", field=field, id=each)
    for place, message in enumerate(request.get("outbox", [])):
        named = message.get("eventId")
        if named is not None and named not in stored_events | set(ids["eventId"]):
            raise Refused("invalid_request", field=f"outbox[{place}].eventId")


def write(
    database: Database, request: Row, owner: str | None, cursors: Sequence[int], now: int
) -> Row:
    """Write a commit that was judged; its result."""
    message_id, stream_id = request["messageId"], request["streamId"]
    before = database.revision_of(stream_id)
    result: dict[str, Any] = {
        "messageId": message_id,
        "streamId": stream_id,
        "previousRevision": before,
        "revision": before + len(request["events"]),
        "eventIds": [event["eventId"] for event in request["events"]],
        "eventCursors": list(cursors),
        "outboxIds": [message["outboxId"] for message in request.get("outbox", [])],
        "appliedAt": now,
        "recovered": False,
    }
    if "inboxResult" in request:
        result["reply"] = request["inboxResult"]
    stream = database.streams.setdefault(stream_id, {"streamId": stream_id, "createdAt": now})
    stream |= {"revision": result["revision"], "updatedAt": now, "workspaceId": owner}
    for place, event in enumerate(request["events"]):
        row = _event(request, event, before + place + 1, event.get("occurredAt", now))
        database.events.append(row | {"cursor": cursors[place]})
    for message in request.get("outbox", []):
        database.outbox[message["outboxId"]] = _message(request, message, now)
    for projection in request.get("projections", []):
        database.projections[projection["projectionId"]] = {
            "streamId": stream_id,
            "revision": result["revision"],
            "value": projection["value"],
            "updatedAt": now,
        }
    return result


def _event(request: Row, event: Row, revision: int, latest: int) -> Row:
    row = {
        "eventId": event["eventId"],
        "messageId": request["messageId"],
        "streamId": request["streamId"],
        "revision": revision,
        "eventType": event["eventType"],
        "payload": event["payload"],
        "producerEpoch": request["lease"]["epoch"],
        "occurredAt": event.get("occurredAt", latest),
    }
    return row | {name: event[name] for name in _OPTIONAL if name in event}


def _message(request: Row, message: Row, now: int) -> Row:
    row = {
        "outboxId": message["outboxId"],
        "messageId": request["messageId"],
        "destination": message["destination"],
        "payload": message["payload"],
        "createdAt": now,
        "availableAt": message.get("availableAt", now),
        "attempts": 0,
    }
    return row | ({"eventId": message["eventId"]} if "eventId" in message else {})
