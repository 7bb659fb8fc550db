"""What hangs on the store's tables and could deceive it is refused before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork, configure_engine, schema
from broker.errors import DatabaseUnavailable, SchemaError
from tests.places import Place, backend_of, contents, execute, url_of
from tests.proof.files.schemas import damage, sql, texts
from tests.support import acquire

_TRIGGER = {
    "sqlite": "CREATE TRIGGER hostile AFTER INSERT ON outbox BEGIN DELETE FROM outbox; END",
    "postgresql": """
        CREATE FUNCTION hostile() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN DELETE FROM outbox; RETURN NULL; END $$;
        CREATE TRIGGER hostile AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION hostile()
    """,
}
_NOT_OURS = {
    "sqlite": "CREATE TRIGGER app AFTER INSERT ON orders BEGIN SELECT 1; END",
    "postgresql": """
        CREATE FUNCTION app() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
        CREATE TRIGGER app AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION app()
    """,
}


def test_a_trigger_on_our_tables_is_refused_and_every_row_kept(place: Place) -> None:
    Broker.open(url_of(place)).close()
    execute(place, _TRIGGER[backend_of(place)])
    before = contents(place)
    with pytest.raises(SchemaError, match="trigger hostile on outbox") as caught:
        Broker.open(url_of(place))
    assert caught.value.details == {"intruders": ["trigger hostile on outbox"]}
    assert contents(place) == before


def test_a_unit_of_work_refuses_it_too(place: Place) -> None:
    execute(place, _TRIGGER[backend_of(place)])
    engine = configure_engine(create_engine(url_of(place)))
    with Session(engine) as session, pytest.raises(SchemaError, match="trigger hostile on outbox"):
        acquire(UnitOfWork(session))
    engine.dispose()


def test_what_hangs_on_an_applications_own_tables_is_its_own(place: Place) -> None:
    execute(place, "CREATE TABLE orders (name TEXT COLLATE " + _COLLATION[backend_of(place)])
    execute(place, _NOT_OURS[backend_of(place)])
    with Broker.open(url_of(place)) as store:
        assert acquire(store).epoch == 1


_COLLATION = {"sqlite": "NOCASE UNIQUE ON CONFLICT IGNORE)", "postgresql": '"C")'}


_GUARD = "CREATE TRIGGER events_no_delete {} ON events BEGIN SELECT RAISE({}); END"
_MESSAGE = "'runtime broker events are append-only'"


def test_a_guard_may_be_written_in_another_way_but_not_do_another_thing(path: Path) -> None:
    schema.upgrade(url_of(path))
    execute(path, "DROP TRIGGER events_no_delete")
    execute(path, _GUARD.format("before\n delete", f"ABORT , /* said */ {_MESSAGE}"))
    Broker.open(url_of(path)).close()
    for others in [("AFTER INSERT", f"ABORT, {_MESSAGE}"), ("BEFORE DELETE", "IGNORE")]:
        execute(path, "DROP TRIGGER events_no_delete")
        execute(path, _GUARD.format(*others))
        with pytest.raises(SchemaError, match="trigger events_no_delete on events"):
            Broker.open(url_of(path))


@pytest.mark.parametrize(
    ("table", "old", "new", "named"),
    [
        (
            "outbox",
            "outbox_id TEXT PRIMARY KEY",
            "outbox_id TEXT PRIMARY KEY ON CONFLICT IGNORE",
            "outbox_id on conflict ignore in outbox",
        ),
        (
            "events",
            "UNIQUE (stream_id, revision)",
            "UNIQUE (stream_id, revision) ON CONFLICT REPLACE",
            "unique on conflict replace in events",
        ),
        (
            "streams",
            "stream_id TEXT PRIMARY KEY",
            "stream_id TEXT COLLATE NOCASE PRIMARY KEY",
            "collation nocase of streams.stream_id",
        ),
    ],
)
def test_a_table_that_would_take_other_rows_than_it_is_given_is_refused(
    path: Path, table: str, old: str, new: str, named: str
) -> None:
    schema.upgrade(url_of(path))
    damage(path, texts(table, old, new))
    before = path.read_bytes()
    with pytest.raises(SchemaError, match=named):
        Broker.open(url_of(path))
    assert path.read_bytes() == before


def test_a_schema_that_is_not_utf8_is_said(path: Path) -> None:
    schema.upgrade(url_of(path))
    name = "UPDATE sqlite_schema SET name = CAST(x'ff' AS TEXT) WHERE name = 'outbox_message_idx'"
    damage(path, sql(name))
    for migrate in (True, False):
        with pytest.raises(DatabaseUnavailable, match="not UTF-8"):
            Broker.open(url_of(path), migrate=migrate)
    with pytest.raises(DatabaseUnavailable, match="not UTF-8"):
        schema.upgrade(url_of(path))
