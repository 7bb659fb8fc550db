"""Where the store of a test is: in a file of SQLite's, or in a database of PostgreSQL's.

What other clients see of either is read here, with the same words for both.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PosixPath
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
from sqlalchemy import URL, make_url

from broker import schema
from tests.reuse import Original


@dataclass(frozen=True)
class PostgresPlace:
    """A database of its own on a server; `is_at_head` if it is a copy of one with a new store."""

    url: str
    is_at_head: bool = False


class StorePath(PosixPath):
    """A file of SQLite's; `is_at_head` if it is a copy of one with a new store."""

    is_at_head = False


Place: TypeAlias = Path | PostgresPlace
PlaceOn: TypeAlias = Callable[[str], AbstractContextManager[Place]]
Prepare: TypeAlias = Callable[[str], None]

BACKENDS = os.environ.get("BROKER_TEST_BACKENDS", "sqlite,postgresql").split(",")


def url_of(place: Place) -> str:
    """The URL to open a store with."""
    return place.url if isinstance(place, PostgresPlace) else f"sqlite:///{place}"


def async_url_of(place: Place) -> str:
    """The URL of an async engine of the application's."""
    if isinstance(place, PostgresPlace):
        return place.url  # psycopg is for both
    return f"sqlite+aiosqlite:///{place}"


def is_at_head(place: Place) -> bool:
    """Whether it is known that there was a store when nobody had used it."""
    return isinstance(place, (PostgresPlace, StorePath)) and place.is_at_head


def copied(template: Path, file: Path) -> StorePath:
    """A file with a new store, copied from another."""
    made = StorePath(shutil.copy(template, file))
    made.is_at_head = True
    return made


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection of another client to a file, with none of the broker's settings."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


@dataclass(frozen=True)
class Client:
    """Another client: each statement is a transaction of its own, unless it says BEGIN."""

    connection: Any
    mark: str

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement with `?` for its parameters; the cursor with the rows that it gives."""
        if not parameters:  # and so no placeholders, whatever characters there are
            return self.connection.execute(sql)
        return self.connection.execute(sql.replace("?", self.mark), parameters)


@contextmanager
def client(place: Place) -> Iterator[Client]:
    """A plain connection of another client, with none of the broker's settings."""
    if isinstance(place, PostgresPlace):
        with closing(psycopg.connect(_conninfo(place.url), autocommit=True)) as theirs:
            yield Client(theirs, "%s")
    else:
        with raw(place) as connection:
            yield Client(connection, "?")


def rows(place: Place, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """What another client reads."""
    with client(place) as other:
        found: list[tuple[Any, ...]] = other.execute(query, parameters).fetchall()
        return found


def execute(place: Place, sql: str, *parameters: Any) -> None:
    """Let another client run a statement, in a transaction of its own."""
    with client(place) as other:
        other.execute(sql, parameters)


TABLES = {
    "sqlite": "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1",
    "postgresql": "SELECT relname FROM pg_class WHERE relkind = 'r'"
    " AND relnamespace = current_schema()::regnamespace ORDER BY 1",
}


def backend_of(place: Place) -> str:
    """`sqlite` or `postgresql`."""
    return "postgresql" if isinstance(place, PostgresPlace) else "sqlite"


def contents(place: Place) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables but the clock floor, as another client reads them."""
    columns = "*" if isinstance(place, PostgresPlace) else "rowid, *"
    with client(place) as other:
        return {
            name: [
                row
                for row in other.execute(f"SELECT {columns} FROM {name} ORDER BY 1")
                if "logical_time_floor" not in row[:2]
            ]
            for (name,) in other.execute(TABLES[backend_of(place)])
        }


# A database is used again, or dropped, a little later: the server takes up to 100 ms to be rid of a
# client that has just gone.
USED_DATABASES = 3


def _nothing_more(_url: str) -> None:
    """The store's tables are all there is."""


@dataclass
class _Template:
    """A database to be copied, and its copies that tests have used."""

    name: str
    original: Original
    used: list[str] = field(default_factory=list)


class Databases:
    """Makes databases on a server for one test each; all are copies of one that is at head."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")
        self._connection = self._connected()
        self._templates: dict[Prepare, _Template] = {}
        self._empty: _Template | None = None

    def one(self, prepare: Prepare = _nothing_more) -> AbstractContextManager[PostgresPlace]:
        """A database with the store's tables, for as long as a `with` lasts.

        `prepare` makes what is to be there besides; it is called once, for all of its databases.
        """
        return self._copy(self._template(prepare), is_at_head=True)

    def one_empty(self) -> AbstractContextManager[PostgresPlace]:
        """A database with nothing in it, for as long as a `with` lasts."""
        if self._empty is None:
            name = self._create("template0")
            with closing(self._connected(name)) as connection:
                self._empty = _Template("template0", Original.of(connection), [name])
        return self._copy(self._empty, is_at_head=False)

    @contextmanager
    def _copy(self, template: _Template, *, is_at_head: bool) -> Iterator[PostgresPlace]:
        name = self._as_new(template) or self._create(template.name)
        try:
            yield replace(self._place(name), is_at_head=is_at_head)
        finally:
            template.used.append(name)

    def _as_new(self, template: _Template) -> str | None:
        """A used copy that is none the worse for it; those that are worse are dropped."""
        while len(template.used) > USED_DATABASES:
            name = template.used.pop(0)
            with closing(self._connected(name)) as connection:
                if template.original.restore(connection):
                    return name
            self._drop(name)
        return None

    def close(self) -> None:
        """Leave nothing behind."""
        made = [template.name for template in self._templates.values()]
        for template in filter(None, [*self._templates.values(), self._empty]):
            made += template.used
        for name in made:
            self._drop(name)
        self._connection.close()

    def _template(self, prepare: Prepare) -> _Template:
        if prepare not in self._templates:
            name = self._create("template0")
            schema.upgrade(self._place(name).url)
            prepare(self._place(name).url)
            with closing(self._connected(name)) as connection:
                self._templates[prepare] = _Template(name, Original.of(connection))
        return self._templates[prepare]

    def _connected(self, name: str | None = None) -> psycopg.Connection[Any]:
        url = self._url if name is None else self._url.set(database=name)
        return psycopg.connect(_conninfo(url), autocommit=True)

    def _create(self, template: str) -> str:
        """Copying files is the fastest way by far where nothing is flushed."""
        name = f"broker_test_{uuid4().hex[:16]}"
        has_strategies = self._connection.info.server_version >= 150_000
        (is_flushed,) = self._connection.execute("SHOW fsync").fetchall()[0]
        strategy = "STRATEGY file_copy" if has_strategies and is_flushed == "off" else ""
        self._connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} {strategy}")
        return name

    def _drop(self, name: str) -> None:
        self._connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _place(self, name: str) -> PostgresPlace:
        return PostgresPlace(self._url.set(database=name).render_as_string(hide_password=False))


def _conninfo(url: str | URL) -> str:
    """As libpq takes it."""
    libpq = make_url(url).set(drivername="postgresql")
    return libpq.render_as_string(hide_password=False)
