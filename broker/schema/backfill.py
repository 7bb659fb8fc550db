"""Which workspace owns which stream, found out from the events; for the step to version 3."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import Connection, text

from broker.canonical import NotJson, decode
from broker.database_url import POSTGRESQL, SQLITE
from broker.errors import SchemaError
from broker.runtime_events import ForeignStream, workspace_of
from broker.schema.steps import Progress

_REPORT_EVERY = 1_000

# Bytes on SQLite, because the driver's error for text that is not UTF-8 would not tell which row it
# is. In the order of the unique key, so that SQLite needs neither a sort nor a second pass.
_EVENTS = {
    SQLITE: """
SELECT rowid, CAST(stream_id AS BLOB), CAST(event_id AS BLOB), CAST(payload_json AS BLOB)
FROM events ORDER BY stream_id, revision
""",
    POSTGRESQL: """
SELECT rowid, stream_id, event_id, payload_json FROM events ORDER BY stream_id, revision
""",
}
_SET_OWNER = text(
    "UPDATE streams SET workspace_id = :owner WHERE stream_id = :stream AND workspace_id IS NULL"
)

# As many events as are in memory at a time; one may be as large as a page of them.
_AT_A_TIME = {"stream_results": True, "max_row_buffer": 100}


class Filled(NamedTuple):
    """How many events were read, and how many streams got an owner."""

    events: int
    streams: int


class _Event(NamedTuple):
    rowid: int
    stream_id: str
    event_id: str
    payload: bytes | str


@dataclass(slots=True)
class _Reader:
    """Reads events one by one, and reports how far it is."""

    connection: Connection
    progress: Progress | None
    done: int = 0

    def __iter__(self) -> Generator[_Event, None, None]:
        total = self.connection.exec_driver_sql("SELECT count(*) FROM events").scalar_one()
        statement = _EVENTS[self.connection.dialect.name]
        with self.connection.exec_driver_sql(statement, execution_options=_AT_A_TIME) as rows:
            for rowid, stream_id, event_id, payload in rows:
                yield _Event(
                    rowid,
                    _utf8(stream_id, rowid, "stream_id"),
                    _utf8(event_id, rowid, "event_id"),
                    payload,
                )
                self.done += 1
                if self.progress and (self.done % _REPORT_EVERY == 0 or self.done == total):
                    self.progress(self.done, total)


def backfill_owners(connection: Connection, progress: Progress | None = None) -> Filled:
    """Give every stream the workspace that its runtime events name, in the caller's transaction.

    Streams are read one after another, in bounded memory. The first event that cannot be judged
    ends it: one that is not UTF-8, not JSON, of another stream, or of a second workspace raises
    SchemaError with `table`, `row` (the rowid) and `column`, and the caller rolls back.
    """
    reader = _Reader(connection, progress)
    streams = 0
    with closing(iter(reader)) as every:  # a cursor of the server's is not left to be collected
        for stream_id, events in groupby(every, key=lambda event: event.stream_id):
            owner = _owner(events)
            if owner is not None:
                written = connection.execute(_SET_OWNER, {"owner": owner, "stream": stream_id})
                streams += written.rowcount
    return Filled(reader.done, streams)


def _owner(events: Iterator[_Event]) -> str | None:
    owner = None
    for event in events:
        workspace = _workspace(event)
        if workspace is not None and owner is not None and workspace != owner:
            raise _bad_payload(
                event, f"belongs to workspace {workspace!r}, but an earlier one to {owner!r}"
            )
        owner = workspace if owner is None else owner
    return owner


def _workspace(event: _Event) -> str | None:
    try:
        return workspace_of(
            decode(_utf8(event.payload, event.rowid, "payload_json")), event.stream_id
        )
    except NotJson as error:
        raise _bad_payload(event, f"has a payload that {error}") from error
    except ForeignStream as error:
        raise _bad_payload(
            event, f"is a runtime event of stream {error.payload_stream_id!r}"
        ) from error


def _utf8(raw: bytes | str, rowid: int, column: str) -> str:
    try:
        return raw if isinstance(raw, str) else raw.decode()
    except UnicodeDecodeError:
        raise SchemaError(
            f"events.{column} of the row with rowid {rowid} is not UTF-8; {_CURE}",
            table="events",
            row=rowid,
            column=column,
        ) from None


def _bad_payload(event: _Event, fault: str) -> SchemaError:
    return SchemaError(
        f"event {event.event_id!r} of stream {event.stream_id!r} (rowid {event.rowid}) {fault};"
        f" {_CURE}",
        table="events",
        row=event.rowid,
        column="payload_json",
        eventId=event.event_id,
        streamId=event.stream_id,
    )


_CURE = "the database was left as it was: correct that row and upgrade again"
