"""SQL compiled once per dialect and run on the driver's cursor.

Statements are written as SQLAlchemy Core constructs by the modules that own them. Executing them
through Core costs five times what the database needs for a commit, so they run, compiled, on the
cursor of the transaction that is open.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias, cast

from sqlalchemy import FromClause
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement

from broker.sqlite.engine import primary_code

Row = Sequence[Any]


class _SQLiteCompiler(SQLiteCompiler):
    def get_from_hint_text(self, _table: FromClause, text: str | None) -> str | None:
        """INDEXED BY, given by `with_hint`; SQLAlchemy's own compiler leaves hints out."""
        return text


def _sqlite() -> Dialect:
    dialect = sqlite.dialect(paramstyle="qmark")  # positional is what the driver binds fastest
    dialect.statement_compiler = _SQLiteCompiler
    return dialect


_DIALECTS: dict[str, Callable[[], Dialect]] = {"sqlite": _sqlite}


class Statement:
    """One SQL statement; `names` gives the order in which callers hand in its parameters.

    `compiled` has it for each dialect by name, compiled when it is first asked for.
    """

    __slots__ = ("compiled",)

    def __init__(self, construct: ClauseElement, *names: str) -> None:
        self.compiled = _CompiledByDialect(construct, names)


class _CompiledByDialect(dict[str, "Compiled"]):
    def __init__(self, construct: ClauseElement, names: tuple[str, ...]) -> None:
        self._construct = construct
        self._names = names

    def __missing__(self, dialect: str) -> Compiled:
        compiled = self[dialect] = self._compile(_DIALECTS[dialect]())
        return compiled

    def _compile(self, dialect: Dialect) -> Compiled:
        compiled = cast(SQLCompiler, self._construct.compile(dialect=dialect))
        wanted = list(compiled.positiontup or ())

        # What the compiler binds by itself (the 0 of OFFSET) follows the caller's parameters.
        own = {name: value for name, value in compiled.params.items() if name not in self._names}
        places = {name: place for place, name in enumerate((*self._names, *own))}
        return str(compiled), _arrange([places[name] for name in wanted], tuple(own.values()))


#: SQL text, and what puts a caller's parameters into its order; None if they are in it already.
Compiled: TypeAlias = tuple[str, Callable[[Row], Row] | None]


def _arrange(order: list[int], own: tuple[Any, ...]) -> Callable[[Row], Row] | None:
    if not own and order == list(range(len(order))):
        return None
    if len(order) == 1:
        return lambda given: ((*given, *own)[order[0]],)
    pick = itemgetter(*order)
    return (lambda given: cast(Row, pick((*given, *own)))) if own else pick


class Undecodable(Exception):
    """A row holds text that is not UTF-8; the driver does not say which."""


class Channel:
    """The driver's cursor of one connection, on which statements run.

    Raises what the driver raises, and `Undecodable`; the one who owns the transaction translates.
    """

    __slots__ = ("_cursor", "_dialect", "connection")

    def __init__(self, dbapi_connection: Any, dialect: str) -> None:
        self.connection = dbapi_connection
        self._cursor = dbapi_connection.cursor()
        self._dialect = dialect

    def one(self, statement: Statement, *parameters: Any) -> Row | None:
        """The only row of a query that has one at the most, or None."""
        sql, arrange = statement.compiled[self._dialect]
        try:
            self._cursor.execute(sql, arrange(parameters) if arrange else parameters)
            row: Row | None = self._cursor.fetchone()
        except sqlite3.OperationalError as error:
            raise self._undecodable(error) from error
        return row

    def all(self, statement: Statement, *parameters: Any) -> list[Row]:
        """All rows of a query."""
        sql, arrange = statement.compiled[self._dialect]
        try:
            self._cursor.execute(sql, arrange(parameters) if arrange else parameters)
            rows: list[Row] = self._cursor.fetchall()
        except sqlite3.OperationalError as error:
            raise self._undecodable(error) from error
        return rows

    def each(self, statement: Statement, *parameters: Any) -> Rows:
        """The rows of a query one by one, for those that may be many: `with … as rows`.

        They have a cursor of their own, which may stay open no longer than it is used: one left
        half read keeps its snapshot, whatever becomes of the transaction.
        """
        sql, arrange = statement.compiled[self._dialect]
        return Rows(self.connection, sql, arrange(parameters) if arrange else parameters)

    def run(self, statement: Statement, *parameters: Any) -> int:
        """Execute a change; how many rows it met."""
        sql, arrange = statement.compiled[self._dialect]
        self._cursor.execute(sql, arrange(parameters) if arrange else parameters)
        met: int = self._cursor.rowcount
        return met

    def run_each(self, statement: Statement, rows: Sequence[Row]) -> int:
        """Execute a change once for each row of parameters; how many rows were met in all."""
        if len(rows) == 1:
            return self.run(statement, *rows[0])
        sql, arrange = statement.compiled[self._dialect]
        self._cursor.executemany(sql, map(arrange, rows) if arrange else rows)
        met: int = self._cursor.rowcount
        return met

    def control(self, sql: str) -> None:
        """Execute a statement of transaction control: BEGIN, COMMIT, SAVEPOINT and the like."""
        self._cursor.execute(sql)

    def close(self) -> None:
        """Give the cursor back; the connection stays."""
        self._cursor.close()

    def _undecodable(self, error: sqlite3.OperationalError) -> Exception:
        ours = _undecodable(error)
        if ours is not error:
            self._cursor.close()  # it is half read, see `each`
            self._cursor = self.connection.cursor()
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
    return error if primary_code(error) is not None else Undecodable()
