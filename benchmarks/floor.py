"""The floor: what plain `sqlite3` needs for the statements that the store runs, and nothing else.

The database is made by the store itself, so that indexes and triggers are the same; pragmas are the
same; the parameters of every statement are ready before the clock starts. Nothing is validated,
encoded, hashed, judged or turned into a result. That these are the store's statements is checked in
every run, by `benchmarks.fidelity`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.workload import Ready

Row = tuple[Any, ...]


def connect(path: Path, patience_s: int = 5) -> sqlite3.Connection:
    """A connection with the pragmas of the store's own, on which nothing begins by itself."""
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=patience_s, check_same_thread=False
    )
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "journal_mode=WAL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


# ---------------------------------------------------------------------------------------- commits

_LOOK = """
SELECT (SELECT value FROM metadata WHERE key = 'logical_time_floor'), NULL,
  (SELECT max(rowid) FROM events),
  inbox.request_hash, inbox.result_json, streams.revision, streams.workspace_id,
  actor_leases.stream_id, actor_leases.epoch, actor_leases.nonce, actor_leases.expires_at
FROM (SELECT 1 AS one) AS one_row
LEFT OUTER JOIN inbox ON inbox.message_id = ?
LEFT OUTER JOIN actor_leases ON actor_leases.actor_id = ?
LEFT OUTER JOIN streams ON streams.stream_id = ?
"""

_CLOCK = "UPDATE metadata SET value=? WHERE key = 'logical_time_floor'"

_STREAM = """
UPDATE streams SET revision=?, updated_at=?, workspace_id=coalesce(workspace_id, ?)
WHERE stream_id = ?
"""

_INBOX = """
INSERT INTO inbox (message_id, request_hash, stream_id, applied_revision, result_json, applied_at)
VALUES (?, ?, ?, ?, ?, ?)
"""

_EVENT = """
INSERT INTO events (event_id, message_id, stream_id, revision, event_type, payload_json,
  producer_epoch, occurred_at, correlation_id, causation_id, trace_id, rowid)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_OUTBOX = """
INSERT INTO outbox (outbox_id, message_id, event_id, destination, payload_json, created_at,
  available_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

_PROJECTION = """
INSERT INTO projections (projection_id, stream_id, revision, value_json, updated_at)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (projection_id) DO UPDATE SET
  revision = CASE WHEN (stream_id = excluded.stream_id) THEN excluded.revision END,
  value_json = excluded.value_json, updated_at = excluded.updated_at
"""


def commit(cursor: sqlite3.Cursor, ready: Ready) -> None:
    """The statements of a commit of some events, an outbox message and a projection."""
    execute = cursor.execute
    execute("BEGIN IMMEDIATE")
    execute(_LOOK, ready.look)
    cursor.fetchone()
    execute(_CLOCK, ready.clock)
    execute(_STREAM, ready.stream)
    execute(_INBOX, ready.inbox)
    if len(ready.events) == 1:
        execute(_EVENT, ready.events[0])
    else:
        cursor.executemany(_EVENT, ready.events)
    execute(_OUTBOX, ready.outbox)
    execute(_PROJECTION, ready.projection)
    execute("COMMIT")


def replay(cursor: sqlite3.Cursor, ready: Ready) -> object:
    """The look that finds a commit again, its result read as JSON."""
    cursor.execute("BEGIN IMMEDIATE")
    cursor.execute(_LOOK, ready.look)
    result = orjson.loads(cursor.fetchone()[4])
    cursor.execute("COMMIT")
    return result


def fill(connection: sqlite3.Connection, commits: list[Ready]) -> None:
    """Many commits in one transaction: the rows that as many single ones would have left."""
    last = commits[-1]
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_CLOCK, last.clock)
    connection.execute(_STREAM, last.stream)
    connection.executemany(_INBOX, [each.inbox for each in commits])
    connection.executemany(_EVENT, [event for each in commits for event in each.events])
    connection.executemany(_OUTBOX, [each.outbox for each in commits])
    connection.execute(_PROJECTION, last.projection)
    connection.execute("COMMIT")


