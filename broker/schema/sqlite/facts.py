"""Every schema fact of an SQLite database, by PRAGMAs and, where those are silent, from the SQL text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from sqlalchemy import Connection, StaticPool, create_engine

from broker.models import Base
from broker.schema import versions
from broker.schema.facts import ORDER, TABLE, Aspects, Facts, Thing, yes
from broker.schema.sqlite.catalogue import VERSION_TABLE_DDL
from broker.schema.sqlite.sql_text import (
    TableClauses,
    index_terms,
    index_where,
    normalised,
    table_clauses,
    trigger_text,
)


def live_facts(connection: Connection) -> Facts:
    """Every fact of our tables, of what hangs on them, of the encoding and of the versions."""
    facts: Facts = {}
    kinds = _tables(connection)
    for table in sorted(versions.TABLE_NAMES):
        if table in kinds:
            facts |= _table_facts(connection, table, kinds[table])
    return facts | _encoding_fact(connection) | _version_facts(connection, kinds.keys())


def can_be_told(_connection: Connection) -> bool:
    """A database in memory is for everyone."""
    return True


def expected_facts(_connection: Connection) -> Facts:
    """Those of a fresh database in memory that is made from the models."""
    return _expected()


@cache
def _expected() -> Facts:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        connection.exec_driver_sql(VERSION_TABLE_DDL)
        connection.exec_driver_sql(
            f"INSERT INTO {versions.VERSION_TABLE} VALUES ('{versions.HEAD}')"
        )
        version = versions.NEWEST_VERSION
        connection.exec_driver_sql(f"INSERT INTO metadata VALUES ('schema_version', '{version}')")
        connection.exec_driver_sql(f"PRAGMA user_version = {version:d}")
        facts = live_facts(connection)
    engine.dispose()
    return facts


def _tables(connection: Connection) -> dict[str, Aspects]:
    rows = connection.exec_driver_sql(
        "SELECT name, type, wr, strict FROM pragma_table_list WHERE schema = 'main'"
    )
    return {
        name: {"type": kind, "STRICT": yes(strict), "WITHOUT ROWID": yes(without_rowid)}
        for name, kind, without_rowid, strict in rows
    }


def _table_facts(connection: Connection, table: str, aspects: Aspects) -> Facts:
    statement = "SELECT sql FROM main.sqlite_schema WHERE name = ?"
    sql = connection.exec_driver_sql(statement, (table,)).scalar_one()
    if aspects["type"] != "table":
        return {Thing(table, TABLE): aspects}

    clauses = table_clauses(sql)
    columns = _columns(connection, table, clauses)
    order = ", ".join(thing.subject.partition(".")[2] for thing in columns)
    own = aspects | {
        ORDER: order,
        "AUTOINCREMENT": yes(clauses.autoincrement),
        "ON CONFLICT": ", ".join(sorted(clauses.conflicts)) or "none",
    }
    return (
        {Thing(table, TABLE): own}
        | columns
        | {Thing(table, f"CHECK ({check})"): {} for check in clauses.checks}
        | _foreign_keys(connection, table, clauses)
        | _indexes(connection, table)
        | _triggers(connection, table)
    )


def _columns(connection: Connection, table: str, clauses: TableClauses) -> Facts:
    rows = connection.exec_driver_sql(f"PRAGMA main.table_xinfo({table})").fetchall()
    return {
        Thing(f"{table}.{name}", "column"): {
            "type": kind.upper() or "none",
            "NOT NULL": yes(not_null),
            "default": "none" if default is None else normalised(default),
            "place in the primary key": str(key or "none"),
            "generated": yes(hidden),
            "collation": clauses.collations.get(name.lower(), "binary"),
        }
        for _, name, kind, not_null, default, key, hidden in rows
    }


def _foreign_keys(connection: Connection, table: str, clauses: TableClauses) -> Facts:
    keys: dict[int, list[tuple[str, str | None, str, str, str]]] = {}
    rows = connection.exec_driver_sql(f"PRAGMA main.foreign_key_list({table})").fetchall()
    for number, _, parent, column, target, on_update, on_delete, _ in sorted(rows):
        keys.setdefault(number, []).append((column, target, parent, on_update, on_delete))
    facts: Facts = {}
    for parts in keys.values():
        columns = tuple(part[0].lower() for part in parts)
        _, _, parent, on_update, on_delete = parts[0]
        targets = ", ".join(part[1].lower() for part in parts if part[1])
        targets = targets or _primary_key(connection, parent) or "its key"
        name = f"FOREIGN KEY ({', '.join(columns)}) to {parent.lower()} ({targets})"
        facts[Thing(table, name)] = {
            "check": "deferred" if columns in clauses.deferred else "immediate",
            "ON UPDATE": on_update,
            "ON DELETE": on_delete,
        }
    return facts


def _primary_key(connection: Connection, table: str) -> str:
    """The columns that a reference means which names none; empty if there is no such table."""
    statement = "SELECT lower(name) FROM pragma_table_info(?, 'main') WHERE pk ORDER BY pk"
    return ", ".join(name for (name,) in connection.exec_driver_sql(statement, (table,)))


def _indexes(connection: Connection, table: str) -> Facts:
    facts: Facts = {}
    rows = connection.exec_driver_sql(f"PRAGMA main.index_list({table})").fetchall()
    for _, name, unique, origin, _ in rows:
        if origin == "pk":
            continue  # the columns tell it
        terms, where = _index_terms(connection, name)
        if origin == "u":
            facts[Thing(table, f"UNIQUE ({terms})")] = {}
        else:
            facts[Thing(table, f"index {name}")] = {
                "UNIQUE": yes(unique),
                "what is indexed": terms,
                "WHERE": where or "none",
            }
    return facts


def _index_terms(connection: Connection, name: str) -> tuple[str, str]:
    statement = "SELECT sql FROM main.sqlite_schema WHERE type = 'index' AND name = ?"
    sql = connection.exec_driver_sql(statement, (name,)).scalar_one()
    expressions = index_terms(sql) if sql else []
    terms = []
    rows = connection.exec_driver_sql(
        "SELECT seqno, cid, name, \"desc\", coll FROM pragma_index_xinfo(?, 'main') WHERE key",
        (name,),
    )
    for place, cid, column, descending, collation in rows:
        term = expressions[place] if cid == -2 else "rowid" if cid == -1 else column
        term += f" COLLATE {collation}" * (collation != "BINARY") + " DESC" * descending
        terms.append(term)
    return ", ".join(terms), index_where(sql) if sql else ""


def _triggers(connection: Connection, table: str) -> Facts:
    rows = connection.exec_driver_sql(
        "SELECT name, sql FROM main.sqlite_schema"
        " WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE",
        (table,),
    )
    return {Thing(table, f"trigger {name}"): {"text": trigger_text(sql)} for name, sql in rows}


def _encoding_fact(connection: Connection) -> Facts:
    encoding = connection.exec_driver_sql("PRAGMA encoding").scalar_one()
    return {Thing("encoding", "encoding"): {"PRAGMA": encoding}}


def _version_facts(connection: Connection, tables: Iterable[str]) -> Facts:
    """The three places in which versions stand."""
    user_version = connection.exec_driver_sql("PRAGMA main.user_version").scalar_one()
    facts = {Thing("user_version", "version"): {"PRAGMA": str(user_version)}}
    present = set(tables)
    for table, statement in (
        ("metadata", "SELECT CAST(value AS BLOB) FROM main.metadata WHERE key = 'schema_version'"),
        (
            versions.VERSION_TABLE,
            f"SELECT CAST(version_num AS BLOB) FROM main.{versions.VERSION_TABLE}",
        ),
    ):
        if table in present:
            rows = connection.exec_driver_sql(statement).fetchall()
            text = ", ".join(_shown(value) for (value,) in rows)
            facts[Thing(table, "version")] = {"recorded version": text or "none"}
    return facts


def _shown(stored: bytes | None) -> str:
    return "NULL" if stored is None else stored.decode(errors="backslashreplace")
