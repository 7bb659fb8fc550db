"""Schemas of SQLite that somebody has made to deceive, as SQL for a store that is whole.

Each is named for what it does. Statements run one by one on a plain connection with the schema
writable.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.places import raw

#: Changes a file.
Damage = Callable[[sqlite3.Connection], None]


def damage(path: Path, change: Damage) -> None:
    """Let another client change a file, with the schema writable and no keys enforced."""
    with raw(path) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        change(connection)
        connection.execute("PRAGMA writable_schema=RESET")


def sql(*statements: str) -> Damage:
    """These statements."""

    def run(connection: sqlite3.Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    return run


def texts(table: str, old: str, new: str, *, kind: str = "table") -> Damage:
    """The text of a table's or trigger's CREATE changed in place, whatever that makes of the file."""

    def run(connection: sqlite3.Connection) -> None:
        query = "SELECT sql FROM sqlite_schema WHERE name = ? AND type = ?"
        ((text,),) = connection.execute(query, (table, kind)).fetchall()
        assert old in text, text
        update = "UPDATE sqlite_schema SET sql = ? WHERE name = ? AND type = ?"
        connection.execute(update, (text.replace(old, new, 1), table, kind))

    return run


def value(table: str, column: str, expression: str) -> Damage:
    """A column of the table's first row set to whatever it is, as if there were no STRICT and no check.

    Guards are taken away meanwhile, and everything is put back.
    """

    def run(connection: sqlite3.Connection) -> None:
        query = "SELECT name, sql FROM sqlite_schema WHERE type = ? AND tbl_name = ?"
        ((_, text),) = connection.execute(query, ("table", table)).fetchall()
        triggers = connection.execute(query, ("trigger", table)).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        loose = text.replace(") STRICT", ")").replace(" NOT NULL", "")
        loose = loose.replace(" INTEGER", " ").replace(" TEXT", " ")
        _set_text(connection, table, loose)
        connection.execute("PRAGMA ignore_check_constraints=ON")
        first = f"(SELECT min(rowid) FROM {table})"
        connection.execute(f"UPDATE {table} SET {column} = {expression} WHERE rowid = {first}")
        _set_text(connection, table, text)
        for _, trigger in triggers:
            connection.execute(trigger)

    return run


def _set_text(connection: sqlite3.Connection, table: str, text: str) -> None:
    update = "UPDATE sqlite_schema SET sql = ? WHERE name = ? AND type = 'table'"
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute(update, (text, table))
    connection.execute("PRAGMA writable_schema=RESET")


def _triggers_of(connection: sqlite3.Connection, table: str) -> list[str]:
    query = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?"
    return [name for (name,) in connection.execute(query, (table,)).fetchall()]


def _trigger(event: str, body: str, name: str = "hostile") -> Damage:
    return sql(f"CREATE TRIGGER {name} {event} BEGIN {body}; END")


def _without_guards(table: str, then: Damage) -> Damage:
    def run(connection: sqlite3.Connection) -> None:
        for name in _triggers_of(connection, table):
            connection.execute(f"DROP TRIGGER {name}")
        then(connection)

    return run


def _replaced_by_view(table: str, where: str = "") -> Damage:
    return sql(
        f"ALTER TABLE {table} RENAME TO real_{table}",
        f"CREATE VIEW {table} AS SELECT rowid, * FROM real_{table} {where}",
    )


SCHEMAS: Mapping[str, Damage] = {
    # --- triggers that are not ours
    "trigger that changes projections": _trigger(
        "AFTER INSERT ON projections", "UPDATE projections SET value_json = '0'"
    ),
    "trigger that deletes outbox messages": _trigger(
        "AFTER INSERT ON outbox", "DELETE FROM outbox WHERE outbox_id = NEW.outbox_id"
    ),
    "trigger that delivers outbox messages": _trigger(
        "AFTER INSERT ON outbox", "UPDATE outbox SET delivered_at = 1"
    ),
    "trigger that raises": _trigger("AFTER INSERT ON events", "SELECT RAISE(ABORT, 'no')"),
    "trigger that ignores": _trigger("BEFORE INSERT ON outbox", "SELECT RAISE(IGNORE)"),
    "trigger that rolls back": _trigger("AFTER INSERT ON inbox", "SELECT RAISE(ROLLBACK, 'no')"),
    "trigger that fails": _trigger("AFTER INSERT ON inbox", "SELECT RAISE(FAIL, 'no')"),
    "trigger that never ends": _trigger(
        "AFTER INSERT ON outbox",
        "INSERT INTO metadata SELECT 'x' || count(*), '' FROM (WITH RECURSIVE c(n) AS"
        " (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 1000000) SELECT n FROM c)",
    ),
    "trigger that lets leases live": _trigger(
        "AFTER UPDATE ON actor_leases", "UPDATE actor_leases SET expires_at = 9007199254740991"
    ),
    "trigger that lowers the clock": _trigger(
        "AFTER UPDATE ON metadata", "UPDATE metadata SET value = '0' WHERE key <> 'schema_version'"
    ),
    "trigger that moves revisions": _trigger(
        "AFTER UPDATE ON streams",
        "UPDATE streams SET revision = revision + 1"
        " WHERE stream_id = NEW.stream_id AND revision = NEW.revision",
    ),
    "trigger that adds events": _trigger(
        "AFTER INSERT ON inbox",
        "INSERT INTO events SELECT NEW.message_id || 'x', NEW.message_id, stream_id, 999,"
        " event_type, payload_json, 1, 1, NULL, NULL, NULL FROM events LIMIT 1",
    ),
    "trigger that changes what the inbox says": _trigger(
        "AFTER INSERT ON inbox",
        "UPDATE inbox SET result_json = replace(result_json, '\"s0\"', '\"s1\"')",
    ),
    "trigger of a guard's name": sql(
        "DROP TRIGGER events_no_update",
        "CREATE TRIGGER events_no_update AFTER INSERT ON outbox"
        " BEGIN DELETE FROM outbox WHERE outbox_id = NEW.outbox_id; END",
    ),
    "guards without effect": sql(
        "DROP TRIGGER events_no_update",
        "CREATE TRIGGER events_no_update BEFORE UPDATE ON events WHEN 0"
        " BEGIN SELECT RAISE(ABORT, 'runtime broker events are append-only'); END",
        "CREATE TRIGGER hostile AFTER INSERT ON events"
        " BEGIN UPDATE events SET payload_json = '0' WHERE event_id = NEW.event_id; END",
    ),
    "guard written over": texts(
        "events_no_delete", "BEFORE DELETE", "AFTER INSERT", kind="trigger"
    ),
    "no guards": _without_guards("events", sql()),
    # --- tables that are not what they seem
    "view in place of projections": _replaced_by_view("projections"),
    "view in place of outbox": _replaced_by_view("outbox", "WHERE outbox_id < 's2'"),
    "view in place of metadata": _replaced_by_view("metadata"),
    "virtual table in place of receipts": sql(
        "DROP TABLE mutation_receipts", "CREATE VIRTUAL TABLE mutation_receipts USING fts5(a)"
    ),
    "recursive view in place of projections": sql(
        "ALTER TABLE projections RENAME TO real_projections",
        "CREATE VIEW projections AS SELECT 1 AS rowid, * FROM real_projections",
        "UPDATE sqlite_schema SET sql = 'CREATE VIEW projections AS SELECT * FROM projections'"
        " WHERE name = 'projections'",
    ),
    "not STRICT": texts("projections", ") STRICT", ")"),
    "without rowid": texts("projections", ") STRICT", ") STRICT, WITHOUT ROWID"),
    "another type": texts("projections", "value_json TEXT", "value_json BLOB"),
    "no types": texts("projections", "updated_at INTEGER", "updated_at ANY"),
    "columns the other way round": texts(
        "outbox",
        "destination TEXT NOT NULL,\n  payload_json",
        "payload_json TEXT NOT NULL,\n  destination",
    ),
    "a column too many": sql("ALTER TABLE events ADD COLUMN extra TEXT DEFAULT 'x'"),
    "a generated column too many": sql(
        "ALTER TABLE events ADD COLUMN extra INTEGER AS (json_extract(payload_json, '$.x') / 0)"
    ),
    "a generated column in place of one": texts(
        "projections", "updated_at INTEGER NOT NULL", "updated_at INTEGER AS (1) NOT NULL"
    ),
    "another collation of ids": texts(
        "projections",
        "projection_id TEXT PRIMARY KEY",
        "projection_id TEXT PRIMARY KEY COLLATE NOCASE",
    ),
    "another collation of streams": texts(
        "events", "stream_id TEXT NOT NULL", "stream_id TEXT NOT NULL COLLATE RTRIM"
    ),
    "an unknown collation": texts(
        "projections", "value_json TEXT NOT NULL", "value_json TEXT NOT NULL COLLATE unknown"
    ),
    "a check that is never true": texts("outbox", "CHECK (attempts >= 0)", "CHECK (attempts < 0)"),
    "a check that calls what is not there": texts(
        "outbox", "CHECK (attempts >= 0)", "CHECK (nothing(attempts))"
    ),
    "a check that is always true": texts("outbox", "CHECK (attempts >= 0)", "CHECK (1)"),
    "keys that ignore": texts(
        "outbox", "outbox_id TEXT PRIMARY KEY", "outbox_id TEXT PRIMARY KEY ON CONFLICT IGNORE"
    ),
    "keys that replace": texts(
        "outbox", "outbox_id TEXT PRIMARY KEY", "outbox_id TEXT PRIMARY KEY ON CONFLICT REPLACE"
    ),
    "not-null that replaces": texts(
        "outbox", "destination TEXT NOT NULL", "destination TEXT NOT NULL ON CONFLICT IGNORE"
    ),
    "no foreign keys": texts(
        "events",
        "  FOREIGN KEY (message_id) REFERENCES inbox(message_id) DEFERRABLE INITIALLY DEFERRED,\n",
        "",
    ),
    "keys that cascade": texts(
        "outbox", "REFERENCES events(event_id)", "REFERENCES events(event_id) ON DELETE CASCADE"
    ),
    "keys to another table": texts("outbox", "REFERENCES events(", "REFERENCES gone("),
    # --- indexes
    "no index of what is pending": sql("DROP INDEX outbox_undelivered_idx"),
    "index of what is pending leaves some out": sql(
        "DROP INDEX outbox_undelivered_idx",
        "CREATE INDEX outbox_undelivered_idx ON outbox(created_at, outbox_id, available_at)"
        " WHERE delivered_at IS NULL AND outbox_id < 's2'",
    ),
    "index of what is pending of another table": sql(
        "DROP INDEX outbox_undelivered_idx",
        "CREATE INDEX outbox_undelivered_idx ON projections(projection_id)",
    ),
    "index of the read model leaves some out": sql(
        "DROP INDEX events_read_model_idx",
        "CREATE INDEX events_read_model_idx ON events(event_type) WHERE event_type = 'x'",
    ),
    "index of what is pending over another's pages": sql(
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema"
        " WHERE name = 'outbox_message_idx') WHERE name = 'outbox_undelivered_idx'",
    ),
    "index with a function that is not there": sql(
        "CREATE INDEX hostile ON outbox(lower(destination))",
        "UPDATE sqlite_schema SET sql = replace(sql, 'lower(', 'nothing(') WHERE name = 'hostile'",
    ),
    "unique index of leases is not": sql(
        "DROP INDEX actor_leases_stream_id_uq",
        "CREATE INDEX actor_leases_stream_id_uq ON actor_leases(stream_id)",
    ),
    # --- the catalogue itself
    "table of another's pages": sql(
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema"
        " WHERE name = 'inbox') WHERE name = 'projections'",
    ),
    "table on the catalogue's page": sql(
        "UPDATE sqlite_schema SET rootpage = 1 WHERE name = 'projections'"
    ),
    "table beyond the file": sql(
        "UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'projections'"
    ),
    "catalogue with garbage": sql("UPDATE sqlite_schema SET sql = 'garbage' WHERE name = 'inbox'"),
    "catalogue with NUL": sql(
        "UPDATE sqlite_schema SET sql = sql || char(0) || 'x' WHERE name = 'projections'"
    ),
    "catalogue that is not UTF-8": sql(
        "UPDATE sqlite_schema SET name = CAST(x'ff' AS TEXT) WHERE name = 'outbox_message_idx'"
    ),
    "trigger text that is not UTF-8": sql(
        "CREATE TRIGGER hostile AFTER INSERT ON outbox BEGIN SELECT 1; END",
        "UPDATE sqlite_schema SET sql = replace(sql, '1', CAST(x'27ff27' AS TEXT))"
        " WHERE name = 'hostile'",
    ),
    "catalogue without rows": sql("DELETE FROM sqlite_schema"),
    "a table named like SQLite's": sql(
        "CREATE TABLE x(a)",
        "UPDATE sqlite_schema SET name = 'sqlite_x', tbl_name = 'sqlite_x',"
        " sql = 'CREATE TABLE sqlite_x(a)' WHERE name = 'x'",
    ),
    "statistics that lie": sql(
        "ANALYZE",
        "UPDATE sqlite_stat1 SET stat = '1 1 1 1 1'",
        "INSERT INTO sqlite_stat1 VALUES ('events', 'nothing', 'garbage')",
    ),
    "names in another case": sql(
        "ALTER TABLE projections RENAME TO x", "ALTER TABLE x RENAME TO PROJECTIONS"
    ),
    # --- versions
    "a version too new": sql("PRAGMA user_version=4"),
    "no version": sql("PRAGMA user_version=0"),
    "an older version": sql(
        "PRAGMA user_version=2", "UPDATE metadata SET value = '2' WHERE key = 'schema_version'"
    ),
    "the oldest version": sql(
        "PRAGMA user_version=1", "UPDATE metadata SET value = '1' WHERE key = 'schema_version'"
    ),
    "version zero": sql(
        "PRAGMA user_version=0", "UPDATE metadata SET value = '0' WHERE key = 'schema_version'"
    ),
    "two revisions": sql("INSERT INTO broker_alembic_version VALUES ('0003')"),
    "no revision": sql("DELETE FROM broker_alembic_version"),
    "an older revision": sql("UPDATE broker_alembic_version SET version_num = '0003'"),
    "an unknown revision": sql("UPDATE broker_alembic_version SET version_num = '0099'"),
    "another application's": sql("PRAGMA application_id=252006673"),
}
