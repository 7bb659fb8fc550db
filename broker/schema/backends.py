"""What the checks and migrations ask of a backend, and which module answers for which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sqlalchemy import URL, Connection

from broker.database_url import POSTGRESQL, SQLITE, is_postgresql
from broker.errors import ConfigurationError
from broker.schema.facts import Facts
from broker.schema.versions import Column, IndexFacts

T = TypeVar("T")


class Catalogue(Protocol):
    """How a database's schema is read, and what ours is there; `broker.schema.versions` has the rest."""

    VERSION_TABLE_DDL: str
    TABLES: Mapping[int, Mapping[str, tuple[Column, ...]]]
    UNUSABLE: str
    HEAD_OBJECTS: frozenset[str]
    NAMES_OF: Mapping[int, frozenset[str]]

    def require_supported(self, connection: Connection) -> None:
        """Raise ConfigurationError or SchemaError for a database that cannot hold the store."""

    def objects(self, connection: Connection) -> dict[str, str]:
        """Name to type of everything that is in the database, the backend's own left out."""

    def is_content(self, kind: str) -> bool:
        """Whether an object of this type means that the database is not an empty one."""

    def is_needed(self, name: str) -> bool:
        """Whether the object of this name would be in the way of one of ours."""

    def user_version(self, connection: Connection) -> int | None:
        """The schema version that is kept outside the tables; None where there is no such place."""

    def usable_tables(self, connection: Connection) -> dict[str, list[Column]]:
        """The tables that could be ours by their kind, with their columns in order."""

    def indexes(self, connection: Connection) -> dict[str, IndexFacts]:
        """The indexes by name."""

    def trigger(self, connection: Connection, name: str, table: str) -> str | None:
        """The text of a trigger; None if it is missing or switched off."""

    def names(self, connection: Connection) -> set[str]:
        """The names that `HEAD_OBJECTS` may be among."""

    def intruders(self, connection: Connection) -> list[str]:
        """What `refuse_intruders` refuses, each by its kind and name."""

    def texts(self, connection: Connection, column: str, rest: str, name: str) -> list[str]:
        """SELECT `column` FROM `rest`: texts, or SchemaError, which says `name`."""

    def temporary(self, ddl: str) -> str:
        """The CREATE TABLE for a table that goes with the transaction or connection."""

    def keep_writers_away(self, connection: Connection, version: int) -> None:
        """Let nobody else write to the tables of a version before the transaction has ended."""

    def check_references(self, connection: Connection, tables: Iterable[str]) -> None:
        """Raise SchemaError if rows refer to rows of these tables that are gone."""


class FactsReader(Protocol):
    """How the drift check reads a database."""

    def live_facts(self, connection: Connection) -> Facts:
        """Every fact of our tables, of what hangs on them, of the encoding and of the versions."""

    def expected_facts(self, connection: Connection) -> Facts:
        """The same of a store that was made from the models."""

    def can_be_told(self, connection: Connection) -> bool:
        """Whether this connection may find out what is expected."""


class Looker(Protocol):
    """How a database is looked at without a trace."""

    def look(
        self,
        url: URL,
        schema: str | None,
        see: Callable[[Connection], T],
        *,
        busy_timeout_ms: int,
        roll_back: bool,
    ) -> T:
        """See `broker.opening.look`."""


class Transactions(Protocol):
    """How a migration reaches a database."""

    def exists(self, url: URL, schema: str | None) -> bool:
        """Whether there is a database to look at."""

    def transaction(
        self, url: URL, schema: str | None, *, writes: bool, makes: bool, busy_timeout_ms: int
    ) -> AbstractContextManager[Connection]:
        """See `broker.schema.migrate.transaction`."""


def catalogue_of(connection: Connection) -> Catalogue:
    """The module for the backend of a connection; ConfigurationError for one that has none."""
    backend = connection.dialect.name
    if backend == POSTGRESQL:
        from broker.schema.postgresql import catalogue as on_postgresql

        return on_postgresql
    if backend == SQLITE:
        from broker.schema.sqlite import catalogue as on_sqlite

        return on_sqlite
    raise ConfigurationError(
        f"{backend} is not supported: use sqlite:///FILE or postgresql+psycopg://HOST/NAME"
    )


def facts_of(connection: Connection) -> FactsReader:
    """The module for the backend of a connection; ConfigurationError for one that has none."""
    catalogue_of(connection)
    if connection.dialect.name == POSTGRESQL:
        from broker.schema.postgresql import facts as on_postgresql

        return on_postgresql
    from broker.schema.sqlite import facts as on_sqlite

    return on_sqlite


def transactions_of(url: URL) -> Transactions:
    """The module for the backend of a URL of ours."""
    if is_postgresql(url):
        from broker.schema.postgresql import transactions as on_postgresql

        return on_postgresql
    from broker.schema.sqlite import transactions as on_sqlite

    return on_sqlite


def looker_of(url: URL) -> Looker:
    """The module for the backend of a URL of ours."""
    if is_postgresql(url):
        from broker.schema.postgresql import looking as on_postgresql

        return on_postgresql
    from broker.schema.sqlite import looking as on_sqlite

    return on_sqlite
