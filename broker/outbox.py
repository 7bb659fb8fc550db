"""The outbox: messages that leave the system after the commit that caused them.

Their operations read broker time and never advance it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, insert, literal_column, select, update

from broker.commits import PreparedCommit
from broker.events import stored_json
from broker.messages import (
    Given,
    ListPendingOutboxRequest,
    MarkOutboxDeliveredRequest,
    StoredOutboxMessage,
    validate,
)
from broker.models import OutboxMessage
from broker.shapes import Shape
from broker.statements import Row, Statement
from broker.transaction import Read, Transaction, Write, read_time


def list_pending(given: Given[ListPendingOutboxRequest]) -> Read[list[StoredOutboxMessage]]:
    """Messages that are due and not delivered, oldest first."""
    request = validate(ListPendingOutboxRequest, given)

    def read(transaction: Transaction) -> list[StoredOutboxMessage]:
        as_of = request.as_of
        if as_of is None:
            as_of = transaction.peek(*read_time(transaction))
        rows = transaction.channel.all(_PENDING, as_of, request.limit)
        _SHAPE.require(rows)
        return [_stored_message(row) for row in rows]

    return read


def mark_delivered(given: Given[MarkOutboxDeliveredRequest]) -> Write[bool]:
    """Mark a message as delivered, and say whether it was this call that did it."""
    request = validate(MarkOutboxDeliveredRequest, given)

    def apply(transaction: Transaction) -> bool:
        delivered_at = request.delivered_at
        if delivered_at is None:
            delivered_at = transaction.peek(*read_time(transaction))
        return transaction.channel.run(_DELIVERED, request.outbox_id, delivered_at) == 1

    return Write(apply)


def outbox_rows(commit: PreparedCommit, now: int) -> list[Row]:
    """What `insert_outbox` takes for the messages of a commit."""
    return [
        (
            outbox_id,
            commit.message_id,
            event_id,
            destination,
            payload,
            now,
            now if available_at is None else available_at,
        )
        for (outbox_id, destination, event_id, available_at), payload in zip(
            commit.outbox, commit.outbox_payloads, strict=True
        )
    ]


def insert_outbox(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Store messages; a constraint objects to an id that was used before."""
    transaction.channel.put_each(_INSERT, rows)


def is_outbox_id_used(transaction: Transaction, outbox_id: str) -> bool:
    """Whether a message with this id is stored."""
    return transaction.channel.one(_IS_USED, outbox_id) is not None


def _stored_message(row: Row) -> StoredOutboxMessage:
    outbox_id, message_id, destination, payload, *rest = row
    value = stored_json(payload, "outbox", outbox_id, "payload_json")
    return StoredOutboxMessage(outbox_id, message_id, destination, value, *rest)


_COLUMNS = (
    OutboxMessage.outbox_id,
    OutboxMessage.message_id,
    OutboxMessage.destination,
    OutboxMessage.payload_json,
    OutboxMessage.created_at,
    OutboxMessage.available_at,
    OutboxMessage.attempts,
    OutboxMessage.event_id,
    OutboxMessage.delivered_at,
)
_SHAPE = Shape(*_COLUMNS)

# SQLite by itself would take `outbox_pending_idx`, and sort all that is pending for every page.
_PENDING = Statement(
    select(*_COLUMNS)
    .with_hint(OutboxMessage, "INDEXED BY outbox_undelivered_idx", "sqlite")
    .where(OutboxMessage.delivered_at.is_(None), OutboxMessage.available_at <= bindparam("as_of"))
    .order_by(OutboxMessage.created_at, OutboxMessage.outbox_id)
    .limit(bindparam("most")),
    "as_of",
    "most",
)

_DELIVERED = Statement(
    update(OutboxMessage)
    .where(OutboxMessage.outbox_id == bindparam("id"), OutboxMessage.delivered_at.is_(None))
    .values(delivered_at=bindparam("at"), attempts=OutboxMessage.attempts + literal_column("1")),
    "id",
    "at",
)

_IS_USED = Statement(
    select(literal_column("1")).where(OutboxMessage.outbox_id == bindparam("id")), "id"
)

_INSERT = Statement(
    insert(OutboxMessage).values(
        outbox_id=bindparam("id"),
        message_id=bindparam("message"),
        event_id=bindparam("event"),
        destination=bindparam("to"),
        payload_json=bindparam("payload"),
        created_at=bindparam("now"),
        available_at=bindparam("due"),
    ),
    "id",
    "message",
    "event",
    "to",
    "payload",
    "now",
    "due",
)
