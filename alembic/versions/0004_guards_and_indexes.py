"""Guards and indexes on version 3, whose number stays: other programs go on opening the file.

The indexes keep the cost of a commit, of the pending outbox and of the read model from growing with
the journal. The triggers hold whatever a client's pragmas are: a stream's id and owner stay, streams
and events are never deleted or replaced, an event never changes. INSERT OR REPLACE would not ask a
DELETE trigger, so inserting over an existing row is refused; NEW.rowid is -1 there for a statement
that names none, so that rowids below 1 are refused as well, once they are known; and those beyond
2^53 - 1, for a rowid is a cursor, which JSON has to carry exactly. PostgreSQL has neither rowids nor
REPLACE, but TRUNCATE, which would not ask a DELETE trigger either.
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
}
READ_MODEL_INDEX = {
    "sqlite": (
        "ON events("
        "CASE WHEN json_valid(payload_json)"
        " THEN json_extract(payload_json, '$.actor.workspaceId') END, "
        "CASE WHEN json_valid(payload_json) THEN json_extract(payload_json, '$.eventType') END"
        ") WHERE event_type = 'domain.event'"
    ),
    "postgresql": (
        "ON events("
        "broker_payload_text(payload_json, 'actor', 'workspaceId'), "
        "broker_payload_text(payload_json, 'eventType'), rowid"
        ") WHERE event_type = 'domain.event'"
    ),
}

# Other programs may have stored text that is not JSON, or that the server cannot take apart for a
# lone surrogate or a NUL somewhere in it: those are replaced for a second look. An entry of the
# index has a limit, and ids are no longer than this.
PAYLOAD_TEXT = r"""CREATE FUNCTION broker_payload_text(payload text, VARIADIC path text[])
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE found json;
BEGIN
  FOR look IN 1..2 LOOP
    BEGIN
      found := payload::json #> path;
      IF json_typeof(found) = 'string' AND octet_length(found #>> '{}') <= 1024 THEN
        RETURN found #>> '{}';
      END IF;
      RETURN NULL;
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
      payload := regexp_replace(payload, '(?<!\\)((?:\\\\)*)\\u(?:0000'
        '|[dD][89abAB][[:xdigit:]]{2}(?!\\u[dD][c-fC-F])'
        '|(?<!\\u[dD][89abAB][[:xdigit:]]{2}\\u)[dD][c-fC-F][[:xdigit:]]{2})', '\1\\u0001', 'g');
    END;
  END LOOP;
  RETURN NULL;
END $function$"""

STREAM_STAYS = "BEGIN SELECT RAISE(ABORT, 'runtime broker streams are permanent'); END"
EVENT_STAYS = "BEGIN SELECT RAISE(ABORT, 'runtime broker events are append-only'); END"
NOT_SAFE = "NEW.rowid NOT BETWEEN 1 AND 9007199254740991"

ON_SQLITE = {
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


STREAMS_ARE_PERMANENT = "runtime broker streams are permanent"
EVENTS_ARE_APPEND_ONLY = "runtime broker events are append-only"

# Table, event and condition, and the message.
ON_POSTGRESQL = {
    "streams_identity_immutable": (
        "streams",
        "BEFORE UPDATE ON streams FOR EACH ROW WHEN (OLD.stream_id IS DISTINCT FROM NEW.stream_id)",
        STREAMS_ARE_PERMANENT,
    ),
    "streams_no_delete": (
        "streams",
        "BEFORE DELETE ON streams FOR EACH ROW",
        STREAMS_ARE_PERMANENT,
    ),
    "streams_no_truncate": (
        "streams",
        "BEFORE TRUNCATE ON streams FOR EACH STATEMENT",
        STREAMS_ARE_PERMANENT,
    ),
    "events_no_update": (
        "events",
        "BEFORE UPDATE ON events FOR EACH ROW",
        EVENTS_ARE_APPEND_ONLY,
    ),
    "events_no_delete": (
        "events",
        "BEFORE DELETE ON events FOR EACH ROW",
        EVENTS_ARE_APPEND_ONLY,
    ),
    "events_no_truncate": (
        "events",
        "BEFORE TRUNCATE ON events FOR EACH STATEMENT",
        EVENTS_ARE_APPEND_ONLY,
    ),
}

# Who overrides the system's value may name any.
CURSOR_IS_SAFE = (
    "ALTER TABLE events ADD CONSTRAINT events_rowid_positive"
    " CHECK (rowid BETWEEN 1 AND 9007199254740991)"
)

MAKE_TRIGGERS = {
    "sqlite": [f"CREATE TRIGGER {name} {rest}" for name, rest in ON_SQLITE.items()],
    "postgresql": [
        statement
        for name, (_, when, message) in ON_POSTGRESQL.items()
        for statement in (
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $guard$"
            f" BEGIN RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation',"
            f" MESSAGE = '{message}'; END $guard$",
            f"CREATE TRIGGER {name} {when} EXECUTE FUNCTION {name}()",
        )
    ],
}
DROP_TRIGGERS = {
    "sqlite": [f"DROP TRIGGER IF EXISTS {name}" for name in ON_SQLITE],
    "postgresql": [
        statement
        for name, (table, _, _) in ON_POSTGRESQL.items()
        for statement in (
            f"DROP TRIGGER IF EXISTS {name} ON {table}",
            f"DROP FUNCTION IF EXISTS {name}()",
        )
    ],
}
TRIGGERS = {"sqlite": len(ON_SQLITE), "postgresql": len(ON_POSTGRESQL)}


def upgrade() -> None:
    with step(op, revision, TITLE, before=3, after=3) as current:
        if current.dialect == "postgresql":
            current.execute(PAYLOAD_TEXT, CURSOR_IS_SAFE)
        indexes = INDEXES | {"events_read_model_idx": READ_MODEL_INDEX[current.dialect]}
        current.execute(*(f"CREATE INDEX {name} {rest}" for name, rest in indexes.items()))
        current.execute(*MAKE_TRIGGERS[current.dialect])
        current.changes["indexes made"] = len(indexes)
        current.changes["guard triggers made"] = TRIGGERS[current.dialect]


def downgrade() -> None:
    with step(op, revision, "without guards and their indexes", before=3, after=3) as current:
        current.execute(*DROP_TRIGGERS[current.dialect])
        indexes = (*INDEXES, "events_read_model_idx")
        current.execute(*(f"DROP INDEX IF EXISTS {name}" for name in indexes))
        if current.dialect == "postgresql":
            current.execute(
                "DROP FUNCTION IF EXISTS broker_payload_text(text, text[])",
                "ALTER TABLE events DROP CONSTRAINT IF EXISTS events_rowid_positive",
            )
        current.changes["indexes dropped"] = len(indexes)
        current.changes["guard triggers dropped"] = TRIGGERS[current.dialect]
