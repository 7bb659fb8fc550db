"""An engine of the application's, made by the store or configured by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from broker import Broker, configure_engine
from broker.sqlite.engine import make_engine
from tests.support import Application, url_of

HOOKED: dict[str, Callable[[str], Engine]] = {
    "ours": make_engine,
    "configured": lambda url: configure_engine(create_engine(url)),
}


@pytest.fixture(params=HOOKED)
def hooked(request: pytest.FixtureRequest, store: Broker, path: Path) -> Iterator[Engine]:
    """An engine with our hooks, on a database with the store's tables and the application's."""
    engine = HOOKED[request.param](url_of(path))
    Application.metadata.create_all(engine)
    yield engine
    engine.dispose()
