"""A schema's name that would be SQL, a placeholder or a format is a name."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from broker import Broker, Options, UnitOfWork, schema
from broker.errors import ConfigurationError
from broker.moving import move
from tests.cli.support import run
from tests.places import Place, PlaceOn, PostgresPlace, rows, url_of
from tests.support import acquire, commit_request

NAMES = [
    'a"; DROP SCHEMA public CASCADE; --',
    "'; -- %s %(x)s %% :id ? $1",
    "{schema}.events {table} {0} broker_schema.x",
    "Gr\u00f6\u00dfe \U0001d11e\t\n",
]


@pytest.mark.parametrize("name", NAMES)
def test_on_every_road_it_is_a_name(
    empty_place: PostgresPlace,
    capsys: pytest.CaptureFixture[str],
    place_on: PlaceOn,
    name: str,
) -> None:
    url, options = url_of(empty_place), Options(schema=name)
    with Broker.open(url, options=options) as store:
        lease = acquire(store)
        assert store.commit(commit_request(lease)).revision == 1
        assert [each.event_id for each in store.read_journal({})] == ["message-event"]
    engine = create_engine(url)
    with Session(engine) as session, session.begin():
        assert UnitOfWork(session, options).get_stream_revision({"streamId": "stream"}) == 1
    engine.dispose()
    assert schema.upgrade(url, schema=name) == []
    assert run(capsys, "check", "--url", url, "--schema", name)[0] == 0
    with place_on("empty postgresql") as target:
        assert move(url, url_of(target), schema=name).tables["events"].rows == 1
        assert _schemas(target) == {name, "public"}
    assert _schemas(empty_place) == {name, "public"}


def _schemas(place: Place) -> set[str]:
    query = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)'"
    return {found for (found,) in rows(place, query)}


def test_what_can_be_no_name_is_refused(empty_place: PostgresPlace) -> None:
    for name in ("", "pg_catalog", "pg_temp", "$user", "a\0b", "a" * 64, "\ud800"):
        with pytest.raises(ConfigurationError, match="a schema's name has"):
            schema.upgrade(url_of(empty_place), schema=name)
    assert _schemas(empty_place) == {"public"}
