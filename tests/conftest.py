"""Fixtures: a real database file, a clock that the test moves, a store on both."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, Pool, create_engine, event

from broker import Broker, UnitOfWork
from tests.support import ENGINES, Application, ManualClock, UnitOn, open_store, url_of

# Tests commit thousands of times, and on a disk each waits for a flush, which no test can see.
IN_MEMORY = Path("/dev/shm")  # noqa: S108  # pytest makes folders of its own there


def _has_room_in_memory() -> bool:
    is_usable = IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK)
    return is_usable and shutil.disk_usage(IN_MEMORY).free > 2**30


if "TMPDIR" not in os.environ and _has_room_in_memory():
    os.environ["TMPDIR"] = str(IN_MEMORY)
    tempfile.tempdir = None  # to be looked up again


@pytest.fixture(autouse=True)
def _pooled_connections_are_closed() -> Iterator[None]:
    """Close what the engines of a test have left open, for Python 3.13 warns of it."""
    made: list[Any] = []

    def remember(connection: Any, _record: Any) -> None:
        made.append(connection)

    event.listen(Pool, "connect", remember)
    yield
    event.remove(Pool, "connect", remember)
    for connection in made:
        if isinstance(connection, sqlite3.Connection):  # an async driver's closes by itself
            connection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's database is, or will be."""
    return tmp_path / "broker.db"


@pytest.fixture
def clock() -> ManualClock:
    """Broker time, moved by the test: 1,000 ms to begin with."""
    return ManualClock()


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[Broker]:
    """An empty store."""
    with open_store(path, clock) as opened:
        yield opened


@pytest.fixture
def database(path: Path, clock: ManualClock) -> Path:
    """A database with the store's tables and the application's."""
    open_store(path, clock).close()
    engine = create_engine(url_of(path))
    Application.metadata.create_all(engine)
    engine.dispose()
    return path


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, database: Path) -> Iterator[Engine]:
    """The application's engine, of every kind."""
    made = ENGINES[request.param](url_of(database))
    yield made
    made.dispose()


@pytest.fixture
def configured(database: Path) -> Iterator[Engine]:
    """The application's engine, deferred."""
    made = ENGINES["configured"](url_of(database))
    yield made
    made.dispose()


@pytest.fixture
def unit_on(clock: ManualClock) -> UnitOn:
    """Makes units of work; all of them share the test's clock and options."""
    options = clock.options()
    logical = options.make_clock()
    return lambda session: UnitOfWork(session, options, clock=logical)
