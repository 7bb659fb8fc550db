"""Version 2: a lease belongs to a stream.

In version 1 an actor wrote to the stream of its own name. Every old lease is ended, and stays as the
lineage of that stream, so that the next epoch is a higher one.
"""

from __future__ import annotations

from alembic import op

from broker.schema.steps import step

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TITLE = "version 2: leases belong to streams"

CREATE_2 = {
    "sqlite": """CREATE TABLE actor_leases (
  actor_id TEXT PRIMARY KEY,
  stream_id TEXT NOT NULL,
  holder_id TEXT NOT NULL,
  epoch INTEGER NOT NULL CHECK (epoch > 0),
  nonce TEXT NOT NULL,
  acquired_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT""",
    "postgresql": """CREATE TABLE actor_leases (
  actor_id TEXT COLLATE "C" PRIMARY KEY,
  stream_id TEXT COLLATE "C" NOT NULL,
  holder_id TEXT COLLATE "C" NOT NULL,
  epoch BIGINT NOT NULL CHECK (epoch > 0),
  nonce TEXT NOT NULL,
  acquired_at BIGINT NOT NULL,
  heartbeat_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
)""",
}

# PostgreSQL's text holds no NUL: there the ids that no caller can have start with U+0001.
FILL_2 = {
    "sqlite": """INSERT INTO actor_leases
SELECT char(0) || 'runtime-broker-lineage:' || hex(actor_id), actor_id,
  char(0) || 'runtime-broker-migration', epoch, lower(hex(randomblob(16))), 0, 0, 0
FROM temp.broker_rebuild ORDER BY rowid""",
    "postgresql": """INSERT INTO actor_leases
SELECT chr(1) || 'runtime-broker-lineage:' || upper(encode(convert_to(actor_id, 'UTF8'), 'hex')),
  actor_id, chr(1) || 'runtime-broker-migration', epoch,
  replace(gen_random_uuid()::text, '-', ''), 0, 0, 0
FROM pg_temp.broker_rebuild""",
}

# The text of 0001 once more, on purpose: what a revision says never changes, so nothing is shared.
CREATE_1 = {
    "sqlite": """CREATE TABLE actor_leases (
  actor_id TEXT PRIMARY KEY,
  holder_id TEXT NOT NULL,
  epoch INTEGER NOT NULL CHECK (epoch > 0),
  nonce TEXT NOT NULL,
  acquired_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT""",
    "postgresql": """CREATE TABLE actor_leases (
  actor_id TEXT COLLATE "C" PRIMARY KEY,
  holder_id TEXT COLLATE "C" NOT NULL,
  epoch BIGINT NOT NULL CHECK (epoch > 0),
  nonce TEXT NOT NULL,
  acquired_at BIGINT NOT NULL,
  heartbeat_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
)""",
}

LINEAGE = {
    "sqlite": "char(0) || 'runtime-broker-lineage:' || hex(stream_id)",
    "postgresql": (
        "chr(1) || 'runtime-broker-lineage:' || upper(encode(convert_to(stream_id, 'UTF8'), 'hex'))"
    ),
}


def misfits(dialect: str, table: str) -> str:
    """The condition on leases that version 1 cannot hold as they are.

    It can if the actor has the stream's name, or is its lineage, and no other lease is on the
    stream. For any other stream the highest epoch stays, as an ended lease.
    """
    return f"""(actor_id NOT IN (stream_id, {LINEAGE[dialect]})
  OR stream_id IN (SELECT stream_id FROM {table} GROUP BY stream_id HAVING count(*) > 1))"""


MISFITS_ON_SQLITE = misfits("sqlite", "temp.broker_rebuild")
MISFITS_ON_POSTGRESQL = misfits("postgresql", "pg_temp.broker_rebuild")
FILL_1 = {
    "sqlite": f"""INSERT INTO actor_leases
SELECT stream_id, holder_id, epoch, nonce, acquired_at, heartbeat_at, expires_at
FROM temp.broker_rebuild WHERE NOT {MISFITS_ON_SQLITE}
UNION ALL
SELECT stream_id, char(0) || 'runtime-broker-migration', max(epoch), lower(hex(randomblob(16))), 0, 0, 0
FROM temp.broker_rebuild WHERE {MISFITS_ON_SQLITE} GROUP BY stream_id""",
    "postgresql": f"""INSERT INTO actor_leases
SELECT stream_id, holder_id, epoch, nonce, acquired_at, heartbeat_at, expires_at
FROM pg_temp.broker_rebuild WHERE NOT {MISFITS_ON_POSTGRESQL}
UNION ALL
SELECT stream_id, chr(1) || 'runtime-broker-migration', max(epoch),
  replace(gen_random_uuid()::text, '-', ''), 0, 0, 0
FROM pg_temp.broker_rebuild WHERE {MISFITS_ON_POSTGRESQL} GROUP BY stream_id""",
}


def upgrade() -> None:
    with step(op, revision, TITLE, before=1, after=2) as current:
        leases = current.count("SELECT count(*) FROM actor_leases")
        current.rebuild("actor_leases", CREATE_2[current.dialect], FILL_2[current.dialect])
        current.run.rewritten.add("actor_leases")
        current.set_version(2)
        current.changes["leases ended, epochs kept as lineage"] = leases


def downgrade() -> None:
    with step(op, revision, "back to version 1", before=2, after=1) as current:
        lost = f"SELECT count(*) FROM actor_leases WHERE {misfits(current.dialect, 'actor_leases')}"
        current.refuse_to_lose({"leases that version 1 cannot hold": lost})
        current.rebuild("actor_leases", CREATE_1[current.dialect], FILL_1[current.dialect])
        current.run.rewritten.add("actor_leases")
        current.set_version(1)
