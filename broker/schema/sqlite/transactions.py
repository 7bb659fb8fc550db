"""How a migration reaches a database file, as `broker.schema.backends.Transactions` wants it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, Connection, NullPool
from sqlalchemy.exc import SQLAlchemyError

from broker.errors import ConfigurationError, DatabaseUnavailable
from broker.sqlite.database_file import file_exists, file_of
from broker.sqlite.engine import IMMEDIATE, make_engine, translate, translate_commit
from broker.sqlite.file_modes import make_folder


def exists(url: URL, schema: str | None) -> bool:
    """Whether the file is there."""
    refuse_schema(schema)
    return file_exists(url)


def not_utf8() -> DatabaseUnavailable:
    """For the driver's failure where SQLite's own message quotes such a name."""
    return DatabaseUnavailable("the schema of the database holds text that is not UTF-8")


def refuse_schema(schema: str | None) -> None:
    """Raise ConfigurationError if there is one."""
    if schema is not None:
        raise ConfigurationError(
            f"a file of SQLite has no schema {schema!r}, nor any other: leave it out"
        )


@contextmanager
def transaction(
    url: URL, schema: str | None, *, writes: bool, makes: bool, busy_timeout_ms: int
) -> Iterator[Connection]:
    """With `writes` it holds the write lock from the start; with `makes` the file is made.

    Foreign keys are off, as tables that others refer to are dropped and made again; see
    `check_references`. The journal mode is left alone: a file that is refused keeps every byte.
    """
    refuse_schema(schema)
    is_there = file_exists(url)
    if makes:
        _make_folder(file_of(url))
    elif not is_there:  # merely to connect would make an empty one
        raise DatabaseUnavailable(f"there is no database at {file_of(url)}")
    engine = make_engine(
        url,
        busy_timeout_ms=busy_timeout_ms,
        wal=False,
        foreign_keys=False,
        poolclass=NullPool,
    )
    try:
        with engine.connect().execution_options(**IMMEDIATE if writes else {}) as connection:
            begun = connection.begin()
            yield connection
            if begun.is_active:  # else the block has rolled back
                _commit(begun.commit)
    except (SQLAlchemyError, sqlite3.Error) as error:  # the latter from the engine's own BEGIN
        raise translate(error) from error
    except UnicodeDecodeError as error:
        raise not_utf8() from error
    finally:
        engine.dispose()


def _commit(commit: Callable[[], None]) -> None:
    try:
        commit()
    except SQLAlchemyError as error:
        raise translate_commit(error) from error


def _make_folder(path: Path) -> None:
    try:
        make_folder(path)
    except OSError as error:
        raise DatabaseUnavailable(f"the folder of {path} cannot be made: {error}") from error
