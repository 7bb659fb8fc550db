"""SQL compiled once per dialect, and the channel on which it runs.

Statements are written as SQLAlchemy Core constructs by the modules that own them. Executing them
through Core costs five times what the database needs for a commit, so they run, compiled, on the
driver's connection of the transaction that is open.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, cast

from sqlalchemy import FromClause, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement, ColumnElement
from sqlalchemy.types import TypeEngine

Row = Sequence[Any]


class Style(NamedTuple):
    """How a channel wants its SQL: the dialect, its parameters, and where the tables are.

    `schema` qualifies every table, None for none.
    """

    dialect: str
    paramstyle: str
    schema: str | None = None


SQLITE = Style("sqlite", "qmark")  # positional is what the driver binds fastest

#: What a statement in SQL writes before a table's name, for the schema to come in its place.
SCHEMA = "{schema}"
_ANY_SCHEMA = "broker_schema"  # whose tables a compiler names, until it is known which one it is


class _SQLiteCompiler(SQLiteCompiler):
    def get_from_hint_text(self, _table: FromClause, text: str | None) -> str | None:
        """INDEXED BY, given by `with_hint`; SQLAlchemy's own compiler leaves hints out."""
        return text


def _dialect(style: Style) -> Dialect:
    if style.dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return cast(Dialect, postgresql.dialect(paramstyle=style.paramstyle))  # type: ignore[no-untyped-call]
    dialect: Dialect = sqlite.dialect(paramstyle=style.paramstyle)
    dialect.statement_compiler = _SQLiteCompiler
    return dialect


class Statement:
    """One SQL statement; `names` gives the order in which callers hand in its parameters.

    Where PostgreSQL needs another one, with the same parameters and the same columns, it is given
    as SQL, with `:name` for parameters and `{schema}` before names of tables.

    `compiled` has it for each style, compiled when it is first asked for.
    """

    __slots__ = ("compiled",)

    def __init__(
        self, construct: ClauseElement, *names: str, on_postgresql: str | None = None
    ) -> None:
        self.compiled = _CompiledByStyle(construct, on_postgresql, names)


class Spelled(ColumnElement[Any]):
    """An expression that each backend spells in its own way; `{schema}` as in `Statement`."""

    inherit_cache = False

    def __init__(self, kind: TypeEngine[Any], *, on_sqlite: str, on_postgresql: str) -> None:
        self.type = kind
        self.on_sqlite = on_sqlite
        self.on_postgresql = on_postgresql


@compiles(Spelled)
def _on_sqlite(element: Spelled, _compiler: object, **_: object) -> str:
    return element.on_sqlite


@compiles(Spelled, "postgresql")
def _on_postgresql(element: Spelled, _compiler: object, **_: object) -> str:
    return element.on_postgresql


class _CompiledByStyle(dict[Style, "Compiled"]):
    def __init__(
        self, construct: ClauseElement, on_postgresql: str | None, names: tuple[str, ...]
    ) -> None:
        self._construct = construct
        self._on_postgresql = None if on_postgresql is None else text(on_postgresql)
        self._names = names

    def __missing__(self, style: Style) -> Compiled:
        compiled = self[style] = self._compile(style)
        return compiled

    def _compile(self, style: Style) -> Compiled:
        dialect, construct = _dialect(style), self._construct
        if style.dialect == "postgresql" and self._on_postgresql is not None:
            construct = self._on_postgresql
        where: dict[str, Any] = {}
        if style.schema is not None:
            where = {
                "schema_translate_map": {None: _ANY_SCHEMA},
                "render_schema_translate": True,
            }
        compiled = cast(SQLCompiler, construct.compile(dialect=dialect, **where))
        wanted = list(compiled.positiontup or ())

        # What the compiler binds by itself (the 0 of OFFSET) follows the caller's parameters.
        own = {name: value for name, value in compiled.params.items() if name not in self._names}
        places = {name: place for place, name in enumerate((*self._names, *own))}
        # The name comes last: nothing may be looked for in it.
        sql = str(compiled).replace(f"{_ANY_SCHEMA}.", SCHEMA)
        return sql.replace(SCHEMA, _qualifier(dialect, style.schema)), _arrange(
            [places[name] for name in wanted], len(self._names), tuple(own.values())
        )


def _qualifier(dialect: Dialect, schema: str | None) -> str:
    return "" if schema is None else f"{dialect.identifier_preparer.quote_schema(schema)}."


#: SQL text, and what puts a caller's parameters into its order; None if they are in it already.
Compiled: TypeAlias = tuple[str, Callable[[Row], Row] | None]


def _arrange(order: list[int], given: int, own: Row) -> Callable[[Row], Row] | None:
    if not own and order == list(range(given)):
        return None
    if not order:
        return lambda _given: ()
    if len(order) == 1:
        return lambda given: ((*given, *own)[order[0]],)
    pick = itemgetter(*order)
    return (lambda given: cast(Row, pick((*given, *own)))) if own else pick


class Undecodable(Exception):
    """A row holds text that is not UTF-8; the driver does not say which."""


class Violation(Exception):
    """A constraint has objected; raised from what the driver raised."""


#: What a channel raises where a constraint objects.
VIOLATIONS = (sqlite3.IntegrityError, Violation)


class Channel(ABC):
    """The driver's connection of one transaction, on which statements run.

    Raises what the driver raises; whoever owns the transaction translates. A violated constraint is
    one of `VIOLATIONS`.
    """

    __slots__ = ()

    style: Style

    @property
    @abstractmethod
    def connection(self) -> Any:
        """The driver's connection, or SQLAlchemy's adaption of an asynchronous one."""

    @abstractmethod
    def one(self, statement: Statement, *parameters: Any) -> Row | None:
        """The only row of a query that has one at the most, or None."""

    @abstractmethod
    def all(self, statement: Statement, *parameters: Any) -> list[Row]:
        """All rows of a query."""

    @abstractmethod
    def each(self, statement: Statement, *parameters: Any) -> AbstractContextManager[Iterable[Row]]:
        """The rows of a query one by one, for those that may be many: `with … as rows`."""

    @abstractmethod
    def run(self, statement: Statement, *parameters: Any) -> int:
        """Execute a change; how many rows it met."""

    @abstractmethod
    def put(self, statement: Statement, *parameters: Any) -> None:
        """Execute a change of which nobody asks how many rows it met.

        It may be sent later, together with what follows; then that raises what it has to say.
        """

    @abstractmethod
    def put_each(self, statement: Statement, rows: Sequence[Row]) -> None:
        """As `put`, once for each row of parameters."""

    @abstractmethod
    def control(self, sql: str) -> None:
        """Execute a statement of transaction control, as `put`: BEGIN, SAVEPOINT and the like."""

    def settle(self) -> None:  # noqa: B027  # most channels have nothing to wait for
        """Wait for whatever was put; raises what it has to say."""

    @abstractmethod
    def close(self) -> None:
        """Give up what the channel holds; the connection stays."""
