"""Which file a URL means, and whether the store can be in it."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from pathlib import Path
from urllib.parse import unquote_to_bytes

from sqlalchemy import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError

from broker.errors import ConfigurationError, DatabaseUnavailable

OLDEST_SQLITE = (3, 37, 0)  # the first with STRICT tables

_SURROGATES = re.compile("[\ud800-\udfff]")
_OF_THIS_MACHINE = re.compile("^//(localhost)?/")
_OF_ANOTHER_MACHINE = re.compile("file://(?!localhost/|/)")
_IN_MEMORY = "an in-memory database cannot be shared between connections: use sqlite:///FILE"


def file_url(given: str | URL) -> URL:
    """The URL of a database file for the store's own driver.

    Raises ConfigurationError for what is none; never with the URL itself, for there may be a
    password in it.
    """
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise ConfigurationError("this is not a database URL: write sqlite:///FILE") from None
    require_file(url)
    url = url.set(drivername="sqlite")  # an application may name an async driver
    try:
        url.get_dialect()().create_connect_args(url)  # reads the URL's options, and opens nothing
    except (ValueError, TypeError, ArgumentError) as error:
        raise ConfigurationError(
            f"this URL has an option that SQLite cannot use: {error}"
        ) from error
    return url


def file_exists(url: URL) -> bool:
    """Whether the file of a database is there.

    Raises DatabaseUnavailable if one cannot tell, or if it, its log or its journal is anything but a
    file: SQLite would wait for the other end of a pipe for ever, and write to a device.
    """
    path = file_of(url)
    try:
        for suffix in ("-journal", "-wal", "-shm"):
            _is_file(Path(f"{path}{suffix}"))
        return _is_file(path)
    except OSError as error:  # a folder on the way to it that this user may not enter
        raise DatabaseUnavailable(f"{path} is out of reach: {error}") from error


def _is_file(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not stat.S_ISREG(mode):
        raise DatabaseUnavailable(f"{path} is not a file")
    return True


def require_file(url: URL) -> None:
    """Raise ConfigurationError unless `url` names a file of a supported SQLite."""
    require_sqlite(url.get_backend_name())
    if url.host or url.username or url.password:
        raise ConfigurationError(
            "an SQLite URL has neither host, user nor password: sqlite:///FILE"
        )
    name = url.database or ""
    if "\0" in name or _SURROGATES.search(name):
        raise ConfigurationError("the name of a database file holds neither NUL nor surrogates")
    asks_for_memory = "memory" in url.query.get("mode", "")
    if name.startswith("file:"):
        asks_for_memory |= ":memory:" in name or "mode=memory" in name
        if "%00" in name or _OF_ANOTHER_MACHINE.match(name):
            raise ConfigurationError(
                "a file: URI names a file of this machine (file:PATH or file:///PATH), without %00"
            )
    if name in {"", ":memory:"} or asks_for_memory:
        raise ConfigurationError(_IN_MEMORY)


def file_of(url: URL) -> Path:
    """Where the file of a URL is that `require_file` accepts."""
    name = url.database or ""
    return Path(_path_in(name) if name.startswith("file:") and "uri" in url.query else name)


def _path_in(uri: str) -> str:
    """The path in a URI of SQLite's, whatever bytes are written in it."""
    path = re.split("[?#]", uri.removeprefix("file:"), maxsplit=1)[0]
    return os.fsdecode(unquote_to_bytes(_OF_THIS_MACHINE.sub("/", path)))


def require_file_connection(connection: Connection) -> None:
    """As `require_file`, for a connection whose URL need not tell where it leads."""
    require_sqlite(connection.dialect.name)
    attached = connection.exec_driver_sql("PRAGMA database_list").fetchall()
    if not any(name == "main" and file for _, name, file in attached):
        raise ConfigurationError(_IN_MEMORY)


def require_sqlite(backend: str) -> None:
    """Raise ConfigurationError unless the backend is an SQLite that is new enough."""
    if backend != "sqlite":
        raise ConfigurationError(
            f"{backend} is not supported by this version: use sqlite:///FILE or"
            " postgresql+psycopg://HOST/NAME"
        )
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise ConfigurationError(
            f"SQLite {sqlite3.sqlite_version} has no STRICT tables: 3.37 or newer is needed"
        )
