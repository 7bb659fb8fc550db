"""Stored events: their columns, how a row becomes an event, and how many bytes it takes as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

import orjson

from broker.canonical import Json, NotJson, decode, decode_all
from broker.errors import CorruptRow
from broker.messages import MAX_ID_BYTES, JournalEvent, StoredEvent
from broker.messages.results import unfrozen
from broker.models import Event
from broker.shapes import Shape
from broker.statements import Row

E = TypeVar("E", bound=StoredEvent)

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

_SHAPE = Shape(*EVENT_COLUMNS, Event.cursor)

_MOST_BYTES_OF_A_CHARACTER = 4
_MOST_BYTES_OF_AN_ESCAPE = 6  # which a character of an id may need; a payload has its own already
_MOST_BYTES_BESIDES_TEXTS = 512  # names, numbers and punctuation

# There are seven ids beside the payload.
MOST_EVENT_BYTES_BESIDES_PAYLOAD = (
    7 * MAX_ID_BYTES * _MOST_BYTES_OF_AN_ESCAPE + _MOST_BYTES_BESIDES_TEXTS
)

_REQUIRED_NAMES = len(
    '{"eventId":,"messageId":,"streamId":,"revision":,"eventType":,"payload":,"producerEpoch":,'
    '"occurredAt":}'
)
_OPTIONAL_NAMES = (len(',"correlationId":'), len(',"causationId":'), len(',"traceId":'))
_SEVEN_VALUES_APART = len("[,,,,,,]")


def stored_events(rows: Iterable[Row]) -> list[StoredEvent]:
    """The events in rows of `EVENT_COLUMNS`; raises CorruptRow for the first that cannot be read.

    No more rows are fetched at a time than are read together.
    """
    return _events(StoredEvent, _UNFROZEN_STORED_EVENT, rows)


def journal_events(rows: Iterable[Row]) -> list[JournalEvent]:
    """As `stored_events`, for rows of `EVENT_COLUMNS` and the cursor."""
    return _events(JournalEvent, _UNFROZEN_JOURNAL_EVENT, rows)


_READ_TOGETHER = 128

_UNFROZEN_STORED_EVENT = unfrozen(StoredEvent)
_UNFROZEN_JOURNAL_EVENT = unfrozen(JournalEvent)


def _events(kind: type[E], unfrozen_kind: type[E], rows: Iterable[Row]) -> list[E]:
    events = []
    left = iter(rows)
    while batch := list(islice(left, _READ_TOGETHER)):
        _SHAPE.require(batch)
        for row, payload in zip(batch, _payloads(batch), strict=True):
            event: Any = unfrozen_kind(*row)
            event.payload = payload
            event.__class__ = kind
            events.append(event)
    return events


def _payloads(rows: list[Row]) -> list[Json]:
    try:
        return decode_all([row[5] for row in rows])
    except NotJson:
        return [stored_json(row[5], "events", row[0], "payload_json") for row in rows]


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


def fitting(rows: Iterable[Row], max_bytes: int) -> tuple[list[Row], Row | None]:
    """The first rows whose events fit into a JSON array of `max_bytes`, and the one that does not.

    Rows are of `EVENT_COLUMNS`, with the cursor or without. None is fetched after one with which
    the payloads alone are too long: a page of large events must not cost the memory of all rows.
    Nor is one measured where all of them fit in any case, which their lengths alone can tell.
    """
    fetched: list[Row] = []
    try:
        return _fitting(rows, max_bytes, fetched)
    except (AttributeError, TypeError):  # what should be text has no length as text
        _SHAPE.require(fetched)
        raise


def _fitting(
    rows: Iterable[Row], max_bytes: int, fetched: list[Row]
) -> tuple[list[Row], Row | None]:
    in_payloads = in_ids = 0
    for row in rows:
        fetched.append(row)
        in_payloads += len(row[5])
        in_ids += len(row[0]) + len(row[1]) + len(row[2]) + len(row[4])
        if row[8] or row[9] or row[10]:
            in_ids += sum(map(len, filter(None, row[8:11])))
        if in_payloads > max_bytes:
            break
    rest = in_ids * _MOST_BYTES_OF_AN_ESCAPE + len(fetched) * _MOST_BYTES_BESIDES_TEXTS
    if in_payloads * _MOST_BYTES_OF_A_CHARACTER + rest <= max_bytes or (
        in_payloads + rest <= max_bytes and all(row[5].isascii() for row in fetched)
    ):
        return fetched, None
    taken = len("[]") - len(",")
    for place, row in enumerate(fetched):
        taken += event_bytes(*row[:11]) + sum(map(cursor_bytes, row[11:])) + len(",")
        if taken > max_bytes:
            return fetched[:place], row
    return fetched, None
