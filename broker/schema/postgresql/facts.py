"""Every schema fact of a store on PostgreSQL, by its catalogue.

Both sides are read in the same way, as the first schema of the search path, so that the server
prints names without a schema wherever a thing is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from broker.errors import DatabaseUnavailable
from broker.models import Base
from broker.postgresql.engine import sqlstate
from broker.schema import versions
from broker.schema.facts import ORDER, TABLE, Aspects, Facts, Thing, yes
from broker.schema.postgresql import catalogue, fact_queries
from broker.schema.postgresql.transactions import quoted

_INSUFFICIENT_PRIVILEGE = "42501"

# The server prints the same models in the same way; what they give is asked for once.
_EXPECTED: dict[Any, Facts] = {}


def live_facts(connection: Connection) -> Facts:
    """Every fact of our tables, of what hangs on them, of the encoding and of the versions."""
    schema = connection.exec_driver_sql("SELECT current_schema()").scalar()
    if schema is None:
        return {}
    with _savepoint(connection, schema):
        return _read(connection)


def expected_facts(connection: Connection) -> Facts:
    """Of a schema that is made from the models, in a savepoint that is rolled back."""
    server = connection.dialect.server_version_info
    if server not in _EXPECTED:
        _EXPECTED[server] = _of_the_models(connection)
    return _EXPECTED[server]


def can_be_told(connection: Connection) -> bool:
    """Whether the role may make a schema, and the server takes any writes."""
    return bool(
        connection.exec_driver_sql(
            "SELECT has_database_privilege(current_database(), 'CREATE')"
            " AND NOT current_setting('transaction_read_only')::boolean"
        ).scalar_one()
    )


def _of_the_models(connection: Connection) -> Facts:
    pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    schema = f"broker_models_{pid}"
    try:
        with _savepoint(connection, schema):
            connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
            _create_tables(connection)
            head, version = versions.HEAD, versions.NEWEST_VERSION
            connection.exec_driver_sql(f"INSERT INTO {versions.VERSION_TABLE} VALUES ('{head}')")
            connection.exec_driver_sql(
                f"INSERT INTO metadata VALUES ('schema_version', '{version:d}')"
            )
            return _read(connection)
    except DBAPIError as error:
        if error.orig is None or sqlstate(error.orig) != _INSUFFICIENT_PRIVILEGE:
            raise
        raise DatabaseUnavailable(
            "the drift check makes a schema and rolls it back, which this user may not: let it"
            " CREATE on the database, or check as its owner"
        ) from error


def _create_tables(connection: Connection) -> None:
    """Where the search path says, whatever the caller has mapped names without a schema to."""
    mapped = connection.get_execution_options().get("schema_translate_map")
    connection.execution_options(schema_translate_map=None)
    try:
        Base.metadata.create_all(connection, checkfirst=False)
    finally:
        connection.execution_options(schema_translate_map=mapped)
    connection.exec_driver_sql(catalogue.VERSION_TABLE_DDL)


@contextmanager
def _savepoint(connection: Connection, schema: str) -> Iterator[None]:
    """With nothing but `schema` on the search path, and everything undone at the end.

    Temporary tables come last: one may stand for the version table, see `stamp_for_reading`.
    """
    savepoint = connection.begin_nested()
    try:
        connection.exec_driver_sql(f"SET LOCAL search_path TO {quoted(schema)}, pg_temp")
        yield
    finally:
        if connection.in_transaction() and savepoint.is_active:
            savepoint.rollback()


# --- Reading ----------------------------------------------------------------------------------


def _read(connection: Connection) -> Facts:
    facts: Facts = {}
    orders: dict[str, list[str]] = {}
    for table, column, *aspects in _rows(connection, fact_queries.COLUMNS):
        facts[Thing(f"{table}.{column}", "column")] = _named(fact_queries.COLUMN_ASPECTS, aspects)
        orders.setdefault(table, []).append(column)
    for table, *aspects in _rows(connection, fact_queries.TABLES):
        own = _named(fact_queries.TABLE_ASPECTS, aspects)
        facts[Thing(table, TABLE)] = own | {ORDER: ", ".join(orders.get(table, []))}
    for query, names in fact_queries.HANGING_ON_TABLES:
        for subject, kind, *aspects in _rows(connection, query):
            facts[Thing(subject, kind)] = _named(names, aspects)
    return facts | _functions(connection) | _encoding(connection) | _versions(connection, orders)


def _rows(connection: Connection, query: str) -> list[Any]:
    names = {"tables": sorted(versions.TABLE_NAMES)}
    return list(connection.exec_driver_sql(query, names))


def _named(names: tuple[str, ...], values: list[Any]) -> Aspects:
    return {name: _shown(value) for name, value in zip(names, values, strict=True)}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return yes(value)
    return "none" if value is None else " ".join(str(value).split())


def _functions(connection: Connection) -> Facts:
    """Those that are ours by name and arguments; others in the schema are none of our business."""
    return {
        Thing(name, "function"): _named(fact_queries.FUNCTION_ASPECTS, aspects)
        for name, *aspects in connection.exec_driver_sql(fact_queries.FUNCTIONS)
        if catalogue.is_needed(name)
    }


def _encoding(connection: Connection) -> Facts:
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    return {Thing("encoding", "encoding"): {"server_encoding": encoding}}


def _versions(connection: Connection, tables: dict[str, list[str]]) -> Facts:
    """The two places in which versions stand."""
    facts: Facts = {}
    for table, column, rest in (
        ("metadata", "value", "metadata WHERE key = 'schema_version'"),
        (versions.VERSION_TABLE, "version_num", versions.VERSION_TABLE),
    ):
        if column in tables.get(table, ()):
            found = connection.exec_driver_sql(f"SELECT {column} FROM {rest}").scalars()
            facts[Thing(table, "version")] = {"recorded version": ", ".join(found) or "none"}
    return facts
