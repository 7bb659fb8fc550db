"""What the store is compared with on PostgreSQL: the same work without the store.

`Core` does a commit as SQLAlchemy Core statements that are issued one by one, as an application
would write it. `Floor` sends about the same statements by the driver's lowest level, prepared and
in as many round trips as the store; nothing can be much faster. For both the parameters are ready
before the clock starts, and nothing is validated, encoded, hashed, judged or turned into a result.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from sqlalchemy import Connection, Table, bindparam, func, insert, update
from sqlalchemy import select as select_from
from sqlalchemy.dialects.postgresql import insert as upsert

from benchmarks.workload import PAGE_MAX_BYTES, Request
from broker.commits import prepare
from broker.models import Base
from broker.runtime_events import workspace_of

if TYPE_CHECKING:
    import psycopg

Row = dict[str, Any]


class Rows(NamedTuple):
    """What a commit looks at and what it leaves."""

    keys: Row
    stream: Row
    inbox: Row
    events: list[Row]
    outbox: list[Row]
    now: str


def rows(request: Request, now: int) -> Rows:
    """The rows of this request at `now`, with cursors left to the database."""
    sent = prepare(request, PAGE_MAX_BYTES)
    before, count, stream_id = sent.expected_revision, len(sent.events), sent.stream_id
    own = {"message_id": sent.message_id, "stream_id": stream_id}
    result = {
        "messageId": sent.message_id,
        "streamId": stream_id,
        "previousRevision": before,
        "revision": before + count,
        "eventIds": [event[0] for event in sent.events],
        "eventCursors": list(range(before + 1, before + count + 1)),
        "outboxIds": [message[0] for message in sent.outbox],
        "appliedAt": now,
        "recovered": False,
    }
    return Rows(
        keys={"actor_id": sent.actor_id, **own, "floor": "logical_time_floor"},
        stream={
            "stream_id": stream_id,
            "revision": before + count,
            "created_at": now,
            "updated_at": now,
            "workspace_id": workspace_of(sent.events[0][-1], stream_id),
        },
        inbox={
            **own,
            "request_hash": sent.request_hash,
            "applied_revision": before + count,
            "result_json": orjson.dumps(result).decode(),
            "applied_at": now,
        },
        events=[
            {
                **own,
                "event_id": event[0],
                "revision": before + index,
                "event_type": event[1],
                "payload_json": text,
                "producer_epoch": sent.lease.epoch,
                "occurred_at": now,
            }
            for index, (event, text) in enumerate(zip(sent.events, sent.payloads, strict=True), 1)
        ],
        outbox=[
            {
                "outbox_id": message[0],
                "message_id": sent.message_id,
                "event_id": message[2],
                "destination": message[1],
                "payload_json": text,
                "created_at": now,
                "available_at": now,
            }
            for message, text in zip(sent.outbox, sent.outbox_payloads, strict=True)
        ],
        now=str(now),
    )


# ------------------------------------------------------------------------------------------- Core


def _table(name: str) -> Table:
    return Base.metadata.tables[name]


_METADATA, _LEASES, _STREAMS = _table("metadata"), _table("actor_leases"), _table("streams")
_INBOX, _EVENTS, _OUTBOX = _table("inbox"), _table("events"), _table("outbox")

_LOCK_WORKSPACE = select_from(
    func.pg_advisory_xact_lock(func.hashtextextended(bindparam("workspace_id"), 0))
)
_LOCK_LEASE = (
    select_from(_LEASES)
    .where(_LEASES.c.actor_id == bindparam("actor_id"))
    .with_for_update(key_share=True)
)
_LOCK_STREAM = (
    select_from(_STREAMS)
    .where(_STREAMS.c.stream_id == bindparam("stream_id"))
    .with_for_update(key_share=True)
)
_RECORDED = select_from(_INBOX).where(_INBOX.c.message_id == bindparam("message_id"))
_READ_FLOOR = select_from(_METADATA.c.value).where(_METADATA.c.key == bindparam("floor"))
_INSERT_STREAM = upsert(_STREAMS)
_MOVE = _INSERT_STREAM.on_conflict_do_update(
    index_elements=["stream_id"],
    set_={
        "revision": _INSERT_STREAM.excluded.revision,
        "updated_at": _INSERT_STREAM.excluded.updated_at,
        "workspace_id": func.coalesce(
            _STREAMS.c.workspace_id, _INSERT_STREAM.excluded.workspace_id
        ),
    },
)
# As the store does: who finds another raising it goes on.
_RAISE_FLOOR = (
    update(_METADATA)
    .where(
        _METADATA.c.key
        == select_from(_METADATA.c.key)
        .where(_METADATA.c.key == bindparam("floor"))
        .with_for_update(key_share=True, skip_locked=True)
        .scalar_subquery()
    )
    .values(value=bindparam("now"))
)


def core_commit(connection: Connection, ready: Rows, *, workspace_lock: bool = False) -> None:
    """The statements of a commit, one after another; with a lock on its workspace in front."""
    execute, keys = connection.execute, ready.keys
    with connection.begin():
        if workspace_lock:
            execute(_LOCK_WORKSPACE, {"workspace_id": ready.stream["workspace_id"]}).one()
        execute(_LOCK_LEASE, keys).one()
        execute(_LOCK_STREAM, keys).one_or_none()
        execute(_RECORDED, keys).one_or_none()
        execute(_READ_FLOOR, keys).one_or_none()
        execute(_MOVE, ready.stream)
        execute(insert(_INBOX), ready.inbox)
        execute(insert(_EVENTS), ready.events)
        execute(insert(_OUTBOX), ready.outbox)
        execute(_RAISE_FLOOR, {"now": ready.now, "floor": keys["floor"]})


# --------------------------------------------------------------------------------- in two journeys


_LOOK = """
WITH lease AS MATERIALIZED (
  SELECT stream_id, epoch, nonce, expires_at FROM actor_leases WHERE actor_id = $1
  FOR NO KEY UPDATE),
