"""Opening a database: looked at before anything is decided about it, then migrated or refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Connection, NullPool
from sqlalchemy.exc import SQLAlchemyError

from broker import schema
from broker.errors import DatabaseUnavailable, SchemaDrift
from broker.options import BUSY_TIMEOUT_MS
from broker.sqlite.database_file import file_exists, file_of
from broker.sqlite.engine import make_engine, translate

T = TypeVar("T")


def bring_up_to_date(url: URL, *, busy_timeout_ms: int, shared: bool) -> None:
    """Make the database and its folder if they are missing, and migrate it if it is not at head.

    Raises SchemaError for a database that must be left alone, and leaves it as it was.
    """
    found = find(url, shared=shared, busy_timeout_ms=busy_timeout_ms)
    if found is None or not found.at_head:
        schema.upgrade(
            url, shared=shared, busy_timeout_ms=max(busy_timeout_ms, schema.LOCK_TIMEOUT_MS)
        )


def require_current(url: URL, *, busy_timeout_ms: int) -> None:
    """Raise SchemaError unless the database is at head and has not drifted; makes nothing."""

    def facts_of(connection: Connection) -> list[str]:
        schema.verify(connection)
        return schema.drift(connection)

    facts = look(url, facts_of, busy_timeout_ms=busy_timeout_ms, roll_back=True)
    if facts:
        raise SchemaDrift(
            f"the schema differs from the models in {len(facts)} facts, first: {facts[0]}",
            facts=facts,
        )


def find(
    url: URL, *, shared: bool = False, busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> schema.State | None:
    """Where a database stands that is about to be opened or migrated; None if there is no file.

    Raises SchemaError for one that must be left alone, and leaves it as it was, but for a journal
    that has to be rolled back: see `look`.
    """
    if not file_exists(url):
        return None

    def state_of(connection: Connection) -> schema.State:
        return schema.state(connection, shared=shared)

    return look(url, state_of, busy_timeout_ms=busy_timeout_ms, roll_back=True)


def look(
    url: URL,
    see: Callable[[Connection], T],
    *,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    roll_back: bool = False,
) -> T:
    """What `see` makes of a database that exists, whose every byte and whose log stay as they are.

    If a process died in the middle of a transaction that was not logged ahead, nobody can read the
    file before its journal is rolled back: done with `roll_back`, else DatabaseUnavailable.

    Raises DatabaseUnavailable, DatabaseBusy, or whatever `see` raises.
    """
    if not file_exists(url):
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
