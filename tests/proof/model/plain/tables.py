"""The plain database as the eight tables in which a store keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.proof.model.plain.database import Database, Row
from tests.proof.model.plain.text import stored

_LEASE = {
    "actor_id": "actorId",
    "stream_id": "streamId",
    "holder_id": "holderId",
    "epoch": "epoch",
    "nonce": "nonce",
    "acquired_at": "acquiredAt",
    "heartbeat_at": "heartbeatAt",
    "expires_at": "expiresAt",
}
_STREAM = {
    "stream_id": "streamId",
    "revision": "revision",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
    "workspace_id": "workspaceId",
}
_EVENT = {
    "event_id": "eventId",
    "message_id": "messageId",
    "stream_id": "streamId",
    "revision": "revision",
    "event_type": "eventType",
    "producer_epoch": "producerEpoch",
    "occurred_at": "occurredAt",
    "correlation_id": "correlationId",
    "causation_id": "causationId",
    "trace_id": "traceId",
}
_MESSAGE = {
    "outbox_id": "outboxId",
    "message_id": "messageId",
    "event_id": "eventId",
    "destination": "destination",
    "created_at": "createdAt",
    "available_at": "availableAt",
    "delivered_at": "deliveredAt",
    "attempts": "attempts",
}


def tables(database: Database) -> dict[str, list[Row]]:
    """Rows as objects of columns, in the byte order of their first column."""
    found = {
        "metadata": [
            {"key": "logical_time_floor", "value": str(database.floor)},
            {"key": "schema_version", "value": "3"},
        ],
        "actor_leases": _columns(_LEASE, database.leases.values()),
        "streams": _columns(_STREAM, database.streams.values()),
        "inbox": [_inbox_row(*each) for each in database.inbox.items()],
        "mutation_receipts": [_receipt_row(*each) for each in database.receipts.items()],
        "events": _columns(_EVENT, database.events, payload_json="payload"),
        "outbox": _columns(_MESSAGE, database.outbox.values(), payload_json="payload"),
        "projections": [_projection_row(*each) for each in database.projections.items()],
    }
    return {name: sorted(rows, key=_first_column) for name, rows in found.items()}


def _first_column(row: Row) -> bytes:
    return str(next(iter(row.values()))).encode()


def _columns(columns: dict[str, str], rows: Iterable[Row], **of_json: str) -> list[Row]:
    return [
        {column: row.get(name) for column, name in columns.items()}
        | {column: stored(row[name]) for column, name in of_json.items()}
        for row in rows
    ]


def _inbox_row(message_id: str, row: Row) -> Row:
    result = row["result"]
    return {
        "message_id": message_id,
        "request_hash": row["requestHash"],
        "stream_id": result["streamId"],
        "applied_revision": result["revision"],
        "result_json": stored(result),
        "applied_at": result["appliedAt"],
    }


def _receipt_row(request_id: str, row: Row) -> Row:
    return {
        "request_id": request_id,
        "method": row["method"],
        "params_hash": row["paramsHash"],
        "response_json": stored(row["response"]),
        "created_at": row["createdAt"],
    }


def _projection_row(projection_id: str, row: Row) -> Row:
    return {
        "projection_id": projection_id,
        "stream_id": row["streamId"],
        "revision": row["revision"],
        "value_json": stored(row["value"]),
        "updated_at": row["updatedAt"],
    }


def cursors(database: Database) -> list[tuple[Any, Any]]:
    """The events by their cursors, in the order of the journal."""
    return [(event["eventId"], event["cursor"]) for event in database.events]
