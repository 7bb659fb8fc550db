"""Fixtures: a real database file, a clock that the test moves, a store on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import Broker
from tests.support import ManualClock, open_store


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
