"""A database of PostgreSQL's as source or target of a move: both ways by COPY, a row at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, NullPool
from sqlalchemy.exc import SQLAlchemyError

from broker.errors import SchemaError
from broker.moving.sides import Side, commit, require_empty
from broker.moving.tables import TABLES, Listing, Row
from broker.postgresql.engine import (
    hide_values,
    make_engine,
    set_up,
    translate,
    translate_commit,
)
from broker.schema import LOCK_TIMEOUT_MS, upgrade, verify
from broker.schema.postgresql.transactions import quoted

T = TypeVar("T")

_SNAPSHOT: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

# Ids of a lineage, which belong to nobody, begin with a character that no id of a client's begins
# with: NUL on SQLite, and here, where no text holds NUL, U+0001.
_OF_SQLITE = "\0runtime-broker-"
_OF_POSTGRESQL = "\1runtime-broker-"


@dataclass(frozen=True, slots=True)
class PostgresqlPlace:
    """See `Place`; `schema` is the namespace of the store's tables, None for the current one."""

    url: URL
    schema: str | None

    def read(self, work: Callable[[Side], T]) -> T:
        def see(connection: Connection) -> T:
            verify(connection)
            return work(PostgresqlSide(connection, "source"))

        return self._in_transaction(see, **_SNAPSHOT)

    def make_ready(self) -> None:
        self._in_transaction(require_empty, **_SNAPSHOT)
        upgrade(self.url, schema=self.schema)

    def fill(self, work: Callable[[Side], T]) -> T:
        def see(connection: Connection) -> T:
            tables = ", ".join(table.name for table in TABLES)
            connection.exec_driver_sql(f"LOCK TABLE {tables} IN SHARE ROW EXCLUSIVE MODE")
            verify(connection)
            require_empty(connection)
            return work(PostgresqlSide(connection, "target"))

        return self._in_transaction(see)

    def _in_transaction(self, work: Callable[[Connection], T], **options: Any) -> T:
        # As behind a pooler of transactions, which there may be: all settings are `_settings`.
        engine = make_engine(self.url, transaction_pooler=True, poolclass=NullPool)
        try:
            return _transact(engine, self._settings(), work, options)
        except SQLAlchemyError as error:
            raise translate(error) from error
        finally:
            engine.dispose()

    def _settings(self) -> list[str]:
        """A move takes long, and each side waits for the other."""
        settings = [
            set_up(LOCK_TIMEOUT_MS),
            "SET LOCAL statement_timeout = 0",
            "SET LOCAL idle_in_transaction_session_timeout = 0",
        ]
        if self.schema is not None:
            settings.append(f"SET LOCAL search_path TO {quoted(self.schema)}")
        return settings


def _transact(
    engine: Engine, settings: list[str], work: Callable[[Connection], T], options: dict[str, Any]
) -> T:
    with engine.connect().execution_options(**options) as connection:
        begun = connection.begin()
        for statement in settings:
            connection.exec_driver_sql(statement)
        answer = work(connection)
        commit(begun, translate_commit)
        return answer


class PostgresqlSide(Side):
    """A connection in a transaction."""

    def translate(self, error: Exception) -> Exception:
        hide_values(error)
        return translate(error)

    @contextmanager
    def reading(self, listing: Listing) -> Iterator[Iterator[Row]]:
        statement = f"COPY ({listing.select}) TO STDOUT (FORMAT BINARY)"
        with self.errors(), self.driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(listing.kinds)
            rows = copy.rows()
            yield (_from_postgresql(row) for row in rows) if listing.marked else rows

    def write(self, table: Listing, rows: Iterable[Row]) -> None:
        columns = ", ".join(table.columns)
        statement = f"COPY {table.name} ({columns}) FROM STDIN (FORMAT BINARY)"
        with self.errors(), self.driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(table.kinds)
            for row in rows:
                copy.write_row(_to_postgresql(table, row))

    def settle(self, last_cursor: int) -> None:
        self.run("SET CONSTRAINTS ALL IMMEDIATE")
        self.run(f"ANALYZE {', '.join(table.name for table in TABLES)}")
        if last_cursor:  # stays if all else is rolled back, which an empty store can live with
            self.run("SELECT setval('events_rowid_seq', :last)", last=last_cursor)


def _from_postgresql(row: Row) -> Row:
    return tuple(
        "\0" + value[1:] if isinstance(value, str) and value.startswith(_OF_POSTGRESQL) else value
        for value in row
    )


def _to_postgresql(table: Listing, row: Row) -> Row:
    if table.marked:
        row = _marked(table, row)
    for position, value in enumerate(row):
        if type(value) is str and "\0" in value:
            raise _cannot_hold(table, row, position, "holds NUL, which no text of PostgreSQL can")
    return row


def _marked(table: Listing, row: Row) -> Row:
    values = list(row)
    for position in table.marked:
        if values[position].startswith(_OF_POSTGRESQL):
            raise _cannot_hold(table, row, position, "would be a lineage's on PostgreSQL")
        if values[position].startswith(_OF_SQLITE):
            values[position] = "\1" + values[position][1:]
    return tuple(values)


def _cannot_hold(table: Listing, row: Row, position: int, fault: str) -> SchemaError:
    column = table.columns[position]
    return SchemaError(
        f"{table.name}.{column} of {row[0]!r} {fault}: correct that row and move again;"
        " nothing was moved",
        table=table.name,
        row=row[0],
        column=column,
    )
