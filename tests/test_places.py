"""Databases for the tests: each its own, at head, and none left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import make_url

from broker import schema
from tests.places import (
    Databases,
    Place,
    PostgresPlace,
    backend_of,
    client,
    contents,
    execute,
    rows,
    url_of,
)
from tests.support import ManualClock, acquire, is_write_locked, open_store


@pytest.fixture
def databases(postgres_url: str) -> Iterator[Databases]:
    made = Databases(postgres_url)
    yield made
    made.close()


def name_of(place: PostgresPlace) -> str:
    return str(make_url(place.url).database)


def names_on(url: str) -> set[str]:
    return {name for (name,) in rows(PostgresPlace(url), "SELECT datname FROM pg_database")}


def test_a_database_is_at_head_and_another_is_not_the_same(databases: Databases) -> None:
    with databases.one() as one, databases.one() as other:
        assert schema.current(one.url) == schema.current(other.url) is not None
        execute(one, "INSERT INTO metadata VALUES ('k', 'v')")
        execute(one, "CREATE TABLE mine (x INTEGER)")
        assert rows(other, "SELECT * FROM metadata WHERE key = 'k'") == []
        assert "mine" not in contents(other)
    with databases.one() as later:
        assert "mine" not in contents(later)


def test_an_empty_one_has_nothing_in_it(databases: Databases) -> None:
    with databases.one_empty() as empty:
        assert contents(empty) == {}


def test_nothing_is_left_behind_not_even_for_a_client_that_stays(postgres_url: str) -> None:
    databases = Databases(postgres_url)
    with ExitStack() as stack:
        with databases.one() as one:
            stack.enter_context(client(one)).execute("SELECT 1")
            assert name_of(one) in names_on(postgres_url)
        databases.close()
        assert name_of(one) not in names_on(postgres_url)


def test_a_place_is_on_the_backend_that_was_asked_for(backend: str, place: Place) -> None:
    assert backend_of(place) == backend
    assert url_of(place).startswith(backend)


def test_other_clients_read_and_write_with_one_mark_for_parameters(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock) as store:
        acquire(store)
    execute(place, "INSERT INTO metadata VALUES (?, ?)", "50% ?", "v")
    assert rows(place, "SELECT value FROM metadata WHERE key = ?", "50% ?") == [("v",)]
    assert rows(place, "SELECT value FROM metadata WHERE key LIKE '50%'") == [("v",)]
    assert len(contents(place)["actor_leases"]) == 1


def test_a_write_of_another_client_is_seen_while_it_lasts(place: Place, clock: ManualClock) -> None:
    open_store(place, clock).close()
    with client(place) as other:
        other.execute("BEGIN")
        other.execute("UPDATE metadata SET value = value")
        assert is_write_locked(place)
        other.execute("ROLLBACK")
        assert not is_write_locked(place)
