"""SQLite's catalogue, as `broker.schema.backends.Catalogue` wants it read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache

from sqlalchemy import Connection

from broker.errors import SchemaError
from broker.guards import GUARDS
from broker.schema import versions
from broker.schema.sqlite.sql_text import table_clauses, trigger_text
from broker.schema.versions import Column, IndexFacts
from broker.sqlite.database_file import require_sqlite

VERSION_TABLE_DDL: str = (
    f"CREATE TABLE {versions.VERSION_TABLE} (version_num TEXT NOT NULL PRIMARY KEY) STRICT"
)
TABLES: Mapping[int, Mapping[str, tuple[Column, ...]]] = versions.TABLES
UNUSABLE: str = "is missing, not STRICT or WITHOUT ROWID"
HEAD_OBJECTS: frozenset[str] = frozenset({*versions.INDEXES_OF_HEAD, *versions.TRIGGERS_OF_HEAD})
NAMES_OF: Mapping[int, frozenset[str]] = versions.NAMES_OF

_HANGING_ON_TABLES = """
SELECT type, name, tbl_name, CAST(sql AS BLOB) FROM main.sqlite_schema
WHERE type IN ('table', 'trigger')
"""
_GUARDS = {
    guard.name: trigger_text(statement) for guard in GUARDS for statement in guard.ddl("sqlite")
}
_TELLTALE = re.compile("collate|conflict", re.IGNORECASE)
_COLUMNS = """
SELECT t.name, c.name, upper(c.type), c."notnull", c.pk
FROM pragma_table_list AS t JOIN pragma_table_info(t.name, 'main') AS c
WHERE t.schema = 'main' AND t.type = 'table' AND t.strict = 1 AND t.wr = 0
ORDER BY t.name, c.cid
"""
_INDEXES = """
SELECT i.name, t.name, i."unique", c.name
FROM pragma_table_list AS t
JOIN pragma_index_list(t.name, 'main') AS i JOIN pragma_index_info(i.name, 'main') AS c
WHERE t.schema = 'main' AND t.type = 'table' AND i.origin = 'c'
ORDER BY i.name, c.seqno
"""
_REFERRING = """
SELECT DISTINCT t.name FROM pragma_table_list AS t
JOIN pragma_foreign_key_list(t.name, 'main') AS k
WHERE t.schema = 'main' AND t.type = 'table' AND lower(k."table") IN ({})
"""


def require_supported(connection: Connection) -> None:
    """Refuse text in UTF-16, whose bytes have another order, and another length in bytes."""
    require_sqlite(connection.dialect.name)
    encoding = connection.exec_driver_sql("PRAGMA encoding").scalar_one()
    if encoding != "UTF-8":
        raise SchemaError(
            f"the text encoding of this database is {encoding}, and cannot be changed; the broker"
            " needs UTF-8",
            encoding=encoding,
        )


def objects(connection: Connection) -> dict[str, str]:
    """Name to type of everything that is in the database, SQLite's own left out."""
    rows = connection.exec_driver_sql("SELECT name, type FROM main.sqlite_schema")
    return {name: kind for name, kind in rows if not name.startswith("sqlite_")}


def is_content(_kind: str) -> bool:
    """Whatever there is."""
    return True


def is_needed(name: str) -> bool:
    """Whether a name is one of ours; SQLite does not look at the case."""
    return name.lower() in versions.NAMES


def user_version(connection: Connection) -> int | None:
    """What `PRAGMA user_version` says, and `metadata` has to."""
    return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())


def usable_tables(connection: Connection) -> dict[str, list[Column]]:
    """The columns of every table that is STRICT and has rowids."""
    tables: dict[str, list[Column]] = defaultdict(list)
    for table, name, kind, not_null, key in connection.exec_driver_sql(_COLUMNS):
        tables[table].append(Column(name, kind, bool(not_null), bool(key)))
    return tables


def indexes(connection: Connection) -> dict[str, IndexFacts]:
    """Those that were made by CREATE INDEX."""
    found: dict[str, IndexFacts] = {}
    for index, table, unique, column in connection.exec_driver_sql(_INDEXES):
        before = found[index].columns if index in found else ()
        found[index] = IndexFacts(table, (*before, column), bool(unique))
    return found


def trigger(connection: Connection, name: str, table: str) -> str | None:
    """The text of a trigger."""
    statement = (
        "SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND name = ? AND tbl_name = ?"
    )
    text: str | None = connection.exec_driver_sql(statement, (name, table)).scalar()
    return text


def names(connection: Connection) -> set[str]:
    """The names of everything."""
    return set(objects(connection))


def intruders(connection: Connection) -> list[str]:
    """Triggers that are not ours word for word; collations and conflict clauses of our tables."""
    found = []
    for kind, name, table, sql in connection.exec_driver_sql(_HANGING_ON_TABLES):
        if table.lower() not in versions.TABLE_NAMES:
            continue
        text = _text(sql)
        if kind == "trigger" and not _is_guard(name, text):
            found.append(f"trigger {name} on {table}")
        elif kind == "table" and _TELLTALE.search(text):
            clauses = table_clauses(text)
            found += [f"{clause} in {table}" for clause in clauses.conflicts]
            found += [
                f"collation {collation} of {table}.{column}"
                for column, collation in clauses.collations.items()
                if collation != "binary"
            ]
    return found


def _text(sql: bytes) -> str:
    return sql.decode(errors="backslashreplace")


def _is_guard(name: str, text: str) -> bool:
    return name in _GUARDS and _meaning(text) == _GUARDS[name]


@cache
def _meaning(trigger: str) -> str:
    return trigger_text(trigger)


def texts(connection: Connection, column: str, rest: str, name: str) -> list[str]:
    """Read as BLOBs, for the driver would refuse what is not UTF-8 without saying where it is."""
    statement = f"SELECT CAST({column} AS BLOB) FROM {rest}"
    return [_utf8(value, name) for (value,) in connection.exec_driver_sql(statement).fetchall()]


def _utf8(stored: bytes | None, name: str) -> str:
    if stored is None:
        raise SchemaError(f"{name} is NULL")
    try:
        return stored.decode()
    except UnicodeDecodeError as error:
        raise SchemaError(f"{name} is not UTF-8: {stored[:32]!r}") from error


def temporary(ddl: str) -> str:
    """It comes before the one in the file wherever a name has no schema."""
    return ddl.replace("CREATE TABLE", "CREATE TEMP TABLE")


def keep_writers_away(_connection: Connection, _version: int) -> None:
    """The transaction has had the lock from its beginning."""


def check_references(connection: Connection, tables: Iterable[str]) -> None:
    """Foreign keys are off while tables are made anew.

    Only what refers to those tables can have been broken, so nothing else is read: our own tables
    do not, an application's may.
    """
    rewritten = set(tables)
    if not rewritten:
        return
    names = ", ".join(f"'{name}'" for name in sorted(rewritten))
    for (table,) in connection.exec_driver_sql(_REFERRING.format(names)).fetchall():
        quoted = '"' + table.replace('"', '""') + '"'
        broken = connection.exec_driver_sql(f"PRAGMA main.foreign_key_check({quoted})").fetchall()
        lost = [row for row in broken if row[2].lower() in rewritten]
        if lost:
            raise SchemaError(
                f"{len(lost)} rows of {table} refer to rows of {lost[0][2]} that the migration"
                " removes; nothing was changed",
                table=table,
                rows=len(lost),
            )
