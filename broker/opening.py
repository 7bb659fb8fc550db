"""Opening a database: looked at before anything is decided about it, then migrated or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Connection, NullPool, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from broker import schema
from broker.engine import file_of, make_engine, require_file, translate
from broker.errors import ConfigurationError, DatabaseUnavailable, SchemaDrift

T = TypeVar("T")


def file_url(url: str | URL) -> URL:
    """The URL of a database file for the store's own driver; raises ConfigurationError."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        # Not shown, for there may be a password in it.
        raise ConfigurationError("this is not a database URL: write sqlite:///FILE") from error
    require_file(parsed)
    return parsed.set(drivername="sqlite")  # an application may name an async driver


def bring_up_to_date(url: URL, *, busy_timeout_ms: int, shared: bool) -> None:
    """Make the database and its folder if they are missing, and migrate it if it is not at head.

    Raises SchemaError for a database that must be left alone, and leaves it as it was.
    """
    path = file_of(url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(f"the folder of {path} cannot be made: {error}") from error

    def is_at_head(connection: Connection) -> bool:
        return schema.state(connection, shared=shared).at_head

    if not _look(url, busy_timeout_ms, is_at_head):
        schema.upgrade(
            url, shared=shared, busy_timeout_ms=max(busy_timeout_ms, schema.LOCK_TIMEOUT_MS)
        )


def require_current(url: URL, *, busy_timeout_ms: int) -> None:
    """Raise SchemaError unless the database is at head and has not drifted; makes nothing."""
    path = file_of(url)
    if not path.is_file():
        raise DatabaseUnavailable(f"there is no database {path}")

    def facts_of(connection: Connection) -> list[str]:
        schema.verify(connection)
        return schema.drift(connection)

    facts = _look(url, busy_timeout_ms, facts_of)
    if facts:
        raise SchemaDrift(
            f"the schema differs from the models in {len(facts)} facts, first: {facts[0]}",
            facts=facts,
        )


def _look(url: URL, busy_timeout_ms: int, look: Callable[[Connection], T]) -> T:
    """Look at a database and change nothing, its journal mode included."""
    engine = make_engine(url, busy_timeout_ms=busy_timeout_ms, wal=False, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            return look(connection)
    except SQLAlchemyError as error:
        raise translate(error) from error
    finally:
        engine.dispose()
