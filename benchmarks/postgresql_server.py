"""A PostgreSQL server to measure on: one that was named, or one of our own; and databases there.

Figures of a server that does not flush would be of something else, so such a server is refused.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, NullPool, create_engine, make_url, text

from benchmarks.optional import version_of

URL_VARIABLE = "BROKER_TEST_POSTGRES_URL"

#: As a server has them by default; the tests' own server has faster ones.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
}
_DURABLE = ("fsync", "synchronous_commit", "full_page_writes")

_numbers = itertools.count(1)


class NoServer(RuntimeError):
    """There is no server to measure on; the message is one line that says how to get one."""


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server, for a superuser; one of our own ends with the block.

    Raises NoServer.
    """
    if version_of("psycopg") is None:
        raise NoServer("psycopg: not installed; the extra `postgres` brings it")
    named = os.environ.get(URL_VARIABLE)
    if named:
        _require_durable(named)
        yield named
        return
    from tests.postgres_server import HOW_TO_GET_IT, find_binaries, running

    if find_binaries() is None:
        raise NoServer(HOW_TO_GET_IT)
    with running(**SETTINGS) as own:
        _require_durable(own.url)
        yield own.url


@contextmanager
def database(server_url: str) -> Iterator[str]:
    """The URL of an empty database that is dropped in the end, whoever is still connected."""
    name = f"broker_benchmark_{os.getpid()}_{next(_numbers)}"
    with _administration(server_url) as engine:
        _run(engine, f"CREATE DATABASE {name} ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0")
        try:
            yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
        finally:
            _run(engine, f"DROP DATABASE {name} WITH (FORCE)")


def checkpoint(server_url: str) -> None:
    """Write out what earlier scenarios have left, so that it is not paid for by the next."""
    with _administration(server_url) as engine:
        _run(engine, "CHECKPOINT")


def version(server_url: str) -> str:
    """The version of the server."""
    with _administration(server_url) as engine:
        return _show(engine, "server_version")


@contextmanager
def _administration(server_url: str) -> Iterator[Engine]:
    engine = create_engine(make_url(server_url), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    try:
        yield engine
    finally:
        engine.dispose()


def _require_durable(server_url: str) -> None:
    with _administration(server_url) as engine:
        off = [name for name in _DURABLE if _show(engine, name) == "off"]
    if off:
        raise NoServer(
            f"the server of {URL_VARIABLE} has {', '.join(off)} off: what would be measured is not"
            " what others have"
        )


def _run(engine: Engine, statement: str) -> None:
    with engine.connect() as connection:
        connection.execute(text(statement))


def _show(engine: Engine, name: str) -> str:
    with engine.connect() as connection:
        return str(connection.scalar(text(f"SHOW {name}")))
