"""Version 3: streams have owners, a stream has one lease, lease mutations have receipts."""

from __future__ import annotations

from alembic import op

from broker.schema.backfill import backfill_owners
from broker.schema.steps import step

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TITLE = "version 3: owners of streams, one lease a stream, receipts"

COLUMN = {
    "sqlite": "ALTER TABLE streams ADD COLUMN workspace_id TEXT",
    "postgresql": 'ALTER TABLE streams ADD COLUMN workspace_id TEXT COLLATE "C"',
}

# Of several leases on a stream none can be the right one: they are ended, the highest epoch stays.
COLLAPSE = {
    "sqlite": (
        """CREATE TEMP TABLE broker_duplicates AS
SELECT stream_id, max(epoch) AS epoch, count(*) AS leases
FROM actor_leases GROUP BY stream_id HAVING count(*) > 1""",
        "DELETE FROM actor_leases WHERE stream_id IN (SELECT stream_id FROM temp.broker_duplicates)",
        """INSERT INTO actor_leases
  (actor_id, stream_id, holder_id, epoch, nonce, acquired_at, heartbeat_at, expires_at)
SELECT char(0) || 'runtime-broker-lineage:' || hex(stream_id), stream_id,
  char(0) || 'runtime-broker-migration', epoch, lower(hex(randomblob(16))), 0, 0, 0
FROM temp.broker_duplicates ORDER BY stream_id""",
    ),
    "postgresql": (
        """CREATE TEMP TABLE broker_duplicates AS
SELECT stream_id, max(epoch) AS epoch, count(*) AS leases
FROM actor_leases GROUP BY stream_id HAVING count(*) > 1""",
        "DELETE FROM actor_leases WHERE stream_id IN (SELECT stream_id FROM broker_duplicates)",
        # PostgreSQL's text holds no NUL: there the ids that no caller can have start with U+0001.
        """INSERT INTO actor_leases
  (actor_id, stream_id, holder_id, epoch, nonce, acquired_at, heartbeat_at, expires_at)
SELECT chr(1) || 'runtime-broker-lineage:' || upper(encode(convert_to(stream_id, 'UTF8'), 'hex')),
  stream_id, chr(1) || 'runtime-broker-migration', epoch,
  replace(gen_random_uuid()::text, '-', ''), 0, 0, 0
FROM broker_duplicates""",
    ),
}

# Indexes come after the rows that they are for.
OBJECTS = {
    "sqlite": (
        "CREATE INDEX streams_workspace_stream_idx ON streams(workspace_id, stream_id)",
        """CREATE TRIGGER streams_workspace_immutable BEFORE UPDATE OF workspace_id ON streams
WHEN OLD.workspace_id IS NOT NULL AND OLD.workspace_id IS NOT NEW.workspace_id
BEGIN SELECT RAISE(ABORT, 'runtime broker stream workspace ownership is immutable'); END""",
        "CREATE UNIQUE INDEX actor_leases_stream_id_uq ON actor_leases(stream_id)",
        """CREATE TABLE mutation_receipts (
  request_id TEXT PRIMARY KEY,
  method TEXT NOT NULL,
  params_hash TEXT NOT NULL,
  response_json TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT""",
        "CREATE INDEX mutation_receipts_created_idx ON mutation_receipts(created_at, request_id)",
    ),
    "postgresql": (
        "CREATE INDEX streams_workspace_stream_idx ON streams(workspace_id, stream_id)",
        """CREATE FUNCTION streams_workspace_immutable() RETURNS trigger LANGUAGE plpgsql AS $guard$\
 BEGIN RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation',\
 MESSAGE = 'runtime broker stream workspace ownership is immutable'; END $guard$""",
        """CREATE TRIGGER streams_workspace_immutable BEFORE UPDATE OF workspace_id ON streams
FOR EACH ROW
WHEN (OLD.workspace_id IS NOT NULL AND OLD.workspace_id IS DISTINCT FROM NEW.workspace_id)
EXECUTE FUNCTION streams_workspace_immutable()""",
        "CREATE UNIQUE INDEX actor_leases_stream_id_uq ON actor_leases(stream_id)",
        """CREATE TABLE mutation_receipts (
  request_id TEXT COLLATE "C" PRIMARY KEY,
  method TEXT NOT NULL,
  params_hash TEXT NOT NULL,
  response_json TEXT NOT NULL,
  created_at BIGINT NOT NULL
)""",
        "CREATE INDEX mutation_receipts_created_idx ON mutation_receipts(created_at, request_id)",
    ),
}

REMOVE = {
    "sqlite": (
        "DROP TABLE mutation_receipts",
        "DROP INDEX actor_leases_stream_id_uq",
        "DROP TRIGGER streams_workspace_immutable",
        "DROP INDEX streams_workspace_stream_idx",
    ),
    "postgresql": (
        "DROP TABLE mutation_receipts",
        "DROP INDEX actor_leases_stream_id_uq",
        "DROP TRIGGER streams_workspace_immutable ON streams",
        "DROP FUNCTION streams_workspace_immutable()",
        "ALTER TABLE streams DROP COLUMN workspace_id",  # and its index
    ),
}

# The text of 0001 once more, on purpose: what a revision says never changes, so nothing is shared.
CREATE_2 = """CREATE TABLE streams (
  stream_id TEXT PRIMARY KEY,
  revision INTEGER NOT NULL CHECK (revision >= 0),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT"""

FILL_2 = """INSERT INTO streams (rowid, stream_id, revision, created_at, updated_at)
SELECT broker_rowid, stream_id, revision, created_at, updated_at
FROM temp.broker_rebuild ORDER BY broker_rowid"""


def upgrade() -> None:
    with step(op, revision, TITLE, before=2, after=3) as current:
        current.execute(COLUMN[current.dialect], *COLLAPSE[current.dialect])
        duplicates = "SELECT coalesce(sum(leases), 0) FROM broker_duplicates"
        current.changes["leases of shared streams ended"] = current.count(duplicates)
        lineage = "SELECT count(*) FROM broker_duplicates"
        current.changes["streams whose highest epoch was kept as lineage"] = current.count(lineage)
        current.execute("DROP TABLE broker_duplicates")
        current.run.rewritten.add("actor_leases")

        filled = backfill_owners(current.connection, current.run.progress)
        current.changes["events read"] = filled.events
        current.changes["streams given their owner"] = filled.streams

        current.execute(*OBJECTS[current.dialect])
        current.set_version(3)


def downgrade() -> None:
    with step(op, revision, "back to version 2", before=3, after=2) as current:
        current.refuse_to_lose(
            {
                "receipts": "SELECT count(*) FROM mutation_receipts",
                "owners of streams": "SELECT count(workspace_id) FROM streams",
            }
        )
        current.execute(*REMOVE[current.dialect])
        if current.dialect == "sqlite":
            # Not DROP COLUMN, which a broken view anywhere in the database would stop.
            current.rebuild("streams", CREATE_2, FILL_2)
        current.set_version(2)
