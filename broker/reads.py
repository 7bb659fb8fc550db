"""Reads of streams and of the journal. Nothing here writes, the clock included."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from sqlalchemy import BigInteger, Text, and_, bindparam, exists, literal_column, select, text

from broker.errors import InvalidRequest
from broker.events import (
    EVENT_COLUMNS,
    fitting,
    journal_events,
    stored_events,
)
from broker.leases import AUTHORITY, require_authority
from broker.messages import (
    EventsPage,
    GetStreamRevisionRequest,
    Given,
    JournalEvent,
    ListStreamsRequest,
    ReadAuthorizedEventsPageRequest,
    ReadAuthorizedEventsRequest,
    ReadEventsRequest,
    ReadJournalRequest,
    ReadModelEventsRequest,
    ReadModelSource,
    ReadModelSourcesRequest,
    StoredEvent,
    validate,
)
from broker.models import (
    EVENT_TYPE_OF_PAYLOAD,
    READ_MODEL_PREDICATE,
    WORKSPACE_OF_PAYLOAD,
    ActorLease,
    Event,
    Stream,
)
from broker.postgresql import tables
from broker.postgresql.sql import TABLE_NAMES
from broker.runtime_events import DOMAIN_EVENT
from broker.shapes import Shape
from broker.statements import SCHEMA, Row, Spelled, Statement
from broker.transaction import ONE_ROW, TIME, Read, Transaction, read_time


def stream_revision(given: Given[GetStreamRevisionRequest]) -> Read[int]:
    """The number of events of a stream, 0 when it is unknown."""
    request = validate(GetStreamRevisionRequest, given)

    def read(transaction: Transaction) -> int:
        row = transaction.channel.one(_REVISION, request.stream_id)
        return 0 if row is None else _revision_in(row, request.stream_id)

    return read


def _revision_in(row: Row, stream_id: str) -> int:
    _STREAM_REVISION.require([row], [stream_id])
    return cast(int, row[0])


def events(given: Given[ReadEventsRequest]) -> Read[list[StoredEvent]]:
    """All events of a stream after a revision."""
    request = validate(ReadEventsRequest, given)

    def read(transaction: Transaction) -> list[StoredEvent]:
        return _events_after(transaction, request)

    return read


def _events_after(transaction: Transaction, request: ReadEventsRequest) -> list[StoredEvent]:
    after = request.after_revision
    with transaction.channel.each(_EVENTS, request.stream_id, after) as rows:
        return stored_events(rows)


def authorized_events(given: Given[ReadAuthorizedEventsRequest]) -> Read[list[StoredEvent]]:
    """As `events`, for the holder of a live lease on that stream."""
    request = validate(ReadAuthorizedEventsRequest, given)

    def read(transaction: Transaction) -> list[StoredEvent]:
        _authorize(transaction, request.authorization, request.stream_id)
        return _events_after(transaction, request)

    return read


def authorized_events_page(given: Given[ReadAuthorizedEventsPageRequest]) -> Read[EventsPage]:
    """One page of a stream, for the holder of a live lease on it."""
    request = validate(ReadAuthorizedEventsPageRequest, given)

    def read(transaction: Transaction) -> EventsPage:
        revision = _authorize(transaction, request, request.stream_id)
        through = revision if request.through_revision is None else request.through_revision
        if through > revision:
            raise InvalidRequest(
                f"throughRevision {through} is ahead of stream {request.stream_id!r},"
                f" which is at {revision}",
                streamId=request.stream_id,
                throughRevision=through,
                streamRevision=revision,
            )
        max_bytes = request.max_bytes or transaction.options.page_max_bytes
        with transaction.channel.each(
            _PAGE, request.stream_id, request.after_revision, through, request.limit
        ) as rows:
            found, rest = fitting(rows, max_bytes)
        if rest is not None and not found:
            raise InvalidRequest(
                f"the event at revision {rest[3]} does not fit into {max_bytes} bytes:"
                " allow for more"
            )
        reached = found[-1][3] if found else request.after_revision
        return EventsPage(tuple(stored_events(found)), reached, through, done=reached >= through)

    return read


def stream_page(stream_id: str, after: int, most: int) -> Read[list[StoredEvent]]:
    """A page of a stream after a revision, of at most so many events and the byte budget."""

    def read(transaction: Transaction) -> list[StoredEvent]:
        with transaction.channel.each(_STREAM_PAGE, stream_id, after, most) as rows:
            found = _fitting_or_first(rows, transaction.options.page_max_bytes)
        return stored_events(found)

    return read


def _fitting_or_first(rows: Iterable[Row], max_bytes: int) -> list[Row]:
    """As many as fit into a JSON array; too large, the first comes alone, so that readers get on."""
    found, rest = fitting(rows, max_bytes)
    return [rest] if rest is not None and not found else found


def _authorize(transaction: Transaction, reader: Any, stream_id: str) -> int:
    """The stream's revision, if the reader's lease is live and on it; else StaleLease."""
    row = cast(Row, transaction.channel.one(_STANDING, reader.actor_id, stream_id))
    now = transaction.observe(*row[:2])
    require_authority(row[3:], reader.actor_id, reader.lease, stream_id, now)
    return 0 if row[2] is None else _revision_in(row[2:3], stream_id)


# ---------------------------------------------------------------------------- across the streams


def list_streams(given: Given[ListStreamsRequest]) -> Read[list[str]]:
    """Ids of a workspace's streams that begin with a prefix, in byte order."""
    request = validate(ListStreamsRequest, given)
    after, beyond = request.after_stream_id or "", _beyond(request.prefix)

    def read(transaction: Transaction) -> list[str]:
        found = (request.workspace_id, after, request.prefix, request.limit)
        if beyond is None:
            rows = transaction.channel.all(_STREAMS_FROM, *found)
        else:
            rows = transaction.channel.all(_STREAMS_BETWEEN, *found, beyond)
        _STREAM_ID.require(rows)
        return [row[0] for row in rows]

    return read