def deliver_all(connection: sqlite3.Connection, now: int) -> None:
    """Deliver every outbox message, as a relay would have done long before the next commit."""
    connection.execute("UPDATE outbox SET delivered_at = ?, attempts = 1", (now,))


# ------------------------------------------------------------------------------------- heartbeats

_STANDING_OF_LEASE = """
SELECT (SELECT value FROM metadata WHERE key = 'logical_time_floor'), NULL,
  mutation_receipts.method, mutation_receipts.params_hash, mutation_receipts.response_json,
  actor_leases.actor_id, actor_leases.stream_id, actor_leases.holder_id, actor_leases.epoch,
  actor_leases.nonce, actor_leases.acquired_at, actor_leases.heartbeat_at, actor_leases.expires_at,
  other.actor_id, other.stream_id, other.holder_id, other.epoch,
  other.nonce, other.acquired_at, other.heartbeat_at, other.expires_at
FROM (SELECT 1 AS one) AS one_row
LEFT OUTER JOIN mutation_receipts ON mutation_receipts.request_id = ?
LEFT OUTER JOIN actor_leases ON actor_leases.actor_id = ?
LEFT OUTER JOIN actor_leases AS other ON other.stream_id = ?
"""

_EXTEND = "UPDATE actor_leases SET heartbeat_at=?, expires_at=? WHERE actor_id = ?"

_MAKE_ROOM = """
DELETE FROM mutation_receipts WHERE request_id IN (
  SELECT request_id FROM mutation_receipts ORDER BY created_at, request_id
  LIMIT max((SELECT count(*) FROM mutation_receipts) - ?, 0) OFFSET ?)
"""

_RECORD = """
INSERT INTO mutation_receipts (request_id, method, params_hash, response_json, created_at)
VALUES (?, ?, ?, ?, ?)
"""


class ReadyHeartbeat(NamedTuple):
    """The parameters of every statement of a heartbeat that has them."""

    standing: tuple[str, str, None]
    clock: tuple[str]
    lease: tuple[int, int, str]
    room: tuple[int, int]
    record: tuple[str, str, str, str, int]


def heartbeat(cursor: sqlite3.Cursor, ready: ReadyHeartbeat) -> None:
    """The statements of a heartbeat with a receipt."""
    execute = cursor.execute
    execute("BEGIN IMMEDIATE")
    execute(_STANDING_OF_LEASE, ready.standing)
    cursor.fetchone()
    execute(_CLOCK, ready.clock)
    execute(_EXTEND, ready.lease)
    execute(_MAKE_ROOM, ready.room)
    execute(_RECORD, ready.record)
    execute("COMMIT")


# ------------------------------------------------------------------------------------------ pages

_STANDING_OF_READER = """
SELECT (SELECT value FROM metadata WHERE key = 'logical_time_floor'), NULL, streams.revision,
  actor_leases.stream_id, actor_leases.epoch, actor_leases.nonce, actor_leases.expires_at
FROM (SELECT 1 AS one) AS one_row
LEFT OUTER JOIN actor_leases ON actor_leases.actor_id = ?
LEFT OUTER JOIN streams ON streams.stream_id = ?
"""

_PAGE = """
SELECT event_id, message_id, stream_id, revision, event_type, payload_json, producer_epoch,
  occurred_at, correlation_id, causation_id, trace_id
FROM events WHERE stream_id = ? AND revision > ? AND revision <= ?
ORDER BY revision LIMIT ? OFFSET ?
"""


class ReadyPage(NamedTuple):
    """The parameters of the two statements of a page."""

    standing: tuple[str, str]
    page: tuple[str, int, int, int, int]


def page(cursor: sqlite3.Cursor, ready: ReadyPage) -> list[object]:
    """The statements of a page for the holder of a lease, each payload read as JSON."""
    cursor.execute("BEGIN")
    cursor.execute(_STANDING_OF_READER, ready.standing)
    cursor.fetchone()
    cursor.execute(_PAGE, ready.page)
    payloads = [orjson.loads(row[5]) for row in cursor.fetchall()]
    cursor.connection.rollback()
    return payloads
