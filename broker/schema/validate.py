"""Is a database what its version says? Reads only, and only the schema: a few milliseconds.

The checks of every opening: each table present, STRICT, with rowids, its columns by name, type,
nullability, key and order; the named indexes and the trigger; the floor of the clock. What differs
beyond that is for `broker.schema.drift`.
"""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection

from broker.clock import MAX_SAFE_INTEGER
from broker.errors import SchemaError
from broker.schema import versions
from broker.schema.versions import Column, IndexFacts

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


def validate(connection: Connection, version: int) -> None:
    """Raise SchemaError unless the tables, indexes and trigger are those of `version` (1 to 3)."""
    found = _usable_tables(connection)
    for table, columns in versions.TABLES[version].items():
        _check_table(table, columns, found.get(table))
    if version == versions.NEWEST_VERSION:
        _check_indexes(connection)
        _check_ownership_trigger(connection)


def validate_metadata(connection: Connection) -> None:
    """Raise SchemaError unless the table `metadata` is ours, in any version."""
    table = "metadata"
    _check_table(table, versions.TABLES[1][table], _usable_tables(connection).get(table))


def validate_version_table(connection: Connection) -> None:
    """Raise SchemaError unless Alembic's version table, which exists, is as we make it."""
    columns = (Column("version_num", "TEXT", not_null=True, key=True),)
    found = _usable_tables(connection).get(versions.VERSION_TABLE)
    _check_table(versions.VERSION_TABLE, columns, found)


def validate_head(connection: Connection) -> None:
    """Raise SchemaError, naming them, if objects that revision 0004 made are missing."""
    rows = connection.exec_driver_sql("SELECT name FROM main.sqlite_schema").fetchall()
    wanted = {*versions.INDEXES_OF_HEAD, *versions.TRIGGERS_OF_HEAD}
    missing = sorted(wanted - {name for (name,) in rows})
    if missing:
        raise SchemaError(f"missing from the database: {', '.join(missing)}", names=missing)


def validate_clock_floor(connection: Connection) -> None:
    """Raise SchemaError if the stored floor of the clock is not one; it may be missing."""
    statement = "SELECT CAST(value AS BLOB) FROM metadata WHERE key = 'logical_time_floor'"
    name = "metadata.logical_time_floor"
    for (value,) in connection.exec_driver_sql(statement):
        canonical_integer(utf8(value, name), name)


def utf8(stored: bytes, name: str) -> str:
    """The text that a value was read from as a BLOB, for the driver refuses what is not UTF-8.

    Raises SchemaError then.
    """
    try:
        return stored.decode()
    except UnicodeDecodeError as error:
        raise SchemaError(f"{name} is not UTF-8: {stored[:32]!r}") from error


def canonical_integer(text: str, name: str) -> int:
    """The number that `text` writes: digits, no leading zero, at most 2^53 - 1; or SchemaError."""
    is_canonical = text.isascii() and text.isdecimal() and (text[0] != "0" or text == "0")
    if not is_canonical or len(text) > 16 or int(text) > MAX_SAFE_INTEGER:
        raise SchemaError(f"{name} must be a canonical integer from 0 to 2^53 - 1, not {text!r}")
    return int(text)


def _usable_tables(connection: Connection) -> dict[str, list[Column]]:
    tables: dict[str, list[Column]] = defaultdict(list)
    for table, name, kind, not_null, key in connection.exec_driver_sql(_COLUMNS):
        tables[table].append(Column(name, kind, bool(not_null), bool(key)))
    return tables


def _check_table(table: str, wanted: tuple[Column, ...], found: list[Column] | None) -> None:
    if found is None:
        raise SchemaError(f"table {table} is missing, not STRICT or WITHOUT ROWID", table=table)
    for position, column in enumerate(wanted):
        if position >= len(found) or found[position] != column:
            there = _text(found[position]) if position < len(found) else "nothing"
            raise SchemaError(
                f"table {table} has {there} where {_text(column)} belongs",
                table=table,
                column=column.name,
            )
    if len(found) > len(wanted):
        extra = found[len(wanted)].name
        raise SchemaError(
            f"table {table} has a column {extra} that is not ours", table=table, column=extra
        )


def _text(column: Column) -> str:
    words = [column.name, column.type, "NOT NULL" * column.not_null, "PRIMARY KEY" * column.key]
    return " ".join(filter(None, words))


def _check_indexes(connection: Connection) -> None:
    columns: dict[str, list[str]] = defaultdict(list)
    place: dict[str, tuple[str, bool]] = {}
    for index, table, unique, column in connection.exec_driver_sql(_INDEXES):
        columns[index].append(column)
        place[index] = table, bool(unique)
    for name, facts in versions.INDEXES_3.items():
        table, unique = place.get(name, ("", False))
        if IndexFacts(table, tuple(columns[name]), unique) != facts:
            kind = "unique index" if facts.unique else "index"
            raise SchemaError(
                f"{kind} {name} on {facts.table} ({', '.join(facts.columns)}) is missing or differs",
                index=name,
            )


def _check_ownership_trigger(connection: Connection) -> None:
    statement = (
        "SELECT sql FROM main.sqlite_schema"
        " WHERE type = 'trigger' AND name = ? AND tbl_name = 'streams'"
    )
    row = connection.exec_driver_sql(statement, (versions.OWNERSHIP_TRIGGER,)).fetchone()
    if row is None or versions.OWNERSHIP_CONDITION not in row[0]:
        raise SchemaError(
            f"trigger {versions.OWNERSHIP_TRIGGER} on streams is missing or differs",
            trigger=versions.OWNERSHIP_TRIGGER,
        )