def _beyond(prefix: str) -> str | None:
    """The least text that is greater than all texts with this prefix, None if there is none.

    Text is compared by the bytes of UTF-8, whose order is that of the code points.
    """
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return None
    successor = ord(head[-1]) + 1
    return head[:-1] + chr(0xE000 if successor == 0xD800 else successor)


def journal(given: Given[ReadJournalRequest]) -> Read[list[JournalEvent]]:
    """A page of all events of the database, in cursor order."""
    request = validate(ReadJournalRequest, given)
    return journal_page(request.after_cursor, request.limit)


def journal_page(after: int, most: int) -> Read[list[JournalEvent]]:
    """The page after a cursor, of at most so many events and the byte budget."""

    def read(transaction: Transaction) -> list[JournalEvent]:
        through = transaction.horizon()
        with transaction.channel.each(_JOURNAL, after, through, most) as rows:
            found = _fitting_or_first(rows, transaction.options.page_max_bytes)
        return journal_events(found)

    return read


def read_model_events(given: Given[ReadModelEventsRequest]) -> Read[list[JournalEvent]]:
    """A page of a workspace's read-model events, in cursor order."""
    request = validate(ReadModelEventsRequest, given)
    return read_model_page(request.workspace_id, request.after_cursor, request.limit)


def read_model_page(workspace_id: str, after: int, most: int) -> Read[list[JournalEvent]]:
    """The page after a cursor, of at most so many events and the byte budget."""

    def read(transaction: Transaction) -> list[JournalEvent]:
        options = transaction.options
        event_type = options.read_model_event_type
        through = transaction.horizon()
        with transaction.channel.each(
            _READ_MODEL, workspace_id, event_type, after, through, most
        ) as rows:
            found = _fitting_or_first(rows, options.read_model_max_bytes)
        return journal_events(found)

    return read


def read_model_sources(given: Given[ReadModelSourcesRequest]) -> Read[list[ReadModelSource]]:
    """A workspace's streams that have read-model events, in byte order."""
    request = validate(ReadModelSourcesRequest, given)

    def read(transaction: Transaction) -> list[ReadModelSource]:
        now = transaction.observe(*read_time(transaction))
        rows = transaction.channel.all(
            _SOURCES,
            request.workspace_id,
            request.after_stream_id or "",
            transaction.options.read_model_event_type,
            request.limit,
        )
        _SOURCE.require(rows)
        return [ReadModelSource(stream, epoch, until > now) for stream, epoch, until in rows]

    return read


def table_names() -> Read[list[str]]:
    """The names of all tables of the database, sorted."""
    return lambda transaction: [row[0] for row in transaction.channel.all(_TABLES)]


def journal_mode() -> Read[str]:
    """How the database keeps its journal."""
    return lambda transaction: cast(str, cast(Row, transaction.channel.one(_JOURNAL_MODE))[0])


# ------------------------------------------------------------------------------------- statements

_STREAM_ID = Shape(Stream.stream_id)
_STREAM_REVISION = Shape(Stream.revision)
_SOURCE = Shape(ActorLease.stream_id, ActorLease.epoch, ActorLease.expires_at)

# A server's log is always written ahead.
_JOURNAL_MODE = Statement(text("PRAGMA journal_mode"), on_postgresql="SELECT 'wal'")

