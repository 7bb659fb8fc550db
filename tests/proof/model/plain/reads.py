"""Reads of streams, of the journal, of workspaces, of the outbox and of projections."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.proof.model.plain.database import Database, Refused, Row
from tests.proof.model.plain.text import size

READ_MODEL_TYPE = "teammate.runtime-read-model.frame.v2"


def of_stream(database: Database, request: Row) -> list[Row]:
    """A stream's events after a revision."""
    after = request.get("afterRevision", 0)
    return [
        {name: value for name, value in event.items() if name != "cursor"}
        for event in database.events
        if event["streamId"] == request["streamId"] and event["revision"] > after
    ]


def page(database: Database, request: Row, most_bytes: int) -> Row:
    """A page of a stream, whose reader was found to hold its lease."""
    stream_id, after = request["streamId"], request["afterRevision"]
    revision = database.revision_of(stream_id)
    through = request.get("throughRevision", revision)
    if through > revision:
        raise Refused(
            "invalid_request",
            streamId=stream_id,
            throughRevision=through,
            streamRevision=revision,
        )
    asked = [event for event in of_stream(database, request) if event["revision"] <= through]
    asked = asked[: request["limit"]]
    events = _fitting(asked, request.get("maxBytes", most_bytes))
    if asked and not events:
        raise Refused("invalid_request")
    reached = events[-1]["revision"] if events else after
    return {
        "events": events,
        "nextRevision": reached,
        "throughRevision": through,
        "done": reached >= through,
    }


def _fitting(events: Iterable[Row], most_bytes: int) -> list[Row]:
    """The first events that fit into a JSON array of so many bytes."""
    fitting: list[Row] = []
    for event in events:
        if size([*fitting, event]) > most_bytes:
            break
        fitting.append(event)
    return fitting


def fitting_or_first(events: list[Row], most_bytes: int) -> list[Row]:
    """As many as fit; too large, the first comes alone."""
    return _fitting(events, most_bytes) or events[:1]


def journal(database: Database, request: Row, through: int) -> list[Row]:
    """All events after a cursor, through another."""
    after = request.get("afterCursor", 0)
    return [event for event in database.events if after < event["cursor"] <= through]


def _path(payload: Any, *names: str) -> Any:
    for name in names:
        payload = payload.get(name) if type(payload) is dict else None
    return payload


def _is_of_read_model(event: Row) -> bool:
    payload = event["payload"]
    named = event["eventType"], _path(payload, "kind"), _path(payload, "eventType")
    return named == ("domain.event", "domain.event", READ_MODEL_TYPE)


def read_model(database: Database, request: Row, through: int) -> list[Row]:
    """A workspace's read-model events after a cursor, through another."""
    workspace_id = request["workspaceId"]
    return [
        event
        for event in journal(database, request, through)
        if database.owner_of(event["streamId"]) == workspace_id
        and _is_of_read_model(event)
        and _path(event["payload"], "actor", "workspaceId") == workspace_id
    ]


def _after(database: Database, request: Row) -> list[str]:
    """The workspace's streams after one of them, in byte order."""
    return sorted(
        (
            stream_id
            for stream_id in database.streams
            if database.owner_of(stream_id) == request["workspaceId"]
            and stream_id.encode() > request.get("afterStreamId", "").encode()
        ),
        key=str.encode,
    )


def streams(database: Database, request: Row) -> list[str]:
    """The workspace's streams that begin with a prefix."""
    found = [each for each in _after(database, request) if each.startswith(request["prefix"])]
    return found[: request["limit"]]


def sources(database: Database, request: Row, now: int) -> list[Row]:
    """The workspace's streams that have events of the read model, with the state of their leases."""
    found = [
        {
            "streamId": stream_id,
            "generation": database.leases[stream_id]["epoch"],
            "active": database.leases[stream_id]["expiresAt"] > now,
        }
        for stream_id in _after(database, request)
        if any(
            event["streamId"] == stream_id and _is_of_read_model(event) for event in database.events
        )
    ]
    return found[: request.get("limit", 128)]


def pending(database: Database, request: Row, now: int) -> list[Row]:
    """Outbox messages that are due and not delivered."""
    due = [
        message
        for message in database.outbox.values()
        if "deliveredAt" not in message and message["availableAt"] <= request.get("asOf", now)
    ]
    due.sort(key=lambda message: (message["createdAt"], message["outboxId"].encode()))
    return [dict(message) for message in due[: request.get("limit", 100)]]


def mark_delivered(database: Database, request: Row, now: int) -> bool:
    """Mark a message as delivered; whether it was not."""
    message = database.outbox.get(request["outboxId"])
    if message is None or "deliveredAt" in message:
        return False
    message["deliveredAt"] = request.get("deliveredAt", now)
    message["attempts"] += 1
    return True
