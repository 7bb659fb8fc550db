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

CREATE_2 = """CREATE TABLE actor_leases (
  actor_id TEXT PRIMARY KEY,
  stream_id TEXT NOT NULL,
  holder_id TEXT NOT NULL,
  epoch INTEGER NOT NULL CHECK (epoch > 0),
  nonce TEXT NOT NULL,
  acquired_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT"""

FILL_2 = """INSERT INTO actor_leases
SELECT char(0) || 'runtime-broker-lineage:' || hex(actor_id), actor_id,
  char(0) || 'runtime-broker-migration', epoch, lower(hex(randomblob(16))), 0, 0, 0
FROM temp.broker_rebuild ORDER BY rowid"""

# The text of 0001 once more, on purpose: what a revision says never changes, so nothing is shared.
CREATE_1 = """CREATE TABLE actor_leases (
  actor_id TEXT PRIMARY KEY,
  holder_id TEXT NOT NULL,
  epoch INTEGER NOT NULL CHECK (epoch > 0),
  nonce TEXT NOT NULL,
  acquired_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT"""


def misfits(table: str) -> str:
    """The condition on leases that version 1 cannot hold as they are.

    It can if the actor has the stream's name, or is its lineage, and no other lease is on the
    stream. For any other stream the highest epoch stays, as an ended lease.
    """
    return f"""(actor_id NOT IN (stream_id, char(0) || 'runtime-broker-lineage:' || hex(stream_id))
  OR stream_id IN (SELECT stream_id FROM {table} GROUP BY stream_id HAVING count(*) > 1))"""


MISFITS = misfits("temp.broker_rebuild")
FILL_1 = f"""INSERT INTO actor_leases
SELECT stream_id, holder_id, epoch, nonce, acquired_at, heartbeat_at, expires_at
FROM temp.broker_rebuild WHERE NOT {MISFITS}
UNION ALL
SELECT stream_id, char(0) || 'runtime-broker-migration', max(epoch), lower(hex(randomblob(16))), 0, 0, 0
FROM temp.broker_rebuild WHERE {MISFITS} GROUP BY stream_id"""


def upgrade() -> None:
    with step(op, revision, TITLE, before=1, after=2) as current:
        leases = current.count("SELECT count(*) FROM actor_leases")
        current.rebuild("actor_leases", CREATE_2, FILL_2)
        current.run.rewritten.add("actor_leases")
        current.set_version(2)
        current.changes["leases ended, epochs kept as lineage"] = leases


def downgrade() -> None:
    with step(op, revision, "back to version 1", before=2, after=1) as current:
        current.refuse_to_lose(
            {
                "leases that version 1 cannot hold": (
                    f"SELECT count(*) FROM actor_leases WHERE {misfits('actor_leases')}"
                )
            }
        )
        current.rebuild("actor_leases", CREATE_1, FILL_1)
        current.run.rewritten.add("actor_leases")
        current.set_version(1)
