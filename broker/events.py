"""Stored events: their columns, how a row becomes an event, and how many bytes it takes as JSON."""

from __future__ import annotations

from typing import Any

import orjson

from broker.canonical import Json, NotJson, decode
from broker.errors import CorruptRow
from broker.messages import JournalEvent, StoredEvent
from broker.models import Event
from broker.statements import Row

#: The columns of an event, in the order of `StoredEvent`.
EVENT_COLUMNS = (
    Event.event_id,
    Event.message_id,
    Event.stream_id,
    Event.revision,
    Event.event_type,
    Event.payload_json,
    Event.producer_epoch,
    Event.occurred_at,
    Event.correlation_id,
    Event.causation_id,
    Event.trace_id,
)

# An id takes at most 1,024 bytes, six times as many when all of it must be escaped; there are
# seven of them beside the payload, and names, numbers and punctuation.
MOST_EVENT_BYTES_BESIDES_PAYLOAD = 7 * 6 * 1_024 + 512

_REQUIRED_NAMES = len(
    '{"eventId":,"messageId":,"streamId":,"revision":,"eventType":,"payload":,"producerEpoch":,'
    '"occurredAt":}'
)
_OPTIONAL_NAMES = (len(',"correlationId":'), len(',"causationId":'), len(',"traceId":'))
_SEVEN_VALUES_APART = len("[,,,,,,]")


def stored_event(row: Row) -> StoredEvent:
    """The event in a row of `EVENT_COLUMNS`; raises CorruptRow."""
    event_id, message_id, stream_id, revision, event_type, payload, *rest = row
    value = stored_json(payload, "events", event_id, "payload_json")
    return StoredEvent(event_id, message_id, stream_id, revision, event_type, value, *rest)


def journal_event(row: Row) -> JournalEvent:
    """The event in a row of `EVENT_COLUMNS` and the cursor; raises CorruptRow."""
    event_id, message_id, stream_id, revision, event_type, payload, *rest = row
    value = stored_json(payload, "events", event_id, "payload_json")
    return JournalEvent(event_id, message_id, stream_id, revision, event_type, value, *rest)


def stored_json(text: str, table: str, row: str, column: str) -> Json:
    """The value of a stored JSON text; raises CorruptRow, naming the row."""
    try:
        return decode(text)
    except NotJson as error:
        raise CorruptRow(
            f"{table}.{column} of {row!r} cannot be read: it {error}",
            table=table,
            row=row,
            column=column,
        ) from error


def event_bytes(
    event_id: str,
    message_id: str,
    stream_id: str,
    revision: int,
    event_type: str,
    payload: str,
    producer_epoch: int,
    occurred_at: int,
    *optional: str | None,
) -> int:
    """The length in UTF-8 of an event's wire form, given its stored payload.

    Everything but the payload is encoded once more to be measured; the payload never is.
    """
    values = (event_id, message_id, stream_id, revision, event_type, producer_epoch, occurred_at)
    size = _REQUIRED_NAMES + len(orjson.dumps(values)) - _SEVEN_VALUES_APART
    size += len(payload) if payload.isascii() else len(payload.encode())
    for name, value in zip(_OPTIONAL_NAMES, optional, strict=True):
        if value is not None:
            size += name + len(orjson.dumps(value))
    return size


def cursor_bytes(cursor: Any) -> int:
    """What the cursor adds to an event's wire form."""
    return len(f',"cursor":{cursor}')
