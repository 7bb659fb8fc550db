"""The channel to a file: the driver's cursor."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, cast

from broker.sqlite.engine import primary_code
from broker.statements import SQLITE, Channel, Row, Statement, Style, Undecodable


class SQLiteChannel(Channel):
    """The driver's cursor of one connection; each statement runs when it is given.

    Raises what the driver raises, and `Undecodable`.
    """

    __slots__ = ("_connection", "_cursor")

    style: Style = SQLITE

    def __init__(self, dbapi_connection: Any) -> None:
        self._connection = dbapi_connection
        self._cursor = dbapi_connection.cursor()

    @property
    def connection(self) -> Any:
        return self._connection

    def one(self, statement: Statement, *parameters: Any) -> Row | None:
        sql, arrange = statement.compiled[SQLITE]
        try:
            self._cursor.execute(sql, arrange(parameters) if arrange else parameters)
            row: Row | None = self._cursor.fetchone()
        except sqlite3.OperationalError as error:
            raise self._undecodable(error) from error
        return row

    def all(self, statement: Statement, *parameters: Any) -> list[Row]:
        sql, arrange = statement.compiled[SQLITE]
        try:
            self._cursor.execute(sql, arrange(parameters) if arrange else parameters)
            rows: list[Row] = self._cursor.fetchall()
        except sqlite3.OperationalError as error:
            raise self._undecodable(error) from error
        return rows

    def each(self, statement: Statement, *parameters: Any) -> Rows:
        """The rows have a cursor of their own, which may stay open no longer than it is used: one
        left half read keeps its snapshot, whatever becomes of the transaction.
        """
        sql, arrange = statement.compiled[SQLITE]
        return Rows(self._connection, sql, arrange(parameters) if arrange else parameters)

    def run(self, statement: Statement, *parameters: Any) -> int:
        sql, arrange = statement.compiled[SQLITE]
        self._cursor.execute(sql, arrange(parameters) if arrange else parameters)
        met: int = self._cursor.rowcount
        return met

    def put(self, statement: Statement, *parameters: Any) -> None:
        sql, arrange = statement.compiled[SQLITE]
        self._cursor.execute(sql, arrange(parameters) if arrange else parameters)

    def put_each(self, statement: Statement, rows: Sequence[Row]) -> None:
        sql, arrange = statement.compiled[SQLITE]
        if len(rows) == 1:
            self._cursor.execute(sql, arrange(rows[0]) if arrange else rows[0])
        else:
            self._cursor.executemany(sql, map(arrange, rows) if arrange else rows)

    def control(self, sql: str) -> None:
        self._cursor.execute(sql)

    def close(self) -> None:
        """Give the cursor back; the connection stays."""
        self._cursor.close()

    def _undecodable(self, error: sqlite3.OperationalError) -> Exception:
        ours = _undecodable(error)
        if ours is not error:
            self._cursor.close()  # it is half read, see `each`
            self._cursor = self._connection.cursor()
        return ours


class Rows:
    """A query's rows as a context manager; a generator would take twice as long."""

    __slots__ = ("_cursor", "_parameters", "_sql")

    def __init__(self, connection: Any, sql: str, parameters: Row) -> None:
        self._cursor = connection.cursor()
        self._sql = sql
        self._parameters = parameters

    def __enter__(self) -> Iterable[Row]:
        try:
            self._cursor.execute(self._sql, self._parameters)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return cast(Iterable[Row], self._cursor)

    def __exit__(self, _kind: type[BaseException] | None, error: object, _: object) -> None:
        self._cursor.close()
        if isinstance(error, sqlite3.OperationalError) and _undecodable(error) is not error:
            raise Undecodable from error


def _undecodable(error: sqlite3.OperationalError) -> Exception:
    # Of all OperationalErrors only this one comes from the driver itself, without a result code.
    if primary_code(error) is not None:
        return error
    error.args = ("a text is not UTF-8",)  # instead of the text, in which a nonce may be
    return Undecodable()
