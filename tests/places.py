"""Where the store of a test is: in a file of SQLite's, or in a database of PostgreSQL's.

What other clients see of either is read here, with the same words for both.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import psycopg
from sqlalchemy import URL, make_url

from broker import schema


@dataclass(frozen=True)
class PostgresPlace:
    """A database of its own on a server; `is_at_head` if it is a copy of one with a new store."""

    url: str
    is_at_head: bool = False


Place: TypeAlias = Path | PostgresPlace
PlaceOn: TypeAlias = Callable[[str], AbstractContextManager[Place]]

BACKENDS = os.environ.get("BROKER_TEST_BACKENDS", "sqlite,postgresql").split(",")


def url_of(place: Place) -> str:
    """The URL to open a store with."""
    return place.url if isinstance(place, PostgresPlace) else f"sqlite:///{place}"


def async_url_of(place: Place) -> str:
    """The URL of an async engine of the application's."""
    if isinstance(place, PostgresPlace):
        return place.url  # psycopg is for both
    return f"sqlite+aiosqlite:///{place}"


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


# A database is dropped a little later: the server waits 100 ms for a client that has just gone.
USED_DATABASES = 3


class Databases:
    """Makes databases on a server for one test each; all are copies of one that is at head."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")
        self._connection = psycopg.connect(_conninfo(self._url), autocommit=True)
        self._template: str | None = None
        self._used: list[str] = []

    def one(self) -> AbstractContextManager[PostgresPlace]:
        """A database with the store's tables, for as long as a `with` lasts."""
        return self._copy(self._template_at_head(), is_at_head=True)

    def one_empty(self) -> AbstractContextManager[PostgresPlace]:
        """A database with nothing in it, for as long as a `with` lasts."""
        return self._copy("template0")

    @contextmanager
    def _copy(self, template: str, *, is_at_head: bool = False) -> Iterator[PostgresPlace]:
        name = self._create(template)
        try:
            yield replace(self._place(name), is_at_head=is_at_head)
        finally:
            self._used.append(name)
            if len(self._used) > USED_DATABASES:
                self._drop(self._used.pop(0))

    def close(self) -> None:
        """Leave nothing behind."""
        for name in filter(None, [*self._used, self._template]):
            self._drop(name)
        self._connection.close()

    def _template_at_head(self) -> str:
        if self._template is None:
            name = self._create("template0")
            schema.upgrade(self._place(name).url)
            self._template = name
        return self._template

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
