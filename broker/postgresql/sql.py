"""The SQL that only PostgreSQL has: locks on rows, the order of the journal, writing all at once.

Everything here that a database which merely speaks PostgreSQL's protocol may lack is nowhere else:
row locks that see the newest version after a wait, SKIP LOCKED, statements that change several
tables, advisory locks and `pg_locks`, a sequence's `last_value`. See docs/postgresql.md.

**Locks.** READ COMMITTED. A commit locks its actor's lease and then its stream, a mutation all the
leases that it is about, in the order of their streams: so nobody waits in a circle. A statement
that has waited for a row sees that row as it is now, and everything else as it was before: what is
refused is therefore looked at once more, see `PostgresTransaction.settled`.

**Order.** Cursors come from a sequence, and transactions end in another order than they draw from
it. So whoever is about to draw first takes a shared advisory lock, until its transaction ends, that
names the last number drawn until then: all of its own will be larger. A reader takes the last
number drawn, then looks at the locks, and reads up to the smallest that is named: whatever is not
committed by then has a larger cursor. Nobody waits for anybody; a reader lags behind the oldest
transaction that has appended and is still open. The lock's first key is the sequence's OID, so that
several stores in one database are kept apart, its second the number, in 31 bits. A transaction that
appends many times keeps to its first number, so that it holds one lock.
"""

from __future__ import annotations

from typing import NamedTuple

#: The server's clock in milliseconds since 1970; not now(), which stands still in a transaction.
SERVER_TIME = "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)"

#: Settings of a transaction of the store's, or of a session if the second is false: how many
#: milliseconds to wait for locks, and that what is acknowledged survives a crash of the server.
SETTINGS = """
SELECT set_config('lock_timeout', '{timeout_ms:d}', {is_local}),
  CASE current_setting('synchronous_commit') WHEN 'off'
  THEN set_config('synchronous_commit', 'on', {is_local}) END
"""

_FLOOR = "(SELECT value FROM {schema}metadata WHERE key = 'logical_time_floor')"
_BITS = "2147483648"

#: What the drawing of cursors needs of the sequence.
_SEQUENCE = (
    "SELECT tableoid AS id, last_value - (NOT is_called)::int AS last FROM {schema}events_rowid_seq"
)

# Drawn after the locks are held, for else a stream's cursors could be in another order than its
# revisions: `mark` needs the rows of both.
LOOK_FOR_COMMIT = f"""
WITH lease AS MATERIALIZED (
  SELECT stream_id, epoch, nonce, expires_at FROM {{schema}}actor_leases
  WHERE actor_id = :actor_id FOR NO KEY UPDATE
), stream AS MATERIALIZED (
  SELECT revision, workspace_id FROM {{schema}}streams
  WHERE stream_id = :stream_id AND EXISTS (SELECT FROM lease WHERE lease.stream_id = :stream_id)
  FOR NO KEY UPDATE
), mark AS MATERIALIZED (
  SELECT id, number, pg_advisory_xact_lock_shared(id::int, number) FROM (
    SELECT id, coalesce(CAST(:mark AS int), (last % {_BITS})::int) AS number
    FROM ({_SEQUENCE}) AS s, (SELECT count(*) FROM lease) AS l, (SELECT count(*) FROM stream) AS t
  ) AS numbered
), drawn AS MATERIALIZED (
  SELECT max(number) || ':' || string_agg(nextval(mark.id::regclass)::text, ',') AS found
  FROM mark, generate_series(1, CAST(:count AS int))
)
SELECT {_FLOOR}, {SERVER_TIME}, drawn.found, inbox.request_hash, inbox.result_json,
  stream.revision, stream.workspace_id, lease.stream_id, lease.epoch, lease.nonce, lease.expires_at
FROM drawn LEFT JOIN lease ON true LEFT JOIN stream ON true
LEFT JOIN {{schema}}inbox AS inbox ON inbox.message_id = :message_id
"""

_LEASE = (
    "{0}.actor_id, {0}.stream_id, {0}.holder_id, {0}.epoch, {0}.nonce, {0}.acquired_at,"
    " {0}.heartbeat_at, {0}.expires_at"
)

LOOK_FOR_MUTATION = f"""
WITH locked AS MATERIALIZED (
  SELECT * FROM {{schema}}actor_leases WHERE actor_id = :actor_id OR stream_id = :stream_id
  ORDER BY stream_id FOR NO KEY UPDATE
)
SELECT {_FLOOR}, {SERVER_TIME}, receipt.method, receipt.params_hash, receipt.response_json,
  {_LEASE.format("of_actor")}, {_LEASE.format("of_stream")}
FROM (SELECT count(*) FROM locked) AS one
LEFT JOIN {{schema}}mutation_receipts AS receipt ON receipt.request_id = :request_id
LEFT JOIN locked AS of_actor ON of_actor.actor_id = :actor_id
LEFT JOIN locked AS of_stream ON of_stream.stream_id = :stream_id
"""

