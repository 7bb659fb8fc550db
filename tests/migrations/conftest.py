"""Where the migration tests of PostgreSQL are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.places import PlaceOn, PostgresPlace


@pytest.fixture
def empty_server(place_on: PlaceOn) -> Iterator[PostgresPlace]:
    """A database on a server, with nothing in it."""
    with place_on("empty postgresql") as made:
        assert isinstance(made, PostgresPlace)
        yield made


@pytest.fixture
def server(place_on: PlaceOn) -> Iterator[PostgresPlace]:
    """A database on a server, with the store's tables at the newest revision."""
    with place_on("postgresql") as made:
        assert isinstance(made, PostgresPlace)
        yield made
