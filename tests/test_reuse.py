"""A database that a test has used is made as new, or is not used again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import make_url

from tests import places
from tests.places import Databases, PlaceOn, PostgresPlace, client, contents, execute, rows
from tests.reuse import Original
from tests.support import ManualClock, acquire, commit_request, open_store, outbox_message

# What a test may leave behind besides rows of the store's tables.
CHANGES = {
    "table": "CREATE TABLE mine (x INTEGER)",
    "column": "ALTER TABLE inbox ADD COLUMN mine TEXT",
    "index": "CREATE INDEX mine ON inbox (applied_at)",
    "no index": "DROP INDEX outbox_message_idx",
    "default": "ALTER TABLE outbox ALTER COLUMN attempts SET DEFAULT 1",
    "no key": "ALTER TABLE projections DROP CONSTRAINT projections_stream_id_fkey",
    "trigger off": "ALTER TABLE events DISABLE TRIGGER ALL",
    "function": "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "other schema": "CREATE SCHEMA mine",
    "view": "CREATE VIEW mine AS SELECT 1",
    "rule": "CREATE RULE mine AS ON INSERT TO metadata DO ALSO NOTHING",
    "row security": "ALTER TABLE inbox ENABLE ROW LEVEL SECURITY",
    "storage": "ALTER TABLE inbox SET (fillfactor = 50)",
    "sequence": "ALTER TABLE events ALTER COLUMN rowid SET INCREMENT BY 2",
    "statistics": "INSERT INTO metadata VALUES ('k', 'v'); ANALYZE metadata",
    "right": "REVOKE ALL ON SCHEMA public FROM public",
    "comment": "COMMENT ON TABLE inbox IS 'mine'",
    "type": "CREATE TYPE mine AS ENUM ('x')",
    "emptied": "TRUNCATE metadata",
}
MUCH = "INSERT INTO metadata SELECT 'k' || n, repeat(md5(n::text), 50) FROM generate_series(1, 5000) AS n"


@pytest.fixture
def databases(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Databases]:
    """Whose databases are used again at once."""
    monkeypatch.setattr(places, "USED_DATABASES", 0)
    made = Databases(postgres_url)
    yield made
    made.close()


def name_of(place: PostgresPlace) -> str:
    return str(make_url(place.url).database)


def test_what_a_store_wrote_is_gone_and_counters_begin_anew(
    databases: Databases, clock: ManualClock
) -> None:
    with databases.one() as one:
        new = contents(one)
        with open_store(one, clock) as store:
            request = commit_request(acquire(store), outbox=[outbox_message("outgoing")])
            first = store.commit(request)
        assert contents(one) != new
    with databases.one() as again:
        assert name_of(again) == name_of(one)
        assert contents(again) == new
        with open_store(again, ManualClock()) as store:
            request = commit_request(acquire(store), outbox=[outbox_message("outgoing")])
            assert store.commit(request) == first
        assert rows(again, "SELECT rowid FROM events") == [(1,)]


@pytest.mark.parametrize("change", CHANGES)
def test_one_that_was_changed_otherwise_is_not_as_new(place_on: PlaceOn, change: str) -> None:
    with place_on("postgresql") as place, client(place) as other:
        original = Original.of(other.connection)
        other.execute("BEGIN")
        other.execute(CHANGES[change])
        assert not original.restore(other.connection)
        other.execute("ROLLBACK")
        assert original.restore(other.connection)


@pytest.mark.parametrize("change", [CHANGES["table"], MUCH])
def test_one_that_is_not_as_new_is_not_used_again(databases: Databases, change: str) -> None:
    with databases.one() as one:
        execute(one, change)
    with databases.one() as other:
        assert name_of(other) != name_of(one)
    with databases.one() as again:
        assert name_of(again) == name_of(other)


def test_an_empty_one_is_used_again_if_it_is_still_empty(databases: Databases) -> None:
    with databases.one_empty() as one:
        execute(one, "CREATE TABLE mine (x INTEGER)")
        assert not one.is_at_head
    with databases.one_empty() as other:
        assert contents(other) == {}
    with databases.one_empty() as again:
        assert contents(again) == {}
    assert name_of(one) != name_of(other) == name_of(again)


def test_one_with_settings_of_its_own_is_not_used_again(databases: Databases) -> None:
    with databases.one() as one:
        execute(one, f"ALTER DATABASE {name_of(one)} SET lock_timeout = 1")
    with databases.one() as other:
        assert name_of(other) != name_of(one)


def test_a_session_that_stays_is_ended(databases: Databases) -> None:
    with databases.one() as one:
        left = client(one)
        session = left.__enter__()
        session.execute("BEGIN")
        session.execute("UPDATE metadata SET value = 'x'")
    with databases.one() as again, closing(session.connection):
        assert name_of(again) == name_of(one)
        assert rows(again, "SELECT key FROM metadata WHERE value = 'x'") == []
        with pytest.raises(psycopg.OperationalError, match="terminat"):
            session.execute("COMMIT")


def test_what_is_to_be_there_besides_is_there_again(databases: Databases) -> None:
    def add_one(url: str) -> None:
        execute(PostgresPlace(url), "CREATE TABLE mine (x INTEGER); INSERT INTO mine VALUES (7)")

    with databases.one(add_one) as one:
        execute(one, "UPDATE mine SET x = 8")
    with databases.one(add_one) as again:
        assert name_of(again) == name_of(one)
        assert rows(again, "SELECT x FROM mine") == [(7,)]
    with databases.one() as other:
        assert "mine" not in contents(other)
