"""Is a database what its version says? Reads only, and only the schema: a few milliseconds.

The checks of every opening: each table present and of the right kind, its columns by name, type,
nullability, key and order; the named indexes and the trigger; the floor of the clock. What differs
beyond that is for `broker.schema.drift`.
"""

from __future__ import annotations

from sqlalchemy import Connection

from broker.clock import MAX_SAFE_INTEGER
from broker.errors import SchemaError
from broker.schema import versions
from broker.schema.backends import Catalogue, catalogue_of
from broker.schema.versions import Column


def validate(connection: Connection, version: int) -> None:
    """Raise SchemaError unless the tables, indexes and trigger are those of `version` (1 to 3)."""
    catalogue = catalogue_of(connection)
    found = catalogue.usable_tables(connection)
    for table, columns in catalogue.TABLES[version].items():
        _check_table(catalogue, table, columns, found.get(table))
    if version == versions.NEWEST_VERSION:
        _check_indexes(catalogue, connection)
        _check_ownership_trigger(catalogue, connection)


def validate_metadata(connection: Connection) -> None:
    """Raise SchemaError unless the table `metadata` is ours, in any version."""
    table = "metadata"
    catalogue = catalogue_of(connection)
    found = catalogue.usable_tables(connection).get(table)
    _check_table(catalogue, table, catalogue.TABLES[1][table], found)


def validate_version_table(connection: Connection) -> None:
    """Raise SchemaError unless Alembic's version table, which exists, is as we make it."""
    columns = (Column("version_num", "TEXT", not_null=True, key=True),)
    catalogue = catalogue_of(connection)
    found = catalogue.usable_tables(connection).get(versions.VERSION_TABLE)
    _check_table(catalogue, versions.VERSION_TABLE, columns, found)


def validate_head(connection: Connection) -> None:
    """Raise SchemaError, naming them, if objects that revision 0004 made are missing."""
    catalogue = catalogue_of(connection)
    missing = sorted(catalogue.HEAD_OBJECTS - catalogue.names(connection))
    if missing:
        raise SchemaError(f"missing from the database: {', '.join(missing)}", names=missing)


def validate_clock_floor(connection: Connection) -> None:
    """Raise SchemaError if the stored floor of the clock is not one; it may be missing."""
    metadata_integer(connection, "logical_time_floor")


def metadata_integer(connection: Connection, key: str) -> int | None:
    """The number that `metadata` has for a key, None for no such key; SchemaError if it is none."""
    name = f"metadata.{key}"
    rest = f"metadata WHERE key = '{key}'"
    found = catalogue_of(connection).texts(connection, "value", rest, name)
    return canonical_integer(found[0], name) if found else None


def canonical_integer(text: str, name: str) -> int:
    """The number that `text` writes: digits, no leading zero, at most 2^53 - 1; or SchemaError."""
    is_canonical = (
        isinstance(text, str)
        and text.isascii()
        and text.isdecimal()
        and (text[0] != "0" or text == "0")
    )
    if not is_canonical or len(text) > 16 or int(text) > MAX_SAFE_INTEGER:
        raise SchemaError(f"{name} must be a canonical integer from 0 to 2^53 - 1, not {text!r}")
    return int(text)


def _check_table(
    catalogue: Catalogue, table: str, wanted: tuple[Column, ...], found: list[Column] | None
) -> None:
    if found is None:
        raise SchemaError(f"table {table} {catalogue.UNUSABLE}", table=table)
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


def _check_indexes(catalogue: Catalogue, connection: Connection) -> None:
    found = catalogue.indexes(connection)
    for name, facts in versions.INDEXES_3.items():
        if found.get(name) != facts:
            kind = "unique index" if facts.unique else "index"
            raise SchemaError(
                f"{kind} {name} on {facts.table} ({', '.join(facts.columns)}) is missing or differs",
                index=name,
            )


def _check_ownership_trigger(catalogue: Catalogue, connection: Connection) -> None:
    text = catalogue.trigger(connection, versions.OWNERSHIP_TRIGGER, "streams")
    if text is None or versions.OWNERSHIP_CONDITION not in text:
        raise SchemaError(
            f"trigger {versions.OWNERSHIP_TRIGGER} on streams is missing or differs",
            trigger=versions.OWNERSHIP_TRIGGER,
        )
