"""A file of SQLite's as source or target of a move.

A target is filled by one transaction in place, not as a file of another name that is renamed at the
end: so whoever opens it meanwhile finds an empty store and waits, instead of making one that the
rename would replace; and what a process leaves behind that is killed is a journal that the next one
to open the file rolls back, not a file that nobody would remove.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import URL, Connection, NullPool
from sqlalchemy.exc import SQLAlchemyError

from broker import opening
from broker.errors import CorruptRow, SchemaError
from broker.moving.sides import Side, commit, require_empty
from broker.moving.tables import TABLES, Listing, Row
from broker.schema import LOCK_TIMEOUT_MS, upgrade, verify
from broker.sqlite.database_file import file_exists
from broker.sqlite.engine import IMMEDIATE, make_engine, translate, translate_commit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SqlitePlace:
    """See `Place`."""

    url: URL

    def read(self, work: Callable[[Side], T]) -> T:
        def see(connection: Connection) -> T:
            verify(connection)  # the first statement: from here on it is one snapshot
            return work(SqliteSide(connection, "source"))

        return opening.look(self.url, see, busy_timeout_ms=LOCK_TIMEOUT_MS)

    def make_ready(self) -> None:
        if file_exists(self.url):
            opening.look(self.url, require_empty, busy_timeout_ms=LOCK_TIMEOUT_MS, roll_back=True)
        upgrade(self.url, busy_timeout_ms=LOCK_TIMEOUT_MS)

    def fill(self, work: Callable[[Side], T]) -> T:
        # Without foreign keys: `settle` looks at all of them at once, and can tell which is wrong.
        engine = make_engine(
            self.url,
            busy_timeout_ms=LOCK_TIMEOUT_MS,
            wal=False,
            foreign_keys=False,
            poolclass=NullPool,
        )
        try:
            with engine.connect().execution_options(**IMMEDIATE) as connection:
                begun = connection.begin()
                require_empty(connection)
                answer = work(SqliteSide(connection, "target"))
                commit(begun, translate_commit)
                return answer
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise translate(error) from error
        finally:
            engine.dispose()


class SqliteSide(Side):
    """A connection in a transaction."""

    def __init__(self, connection: Connection, role: str) -> None:
        super().__init__(connection, role)
        self.driver.text_factory = bytes.decode  # strict, with an error of its own

    def translate(self, error: Exception) -> Exception:
        return translate(error)

    @contextmanager
    def reading(self, listing: Listing) -> Iterator[Iterator[Row]]:
        with self.errors(), closing(self.driver.execute(listing.select)) as cursor:
            yield self._each(cursor, listing)

    def _each(self, cursor: sqlite3.Cursor, listing: Listing) -> Iterator[Row]:
        done = 0
        try:
            for row in cursor:
                yield row
                done += 1
        except UnicodeDecodeError:
            raise self._undecodable(listing, done) from None

    def _undecodable(self, listing: Listing, position: int) -> CorruptRow:
        """The error for the row at a position of a listing, whose text is not UTF-8."""
        self.driver.text_factory = bytes
        with closing(
            self.driver.execute(f"{listing.select} LIMIT 1 OFFSET {position:d}")
        ) as cursor:
            found = cursor.fetchone()
        (column, *_) = [
            name for name, value in zip(listing.columns, found, strict=True) if not _is_utf8(value)
        ]
        row = found[0].decode(errors="backslashreplace")
        return CorruptRow(
            f"{listing.name}.{column} of {row!r} is not UTF-8: correct that row and move again",
            table=listing.name,
            row=row,
            column=column,
        )

    def write(self, table: Listing, rows: Iterable[Row]) -> None:
        marks = ", ".join("?" * len(table.columns))
        sql = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})"
        with self.errors():
            self.driver.executemany(sql, rows)

    def settle(self, last_cursor: int) -> None:
        del last_cursor  # rowids go on from the largest by themselves
        for table in TABLES:
            for _, rowid, parent, _ in self.run(f"PRAGMA main.foreign_key_check({table.name})"):
                ((row,),) = self.run(
                    f"SELECT {table.columns[0]} FROM {table.name} WHERE rowid = :rowid",
                    rowid=rowid,
                )
                raise SchemaError(
                    f"{row!r} in {table.name} refers to a row of {parent} that is not there;"
                    " nothing was moved",
                    table=table.name,
                    row=row,
                )


def _is_utf8(value: object) -> bool:
    try:
        return not isinstance(value, bytes) or bytes.decode(value) is not None
    except UnicodeDecodeError:
        return False
