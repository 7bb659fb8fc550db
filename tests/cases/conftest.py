"""An engine of the application's, made by the store or configured by it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine

from broker import Broker, configure_engine
from broker.postgresql import engine as postgresql_engine
from broker.sqlite import engine as sqlite_engine
from tests.places import Place, PostgresPlace, url_of
from tests.support import Application

HOOKED = ("ours", "configured")


def make_hooked(kind: str, place: Place) -> Engine:
    """An engine with our hooks."""
    if kind == "configured":
        return configure_engine(create_engine(url_of(place)))
    if isinstance(place, PostgresPlace):
        return postgresql_engine.make_engine(url_of(place))
    return sqlite_engine.make_engine(url_of(place))


@pytest.fixture(params=HOOKED)
def hooked(request: pytest.FixtureRequest, store: Broker, place: Place) -> Iterator[Engine]:
    """An engine with our hooks, on a database with the store's tables and the application's."""
    engine = make_hooked(request.param, place)
    Application.metadata.create_all(engine)
    yield engine
    engine.dispose()