stream AS MATERIALIZED (
  SELECT revision, workspace_id FROM streams WHERE stream_id = $2 FOR NO KEY UPDATE)
SELECT (SELECT value FROM metadata WHERE key = 'logical_time_floor'),
  (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
  pg_advisory_xact_lock_shared(99, 1)::text,
  inbox.request_hash, inbox.result_json, lease.*, stream.*
FROM (SELECT 1) AS one_row LEFT JOIN lease ON true LEFT JOIN stream ON true
LEFT JOIN inbox ON inbox.message_id = $3
"""
_FLOOR_MOVE = """
INSERT INTO streams (stream_id, revision, created_at, updated_at, workspace_id)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (stream_id) DO UPDATE SET revision = excluded.revision,
  updated_at = excluded.updated_at,
  workspace_id = coalesce(streams.workspace_id, excluded.workspace_id)
"""
_FLOOR_RAISE = """
UPDATE metadata SET value = $1 WHERE key = (
  SELECT key FROM metadata WHERE key = 'logical_time_floor' FOR NO KEY UPDATE SKIP LOCKED)
"""


class Floor:
    """A connection in pipeline mode, used at the level of libpq."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._pg = connection.pgconn
        self._pg.enter_pipeline_mode()
        self._names: dict[str, bytes] = {}
        self._sent = 0

    def commit(self, ready: Rows) -> None:
        """BEGIN and one look; then the writes and COMMIT."""
        keys = ready.keys
        self._send("BEGIN")
        self._send(_LOOK, [keys["actor_id"], keys["stream_id"], keys["message_id"]])
        self._receive()
        self._send(_FLOOR_MOVE, list(ready.stream.values()))
        self._insert("inbox", ready.inbox)
        for table, written in (("events", ready.events), ("outbox", ready.outbox)):
            for row in written:
                self._insert(table, row)
        self._send(_FLOOR_RAISE, [ready.now])
        self._send("COMMIT")
        self._receive()

    def _insert(self, table: str, row: Row) -> None:
        places = ", ".join(f"${place}" for place in range(1, len(row) + 1))
        self._send(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", list(row.values()))

    def _send(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        name = self._names.get(statement)
        if name is None:
            name = self._names[statement] = f"s{len(self._names)}".encode()
            self._pg.send_prepare(name, statement.encode())
            self._sent += 1
        values = [None if each is None else str(each).encode() for each in parameters]
        self._pg.send_query_prepared(name, values)
        self._sent += 1

    def _receive(self) -> None:
        """Wait for the answers to all that was sent; raises for the first that is an error."""
        from psycopg.pq import ExecStatus

        self._pg.pipeline_sync()
        while self._pg.flush():
            select.select([], [self._pg.socket], [])
        while self._sent:
            result = self._result()
            if result is None:
                self._sent -= 1
            elif result.status in (ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED):
                raise RuntimeError(result.error_message.decode())
        self._result()  # of the synchronization itself

    def _result(self) -> Any:
        while self._pg.is_busy():
            select.select([self._pg.socket], [], [])
            self._pg.consume_input()
        return self._pg.get_result()


# ------------------------------------------------------------------------------------------- pages

_STANDING = """
SELECT (SELECT value FROM metadata WHERE key = 'logical_time_floor'), streams.revision,
  actor_leases.stream_id, actor_leases.epoch, actor_leases.nonce, actor_leases.expires_at
FROM (SELECT 1) AS one_row LEFT JOIN actor_leases ON actor_leases.actor_id = %s
LEFT JOIN streams ON streams.stream_id = %s
"""
_PAGE = """
SELECT event_id, message_id, stream_id, revision, event_type, payload_json, producer_epoch,
  occurred_at, correlation_id, causation_id, trace_id
FROM events WHERE stream_id = %s AND revision > %s AND revision <= %s
ORDER BY revision LIMIT %s
"""


class ReadyPage(NamedTuple):
    """The parameters of the two statements of a page."""

    standing: tuple[str, str]
    page: tuple[str, int, int, int]


def page(connection: psycopg.Connection[Any], ready: ReadyPage) -> list[object]:
    """The statements of a page for the holder of a lease, each payload read as JSON."""
    connection.execute(_STANDING, ready.standing).fetchone()
    found = connection.execute(_PAGE, ready.page).fetchall()
    connection.rollback()
    return [orjson.loads(row[5]) for row in found]
