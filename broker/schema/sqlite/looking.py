"""Looking at a database file, whose every byte and whose log stay as they are."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Connection, NullPool
from sqlalchemy.exc import SQLAlchemyError

from broker.errors import DatabaseUnavailable
from broker.schema.sqlite.transactions import exists, not_utf8
from broker.sqlite.database_file import file_of
from broker.sqlite.engine import make_engine, translate

T = TypeVar("T")


def look(
    url: URL,
    schema: str | None,
    see: Callable[[Connection], T],
    *,
    busy_timeout_ms: int,
    roll_back: bool,
) -> T:
    """What `see` makes of a database that exists.

    If a process died in the middle of a transaction that was not logged ahead, nobody can read the
    file before its journal is rolled back: done with `roll_back`, else DatabaseUnavailable.
    """
    if not exists(url, schema):
        raise DatabaseUnavailable(f"there is no database at {file_of(url)}")
    try:
        return _see(_without_a_trace(url), see, busy_timeout_ms)
    except SQLAlchemyError as error:
        if not _needs_rollback(error):
            raise translate(error) from error
        if not roll_back:
            raise DatabaseUnavailable(
                "a process died in the middle of a transaction, and its journal has to be rolled"
                " back first: let any client write to the database, or run broker upgrade"
            ) from error
    try:
        return _see(url, see, busy_timeout_ms)
    except SQLAlchemyError as error:
        raise translate(error) from error


def _see(url: URL, see: Callable[[Connection], T], busy_timeout_ms: int) -> T:
    engine = make_engine(url, busy_timeout_ms=busy_timeout_ms, wal=False, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            return see(connection)
    except UnicodeDecodeError as error:
        raise not_utf8() from error
    finally:
        engine.dispose()


def _without_a_trace(url: URL) -> URL:
    """The URL to look at a database with.

    Read-only, if a log or journal lies beside the file: whoever closes a log as the last one writes
    it into the database. Otherwise not, for a reader that may not write leaves an empty log behind.
    """
    path = file_of(url).absolute()
    in_use = any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal"))
    mode = "ro" if in_use else "rw"
    if (url.database or "").startswith("file:") and "uri" in url.query:
        # What else the URI says, such as its VFS, holds for the look as well.
        return url if "mode" in url.query and not in_use else url.update_query_dict({"mode": mode})
    return URL.create("sqlite", database=path.as_uri(), query={"uri": "true", "mode": mode})


def _needs_rollback(error: SQLAlchemyError) -> bool:
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_READONLY_ROLLBACK