_TABLES = Statement(
    text(
        "SELECT name FROM sqlite_schema"
        " WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name"
    ),
    on_postgresql=TABLE_NAMES,
)

_REVISION = Statement(
    select(Stream.revision).where(Stream.stream_id == bindparam("stream_id")), "stream_id"
)

_events = (
    select(*EVENT_COLUMNS)
    .where(Event.stream_id == bindparam("stream_id"), Event.revision > bindparam("after"))
    .order_by(Event.revision)
)

_EVENTS = Statement(_events, "stream_id", "after")

_STREAM_PAGE = Statement(_events.limit(bindparam("most")), "stream_id", "after", "most")

_PAGE = Statement(
    select(*EVENT_COLUMNS)
    .where(
        Event.stream_id == bindparam("stream_id"),
        Event.revision > bindparam("after"),
        Event.revision <= bindparam("through"),
    )
    .order_by(Event.revision)
    .limit(bindparam("most")),
    "stream_id",
    "after",
    "through",
    "most",
)

_STANDING = Statement(
    select(*TIME, Stream.revision, *AUTHORITY)
    .select_from(ONE_ROW)
    .outerjoin(ActorLease, ActorLease.actor_id == bindparam("actor_id"))
    .outerjoin(Stream, Stream.stream_id == bindparam("stream_id")),
    "actor_id",
    "stream_id",
)

_streams = (
    select(Stream.stream_id)
    .where(
        Stream.workspace_id == bindparam("workspace_id"),
        Stream.stream_id > bindparam("after"),
        Stream.stream_id >= bindparam("prefix"),
    )
    .order_by(Stream.stream_id)
    .limit(bindparam("most"))
)

_STREAMS_FROM = Statement(_streams, "workspace_id", "after", "prefix", "most")

_STREAMS_BETWEEN = Statement(
    _streams.where(Stream.stream_id < bindparam("beyond")),
    "workspace_id",
    "after",
    "prefix",
    "most",
    "beyond",
)

_JOURNAL = Statement(
    select(*EVENT_COLUMNS, Event.cursor)
    .where(Event.cursor > bindparam("after"), Event.cursor <= bindparam("through"))
    .order_by(Event.cursor)
    .limit(bindparam("most")),
    "after",
    "through",
    "most",
)

# Both conditions on the payload repeat the texts of `events_read_model_idx`, to be answered by it.
_WORKSPACE = Spelled(
    Text(),
    on_sqlite=WORKSPACE_OF_PAYLOAD,
    on_postgresql=f"{SCHEMA}{tables.WORKSPACE_OF_PAYLOAD}",
)
_EVENT_TYPE = Spelled(
    Text(),
    on_sqlite=EVENT_TYPE_OF_PAYLOAD,
    on_postgresql=f"{SCHEMA}{tables.EVENT_TYPE_OF_PAYLOAD}",
)
_KIND = Spelled(
    Text(),
    on_sqlite="CASE WHEN json_valid(payload_json) THEN json_extract(payload_json, '$.kind') END",
    on_postgresql=f"{SCHEMA}{tables.KIND_OF_PAYLOAD}",
)
# SQLite, where the journal ends nowhere, would take a range of two ends for a small one, and sort.
_CURSOR = Spelled(BigInteger(), on_sqlite="+events.rowid", on_postgresql="events.rowid")
_is_read_model_event = and_(
    literal_column(READ_MODEL_PREDICATE),
    bindparam("event_type") == _EVENT_TYPE,
    literal_column(f"'{DOMAIN_EVENT}'") == _KIND,
)

_READ_MODEL = Statement(
    select(*EVENT_COLUMNS, Event.cursor)
    .join(Stream, Stream.stream_id == Event.stream_id)
    .where(
        _is_read_model_event,
        bindparam("workspace_id") == _WORKSPACE,
        Stream.workspace_id == bindparam("workspace_id"),
        Event.cursor > bindparam("after"),
        bindparam("through") >= _CURSOR,
    )
    .order_by(Event.cursor)
    .limit(bindparam("most")),
    "workspace_id",
    "event_type",
    "after",
    "through",
    "most",
)

_SOURCES = Statement(
    select(Stream.stream_id, ActorLease.epoch, ActorLease.expires_at)
    .join(ActorLease, ActorLease.stream_id == Stream.stream_id)
    .where(
        Stream.workspace_id == bindparam("workspace_id"),
        Stream.stream_id > bindparam("after"),
        exists().where(Event.stream_id == Stream.stream_id, _is_read_model_event),
    )
    .order_by(Stream.stream_id)
    .limit(bindparam("most")),
    "workspace_id",
    "after",
    "event_type",
    "most",
)
