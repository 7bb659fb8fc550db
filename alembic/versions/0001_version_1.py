"""Version 1: seven tables. An actor has a lease; streams have no owner yet."""

from __future__ import annotations

from alembic import op

from broker.schema.steps import step

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TITLE = "version 1: the seven tables"

# A database may have come with its `metadata` and nothing else.
ON_SQLITE = (
    """CREATE TABLE IF NOT EXISTS metadata (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT""",
    """CREATE TABLE actor_leases (
  actor_id TEXT PRIMARY KEY,
  holder_id TEXT NOT NULL,
  epoch INTEGER NOT NULL CHECK (epoch > 0),
  nonce TEXT NOT NULL,
  acquired_at INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT""",
    """CREATE TABLE streams (
  stream_id TEXT PRIMARY KEY,
  revision INTEGER NOT NULL CHECK (revision >= 0),
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL
) STRICT""",
    """CREATE TABLE inbox (
  message_id TEXT PRIMARY KEY,
  request_hash TEXT NOT NULL,
  stream_id TEXT NOT NULL,
  applied_revision INTEGER NOT NULL,
  result_json TEXT NOT NULL,
  applied_at INTEGER NOT NULL
) STRICT""",
    """CREATE TABLE events (
  event_id TEXT PRIMARY KEY,
  message_id TEXT NOT NULL,
  stream_id TEXT NOT NULL,
  revision INTEGER NOT NULL CHECK (revision > 0),
  event_type TEXT NOT NULL,
  payload_json TEXT NOT NULL,
  producer_epoch INTEGER NOT NULL CHECK (producer_epoch > 0),
  occurred_at INTEGER NOT NULL,
  correlation_id TEXT,
  causation_id TEXT,
  trace_id TEXT,
  FOREIGN KEY (message_id) REFERENCES inbox(message_id) DEFERRABLE INITIALLY DEFERRED,
  FOREIGN KEY (stream_id) REFERENCES streams(stream_id),
  UNIQUE (stream_id, revision)
) STRICT""",
    """CREATE TABLE outbox (
  outbox_id TEXT PRIMARY KEY,
  message_id TEXT NOT NULL,
  event_id TEXT,
  destination TEXT NOT NULL,
  payload_json TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  available_at INTEGER NOT NULL,
  delivered_at INTEGER,
  attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  FOREIGN KEY (message_id) REFERENCES inbox(message_id) DEFERRABLE INITIALLY DEFERRED,
  FOREIGN KEY (event_id) REFERENCES events(event_id)
) STRICT""",
    "CREATE INDEX outbox_pending_idx ON outbox(delivered_at, available_at, created_at)",
    """CREATE TABLE projections (
  projection_id TEXT PRIMARY KEY,
  stream_id TEXT NOT NULL,
  revision INTEGER NOT NULL CHECK (revision >= 0),
  value_json TEXT NOT NULL,
  updated_at INTEGER NOT NULL,
  FOREIGN KEY (stream_id) REFERENCES streams(stream_id)
) STRICT""",
)

ON_POSTGRESQL = (
    """CREATE TABLE IF NOT EXISTS metadata (
  key TEXT COLLATE "C" PRIMARY KEY,
  value TEXT NOT NULL
)""",
    """CREATE TABLE actor_leases (
  actor_id TEXT COLLATE "C" PRIMARY KEY,
  holder_id TEXT COLLATE "C" NOT NULL,
  epoch BIGINT NOT NULL CHECK (epoch > 0),
  nonce TEXT NOT NULL,
  acquired_at BIGINT NOT NULL,
  heartbeat_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
)""",
    """CREATE TABLE streams (
  stream_id TEXT COLLATE "C" PRIMARY KEY,
  revision BIGINT NOT NULL CHECK (revision >= 0),
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
)""",
    """CREATE TABLE inbox (
  message_id TEXT COLLATE "C" PRIMARY KEY,
  request_hash TEXT NOT NULL,
  stream_id TEXT COLLATE "C" NOT NULL,
  applied_revision BIGINT NOT NULL,
  result_json TEXT NOT NULL,
  applied_at BIGINT NOT NULL
)""",
    # The journal's cursor, which is SQLite's rowid there, is a column here.
    """CREATE TABLE events (
  event_id TEXT COLLATE "C" PRIMARY KEY,
  message_id TEXT COLLATE "C" NOT NULL,
  stream_id TEXT COLLATE "C" NOT NULL,
  revision BIGINT NOT NULL CHECK (revision > 0),
  event_type TEXT NOT NULL,
  payload_json TEXT NOT NULL,
  producer_epoch BIGINT NOT NULL CHECK (producer_epoch > 0),
  occurred_at BIGINT NOT NULL,
  correlation_id TEXT COLLATE "C",
  causation_id TEXT COLLATE "C",
  trace_id TEXT COLLATE "C",
  rowid BIGINT GENERATED ALWAYS AS IDENTITY (MAXVALUE 9007199254740991),
  FOREIGN KEY (message_id) REFERENCES inbox(message_id) DEFERRABLE INITIALLY DEFERRED,
  FOREIGN KEY (stream_id) REFERENCES streams(stream_id),
  UNIQUE (stream_id, revision)
)""",
    "CREATE UNIQUE INDEX events_rowid_uq ON events(rowid)",
    """CREATE TABLE outbox (
  outbox_id TEXT COLLATE "C" PRIMARY KEY,
  message_id TEXT COLLATE "C" NOT NULL,
  event_id TEXT COLLATE "C",
  destination TEXT NOT NULL,
  payload_json TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  available_at BIGINT NOT NULL,
  delivered_at BIGINT,
  attempts BIGINT NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  FOREIGN KEY (message_id) REFERENCES inbox(message_id) DEFERRABLE INITIALLY DEFERRED,
  FOREIGN KEY (event_id) REFERENCES events(event_id)
)""",
    "CREATE INDEX outbox_pending_idx ON outbox(delivered_at, available_at, created_at)",
    """CREATE TABLE projections (
  projection_id TEXT COLLATE "C" PRIMARY KEY,
  stream_id TEXT COLLATE "C" NOT NULL,
  revision BIGINT NOT NULL CHECK (revision >= 0),
  value_json TEXT NOT NULL,
  updated_at BIGINT NOT NULL,
  FOREIGN KEY (stream_id) REFERENCES streams(stream_id)
)""",
)

TABLES = {"sqlite": ON_SQLITE, "postgresql": ON_POSTGRESQL}

DROPPED = ("projections", "outbox", "events", "inbox", "streams", "actor_leases", "metadata")


def upgrade() -> None:
    with step(op, revision, TITLE, before=0, after=1) as current:
        current.execute(*TABLES[current.dialect])
        current.set_version(1)
        current.changes["tables made"] = len(DROPPED)


def downgrade() -> None:
    with step(op, revision, "back to an empty database", before=1, after=0) as current:
        rows = {
            f"{table} rows": f"SELECT count(*) FROM {table}"
            for table in reversed(DROPPED)
            if table != "metadata"
        }
        rows["other metadata rows"] = (
            "SELECT count(*) FROM metadata"
            " WHERE key NOT IN ('schema_version', 'logical_time_floor')"
        )
        current.refuse_to_lose(rows)

        current.execute(*(f"DROP TABLE {table}" for table in DROPPED))
        if current.dialect == "sqlite":
            current.execute("PRAGMA user_version = 0")
        current.run.rewritten.update(DROPPED)
        current.changes["tables dropped"] = len(DROPPED)
