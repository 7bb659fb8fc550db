"""Guards and indexes on version 3, whose number stays: other programs go on opening the file.

The indexes keep the cost of a commit, of the pending outbox and of the read model from growing with
the journal. The triggers hold whatever a client's pragmas are: a stream's id and owner stay, streams
and events are never deleted or replaced, an event never changes. INSERT OR REPLACE would not ask a
DELETE trigger, so inserting over an existing row is refused; NEW.rowid is -1 there for a statement
that names none, so that rowids below 1 are refused as well, once they are known; and those beyond
2^53 - 1, for a rowid is a cursor, which JSON has to carry exactly.
"""

from __future__ import annotations

from alembic import op

from broker.schema.steps import step

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TITLE = "guards, and indexes that keep cost flat"

INDEXES = {
    "outbox_undelivered_idx": (
        "ON outbox(created_at, outbox_id, available_at) WHERE delivered_at IS NULL"
    ),
    "outbox_message_idx": "ON outbox(message_id)",
    "events_message_idx": "ON events(message_id)",
    "events_read_model_idx": (
        "ON events("
        "CASE WHEN json_valid(payload_json)"
        " THEN json_extract(payload_json, '$.actor.workspaceId') END, "
        "CASE WHEN json_valid(payload_json) THEN json_extract(payload_json, '$.eventType') END"
        ") WHERE event_type = 'domain.event'"
    ),
}

STREAM_STAYS = "BEGIN SELECT RAISE(ABORT, 'runtime broker streams are permanent'); END"
EVENT_STAYS = "BEGIN SELECT RAISE(ABORT, 'runtime broker events are append-only'); END"
NOT_SAFE = "NEW.rowid NOT BETWEEN 1 AND 9007199254740991"

TRIGGERS = {
    "streams_identity_immutable": f"""BEFORE UPDATE ON streams
WHEN OLD.stream_id IS NOT NEW.stream_id OR OLD.rowid IS NOT NEW.rowid
{STREAM_STAYS}""",
    "streams_no_delete": f"BEFORE DELETE ON streams {STREAM_STAYS}",
    "streams_no_replace": f"""BEFORE INSERT ON streams
WHEN EXISTS (SELECT 1 FROM streams WHERE stream_id = NEW.stream_id)
OR NEW.rowid > 0 AND EXISTS (SELECT 1 FROM streams WHERE rowid = NEW.rowid)
{STREAM_STAYS}""",
    "streams_rowid_positive": f"""AFTER INSERT ON streams WHEN {NOT_SAFE}
BEGIN SELECT RAISE(ABORT, 'runtime broker streams have rowids from 1 to 2^53 - 1'); END""",
    "events_no_update": f"BEFORE UPDATE ON events {EVENT_STAYS}",
    "events_no_delete": f"BEFORE DELETE ON events {EVENT_STAYS}",
    "events_no_replace": f"""BEFORE INSERT ON events
WHEN EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id)
OR EXISTS (SELECT 1 FROM events WHERE stream_id = NEW.stream_id AND revision = NEW.revision)
OR NEW.rowid > 0 AND EXISTS (SELECT 1 FROM events WHERE rowid = NEW.rowid)
{EVENT_STAYS}""",
    "events_rowid_positive": f"""AFTER INSERT ON events WHEN {NOT_SAFE}
BEGIN SELECT RAISE(ABORT, 'runtime broker events have rowids from 1 to 2^53 - 1'); END""",
}


def upgrade() -> None:
    with step(op, revision, TITLE, before=3, after=3) as current:
        current.execute(*(f"CREATE INDEX {name} {rest}" for name, rest in INDEXES.items()))
        current.execute(*(f"CREATE TRIGGER {name} {rest}" for name, rest in TRIGGERS.items()))
        current.changes["indexes made"] = len(INDEXES)
        current.changes["guard triggers made"] = len(TRIGGERS)


def downgrade() -> None:
    with step(op, revision, "without guards and their indexes", before=3, after=3) as current:
        current.execute(*(f"DROP TRIGGER IF EXISTS {name}" for name in TRIGGERS))
        current.execute(*(f"DROP INDEX IF EXISTS {name}" for name in INDEXES))
        current.changes["indexes dropped"] = len(INDEXES)
        current.changes["guard triggers dropped"] = len(TRIGGERS)
