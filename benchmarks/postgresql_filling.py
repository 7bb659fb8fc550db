"""A database as so many commits would have left it, made on the server.

One stream, an event of 1 KiB, an inbox row and a delivered outbox message for each commit, ids in
the order of time as `workload.time_ordered` makes them. The server does not check the keys again.
"""

from __future__ import annotations

import itertools

from sqlalchemy import Connection, NullPool, create_engine, text

from benchmarks.postgresql_floor import Rows, rows
from benchmarks.postgresql_processes import lean, now_ms
from benchmarks.workload import Requests

_CHUNK = 50_000

_ID = "lpad(to_hex(number), 16, '0') || '-' || lpad(to_hex(number * 2654435761::bigint), 16, '0')"
_STATEMENTS = (
    f"""
    INSERT INTO inbox (message_id, request_hash, stream_id, applied_revision, result_json,
      applied_at)
    SELECT 'm-' || {_ID}, encode(sha256(int8send(number)), 'hex'), :stream_id, number, :result_json,
      :now
    FROM generate_series(:first ::bigint, :last ::bigint) AS number
    """,
    f"""
    INSERT INTO events (event_id, message_id, stream_id, revision, event_type, payload_json,
      producer_epoch, occurred_at)
    SELECT 'e-' || {_ID} || '-0', 'm-' || {_ID}, :stream_id, number, :event_type, :payload_json,
      :producer_epoch, :now
    FROM generate_series(:first ::bigint, :last ::bigint) AS number
    """,
    f"""
    INSERT INTO outbox (outbox_id, message_id, event_id, destination, payload_json, created_at,
      available_at, delivered_at, attempts)
    SELECT 'o-' || {_ID}, 'm-' || {_ID}, 'e-' || {_ID} || '-0', :destination, :outbox_json, :now,
      :now, :now, 1
    FROM generate_series(:first ::bigint, :last ::bigint) AS number
    """,
)
_MOVE = """
INSERT INTO streams (stream_id, revision, created_at, updated_at)
VALUES (:stream_id, :last, :now, :now)
ON CONFLICT (stream_id) DO UPDATE SET revision = excluded.revision
"""
_TABLES = ("inbox", "events", "outbox", "streams", "metadata", "actor_leases")


def fill(url: str, requests: Requests, commits: int) -> None:
    """Leave what so many commits of this stream would have left; the requests go on from there."""
    engine = create_engine(url, poolclass=NullPool)
    sample = rows(lean(requests.next()), now_ms())
    with engine.connect() as connection:
        for first in range(1, commits + 1, _CHUNK):
            with connection.begin():
                _fill(connection, sample, first, min(first + _CHUNK - 1, commits))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in _TABLES:
            connection.execute(text(f"VACUUM ANALYZE {table}"))
    engine.dispose()
    requests.numbers = itertools.count(commits + 1)
    requests.revision = commits


def _fill(connection: Connection, sample: Rows, first: int, last: int) -> None:
    (event,), (message,) = sample.events, sample.outbox
    given = {
        "first": first,
        "last": last,
        "now": int(sample.now),
        "stream_id": sample.stream["stream_id"],
        "result_json": sample.inbox["result_json"],
        "event_type": event["event_type"],
        "payload_json": event["payload_json"],
        "producer_epoch": event["producer_epoch"],
        "destination": message["destination"],
        "outbox_json": message["payload_json"],
    }
    connection.execute(text("SET LOCAL session_replication_role = replica"))
    connection.execute(text(_MOVE), given)
    for statement in _STATEMENTS:
        connection.execute(text(statement), given)