# Last in a transaction, and passed over where another is about to do the same: no commit waits for
# the row that all of them would change.
RAISE_FLOOR = """
UPDATE {schema}metadata SET value = :now WHERE key IN (
  SELECT key FROM {schema}metadata WHERE key = 'logical_time_floor'
  AND CASE key WHEN 'logical_time_floor' THEN CAST(value AS bigint) END < CAST(:now AS bigint)
  FOR NO KEY UPDATE SKIP LOCKED
)
"""

# Those that another mutation is deleting are not waited for, nor counted as gone.
MAKE_ROOM = """
DELETE FROM {schema}mutation_receipts WHERE request_id IN (
  SELECT request_id FROM {schema}mutation_receipts ORDER BY created_at, request_id
  LIMIT greatest((SELECT count(*) FROM {schema}mutation_receipts) - :kept, 0)
  FOR UPDATE SKIP LOCKED
)
"""

#: The largest cursor up to which all events are committed that ever will be, null on a standby. The
#: subquery is correlated, so that the locks are looked at after the sequence.
HORIZON = f"""
SELECT CASE WHEN NOT pg_is_in_recovery() THEN coalesce((
  SELECT min(s.last - (s.last % {_BITS} - l.objid::bigint + {_BITS}) % {_BITS})
  FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.classid = s.id AND l.objsubid = 2
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
), s.last) END
FROM ({_SEQUENCE} OFFSET 0) AS s
"""

#: The tables in the schema of the store.
TABLE_NAMES = """
SELECT c.relname FROM pg_class AS c WHERE c.relkind IN ('r', 'p')
  AND c.relnamespace = (
    SELECT relnamespace FROM pg_class AS s JOIN {schema}events_rowid_seq AS q ON s.oid = q.tableoid
  )
ORDER BY c.relname COLLATE "C"
"""


# ------------------------------------------------------------------------------- writing commits


class Insertion(NamedTuple):
    """How rows come into a table: `INSERT INTO` `into` the values of `types` `having` a rule."""

    into: str
    types: str
    having: str = ""


EVENT_COLUMNS = (
    "event_id, message_id, stream_id, revision, event_type, payload_json, producer_epoch,"
    " occurred_at, correlation_id, causation_id, trace_id, rowid"
)

# In the order of writing. A projection of another stream gets null for its revision, to which the
# column objects; so does a stream that a look did not find and that has got further since, which a
# commit without events would set back.
INSERTIONS = {
    "streams": Insertion(
        "streams AS s (stream_id, revision, created_at, updated_at, workspace_id)",
        "text bigint bigint bigint text",
        "ON CONFLICT (stream_id) DO UPDATE SET"
        " revision = CASE WHEN s.revision <= excluded.revision THEN excluded.revision END,"
        " updated_at = excluded.updated_at,"
        " workspace_id = coalesce(s.workspace_id, excluded.workspace_id)",
    ),
    "inbox": Insertion(
        "inbox (message_id, request_hash, stream_id, applied_revision, result_json, applied_at)",
        "text text text bigint text bigint",
    ),
    "events": Insertion(
        f"events ({EVENT_COLUMNS}) OVERRIDING SYSTEM VALUE",
        "text text text bigint text text bigint bigint text text text bigint",
    ),
    "outbox": Insertion(
        "outbox (outbox_id, message_id, event_id, destination, payload_json, created_at,"
        " available_at)",
        "text text text text text bigint bigint",
    ),
    "projections": Insertion(
        "projections AS p (projection_id, stream_id, revision, value_json, updated_at)",
        "text text bigint text bigint",
        "ON CONFLICT (projection_id) DO UPDATE SET"
        " revision = CASE WHEN p.stream_id = excluded.stream_id THEN excluded.revision END,"
        " value_json = excluded.value_json, updated_at = excluded.updated_at",
    ),
}

#: For events that are too many for a statement: COPY takes the given values of an identity column.
COPY_EVENTS = f"COPY {{schema}}events ({EVENT_COLUMNS}) FROM STDIN"


def insert_into(*tables: str) -> tuple[str, list[str]]:
    """One statement that inserts rows into all of these tables, and the names of its parameters.

    Those are arrays, one for each column of each table, in the order of `INSERTIONS`. Foreign keys
    are checked at the end of the statement.
    """
    names: list[str] = []
    parts = []
    for table in tables:
        into, types, having = INSERTIONS[table]
        ours = [f"{table}_{place}" for place, _ in enumerate(types.split())]
        arrays = ", ".join(
            f"CAST(:{name} AS {kind}[])" for name, kind in zip(ours, types.split(), strict=True)
        )
        parts.append(f"INSERT INTO {{schema}}{into} SELECT * FROM unnest({arrays}) {having}")
        names += ours
    *others, last = parts
    ctes = ", ".join(f"part_{place} AS ({part})" for place, part in enumerate(others))
    return (f"WITH {ctes} {last}" if others else last), names
