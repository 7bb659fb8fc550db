"""Fixtures: a real database file, a clock that the test moves, a store on both."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Pool, event

from broker import Broker
from tests.support import ManualClock, open_store


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
