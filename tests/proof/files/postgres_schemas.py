"""Schemas of PostgreSQL that their owner has made to deceive."""

from __future__ import annotations

from collections.abc import Mapping

from tests.places import Place, execute
from tests.proof.files.judging import Whole, judge_reads, judge_writes
from tests.proof.files.original import fill
from tests.proof.report import Report


def _trigger(event: str, body: str) -> str:
    return f"""
        CREATE FUNCTION hostile() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
        CREATE TRIGGER hostile {event} FOR EACH ROW EXECUTE FUNCTION hostile()
    """


def _as_view(table: str) -> str:
    return f"""
        ALTER TABLE {table} RENAME TO real_{table};
        CREATE VIEW {table} AS SELECT * FROM real_{table}
    """


SCHEMAS: Mapping[str, str] = {
    "trigger that deletes outbox messages": _trigger(
        "AFTER INSERT ON outbox",
        "DELETE FROM outbox WHERE outbox_id = NEW.outbox_id; RETURN NULL;",
    ),
    "trigger that skips rows": _trigger("BEFORE INSERT ON outbox", "RETURN NULL;"),
    "trigger that changes rows": _trigger(
        "BEFORE INSERT ON events", "NEW.payload_json := '0'; RETURN NEW;"
    ),
    "trigger that raises": _trigger("AFTER INSERT ON events", "RAISE EXCEPTION 'no';"),
    "trigger that recurses": _trigger(
        "AFTER UPDATE ON streams", "UPDATE streams SET updated_at = updated_at; RETURN NULL;"
    ),
    "trigger that commits": _trigger("AFTER INSERT ON outbox", "COMMIT; RETURN NULL;"),
    "rule that does nothing instead": "CREATE RULE h AS ON INSERT TO outbox DO INSTEAD NOTHING",
    "rule that does more": "CREATE RULE h AS ON INSERT TO inbox DO ALSO DELETE FROM outbox",
    "row security": """
        ALTER TABLE events ENABLE ROW LEVEL SECURITY;
        ALTER TABLE events FORCE ROW LEVEL SECURITY
    """,
    "inheritance": "CREATE TABLE more () INHERITS (outbox)",
    "a guard that guards nothing": """
        CREATE OR REPLACE FUNCTION events_no_update() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RETURN NEW; END $$
    """,
    "a guard switched off": "ALTER TABLE events DISABLE TRIGGER events_no_update",
    "a guard dropped": "DROP TRIGGER events_no_delete ON events",
    "another reading of payloads": """
        CREATE OR REPLACE FUNCTION broker_payload_text(payload text, VARIADIC path text[])
        RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'w0' $$
    """,
    "view in place of projections": _as_view("projections"),
    "view in place of metadata": _as_view("metadata"),
    "unlogged": "ALTER TABLE projections SET UNLOGGED",
    "another type": "ALTER TABLE projections ALTER updated_at TYPE numeric",
    "text that is varchar": "ALTER TABLE projections ALTER value_json TYPE varchar(90)",
    "a column too many": "ALTER TABLE events ADD extra text",
    "no clock that can be read": (
        "UPDATE metadata SET value = '01' WHERE key = 'logical_time_floor'"
    ),
    "a clock from the future": (
        "UPDATE metadata SET value = '9007199254740992' WHERE key = 'logical_time_floor'"
    ),
    "a version too new": "UPDATE metadata SET value = '4' WHERE key = 'schema_version'",
    "two revisions": "INSERT INTO broker_alembic_version VALUES ('0003')",
    "another search path": "CREATE TABLE pg_temp.outbox (id text)",
    "an operator of its own": """
        CREATE FUNCTION never(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE
        AS $$ SELECT false $$;
        CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = never)
    """,
    "times before there were any": (
        "UPDATE outbox SET available_at = -1 WHERE outbox_id = 's1-3-o'"
    ),
    "JSON that is none": "UPDATE outbox SET payload_json = '{' WHERE outbox_id = 's1-3-o'",
}


def try_schema(report: Report, seed: int, place: Place, whole: Whole) -> None:
    """One of them, by its number: opened, read, written to and read again."""
    name, statements = list(SCHEMAS.items())[seed % len(SCHEMAS)]
    fill(place)
    execute(place, statements)
    report.counts["hostile schemas"] += 1
    judge_reads(report, seed, name, place, whole.answers, lambda _: False)
    judge_writes(report, seed, name, place, whole)
