"""The models as an application meets them: queried, joined, related; and their DDL on each backend."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, create_mock_engine, func, insert, inspect, select
from sqlalchemy.orm import Session, aliased, joinedload, selectinload

from broker import models, schema
from broker.models import (
    ActorLease,
    Base,
    Event,
    InboxMessage,
    MetadataEntry,
    MutationReceipt,
    OutboxMessage,
    Projection,
    Stream,
)
from broker.sqlite.engine import IMMEDIATE, make_engine

TABLES = [
    "metadata",
    "actor_leases",
    "streams",
    "inbox",
    "mutation_receipts",
    "events",
    "outbox",
    "projections",
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    url = f"sqlite:///{tmp_path / 'models.db'}"
    schema.upgrade(url)
    engine = make_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine.execution_options(**IMMEDIATE)) as session:
        session.add_all(journal())
        session.commit()
        yield session


def journal() -> list[Base]:
    """Two streams, two commits, three events, two outbox messages, one projection."""
    alpha, beta = (
        Stream(stream_id=name, revision=n, created_at=1, updated_at=1, workspace_id="w")
        for name, n in (("alpha", 2), ("beta", 1))
    )
    first, second = (
        InboxMessage(
            message_id=f"m{n}",
            request_hash="h",
            stream_id="alpha",
            applied_revision=n,
            result_json="{}",
            applied_at=1,
        )
        for n in (1, 2)
    )
    events = [
        event(alpha, 1, first),
        event(beta, 1, first),
        event(alpha, 2, second),
    ]
    outbox = [
        outbox_message("o1", first, events[0]),
        outbox_message("o2", second, None),
    ]
    projection = Projection(
        projection_id="p", stream=alpha, revision=2, value_json="1", updated_at=1
    )
    return [alpha, beta, first, second, *events, *outbox, projection]


def event(stream: Stream, revision: int, message: InboxMessage) -> Event:
    return Event(
        event_id=f"{stream.stream_id}-{revision}",
        stream=stream,
        message=message,
        revision=revision,
        event_type="t",
        payload_json="{}",
        producer_epoch=1,
        occurred_at=1,
    )


def outbox_message(outbox_id: str, message: InboxMessage, event: Event | None) -> OutboxMessage:
    return OutboxMessage(
        outbox_id=outbox_id,
        message=message,
        event=event,
        destination="d",
        payload_json="{}",
        created_at=1,
        available_at=1,
    )


def test_the_page_holds_the_eight_tables_and_no_other() -> None:
    assert list(Base.metadata.tables) == TABLES


def test_inserted_events_know_their_cursor(session: Session) -> None:
    found = session.execute(select(Event.event_id, Event.cursor)).all()
    rowids = session.connection().exec_driver_sql("SELECT event_id, rowid FROM events").all()

    assert sorted(map(tuple, found)) == sorted(map(tuple, rowids))
    assert all(event.cursor > 0 for event in session.scalars(select(Event)))


def test_the_cursor_orders_and_filters_the_journal(session: Session) -> None:
    cursors = session.scalars(select(Event.cursor).order_by(Event.cursor)).all()
    later = session.scalars(select(Event).where(Event.cursor > cursors[0])).all()

    assert len(later) == 2
    assert {event.cursor for event in later} == set(cursors[1:])


def test_an_alias_has_a_cursor_of_its_own(session: Session) -> None:
    earlier, later = aliased(Event), aliased(Event)

    pairs = session.execute(
        select(earlier, later)
        .join(later, earlier.stream_id == later.stream_id)
        .where(earlier.cursor < later.cursor)
    ).all()

    assert [(a.event_id, b.event_id) for a, b in pairs] == [("alpha-1", "alpha-2")]


def test_core_inserts_return_the_cursor(session: Session) -> None:
    values = {
        "event_id": "core",
        "message_id": "m1",
        "stream_id": "beta",
        "revision": 2,
        "event_type": "t",
        "payload_json": "{}",
        "producer_epoch": 1,
        "occurred_at": 1,
    }

    (made,) = session.scalars(insert(Event).returning(Event), [values]).all()

    assert made.cursor == session.scalar(select(func.max(Event.cursor)))


def test_relationships_lead_from_stream_to_outbox_and_back(session: Session) -> None:
    alpha = session.get_one(Stream, "alpha")

    assert [event.event_id for event in alpha.events] == ["alpha-1", "alpha-2"]
    assert [message.outbox_id for message in alpha.events[0].outbox] == ["o1"]
    assert [projection.projection_id for projection in alpha.projections] == ["p"]
    origin = alpha.events[0].outbox[0].event
    assert origin is not None
    assert origin.stream is alpha


def test_relationships_lead_from_a_message_to_what_it_committed(session: Session) -> None:
    message = session.get_one(InboxMessage, "m1")

    assert [event.event_id for event in message.events] == ["alpha-1", "beta-1"]
    assert [sent.outbox_id for sent in message.outbox] == ["o1"]
    assert message.events[0].message is message


def test_entities_join_along_their_relationships(session: Session) -> None:
    query = (
        select(Stream.stream_id, OutboxMessage.outbox_id)
        .join(Stream.events)
        .join(Event.outbox)
        .where(Stream.workspace_id == "w")
    )

    assert [tuple(row) for row in session.execute(query)] == [("alpha", "o1")]


@pytest.mark.parametrize("load", [selectinload, joinedload])
def test_relationships_can_be_loaded_eagerly(session: Session, load: Any) -> None:
    session.expunge_all()
    query = select(Stream).options(load(Stream.events).options(load(Event.outbox)))
    streams = session.scalars(query.order_by(Stream.stream_id)).unique().all()
    session.close()

    loaded = {s.stream_id: [(e.cursor > 0, len(e.outbox)) for e in s.events] for s in streams}
    assert loaded == {"alpha": [(True, 1), (True, 0)], "beta": [(True, 0)]}


def test_the_tables_without_relationships_are_entities_too(session: Session) -> None:
    session.add(
        ActorLease(
            actor_id="a",
            stream_id="alpha",
            holder_id="h",
            epoch=1,
            nonce="n",
            acquired_at=1,
            heartbeat_at=1,
            expires_at=2,
        )
    )
    session.add(
        MutationReceipt(
            request_id="r", method="m", params_hash="h", response_json="null", created_at=1
        )
    )
    session.commit()

    lease = session.scalar(
        select(ActorLease).join(Stream, Stream.stream_id == ActorLease.stream_id)
    )
    assert lease is not None
    assert lease.epoch == 1
    assert session.get_one(MetadataEntry, "schema_version").value == "3"
    assert session.get_one(MutationReceipt, "r").method == "m"


def test_the_default_of_attempts_is_fetched(session: Session) -> None:
    assert session.get_one(OutboxMessage, "o1").attempts == 0


def test_the_system_column_is_neither_created_nor_seen_by_reflection(engine: Engine) -> None:
    columns = [column["name"] for column in inspect(engine).get_columns("projections")]
    with engine.connect() as connection:
        listed = connection.exec_driver_sql("SELECT name FROM pragma_table_info('events')")
        names = [name for (name,) in listed]

    assert "value_json" in columns
    assert "rowid" not in names


# --- Indexes ----------------------------------------------------------------------------------


def plan(engine: Engine, query: str, *parameters: object) -> str:
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", parameters).all()
    return "\n".join(row[3] for row in rows)


def test_the_read_model_takes_its_index_with_a_range_of_cursors_and_no_sort(
    engine: Engine,
) -> None:
    query = (
        f"SELECT rowid FROM events WHERE {models.READ_MODEL_PREDICATE}"
        f" AND {models.WORKSPACE_OF_PAYLOAD} = ? AND {models.EVENT_TYPE_OF_PAYLOAD} = ?"
        " AND rowid > ? ORDER BY rowid LIMIT ?"
    )

    found = plan(engine, query, "w", "t", 0, 10)

    assert found == (
        "SEARCH events USING INDEX events_read_model_idx (<expr>=? AND <expr>=? AND rowid>?)"
    )


def test_pending_outbox_can_be_read_in_order_without_a_sort(engine: Engine) -> None:
    query = (
        "SELECT outbox_id FROM outbox INDEXED BY outbox_undelivered_idx"
        " WHERE delivered_at IS NULL AND available_at <= ? ORDER BY created_at, outbox_id LIMIT ?"
    )

    assert plan(engine, query, 1, 1) == "SCAN outbox USING INDEX outbox_undelivered_idx"


@pytest.mark.parametrize(
    ("table", "index"), [("events", "events_message_idx"), ("outbox", "outbox_message_idx")]
)
def test_rows_of_a_message_are_found_by_index(engine: Engine, table: str, index: str) -> None:
    found = plan(engine, f"SELECT * FROM {table} WHERE message_id = ?", "m")

    assert found == f"SEARCH {table} USING INDEX {index} (message_id=?)"


def test_text_that_is_not_json_is_neither_refused_nor_in_the_way(session: Session) -> None:
    bad = event(session.get_one(Stream, "beta"), 2, session.get_one(InboxMessage, "m2"))
    bad.event_type, bad.payload_json = "domain.event", '{"actor": {"workspaceId": "w"}, '
    good = event(session.get_one(Stream, "beta"), 3, session.get_one(InboxMessage, "m2"))
    good.event_type = "domain.event"
    good.payload_json = '{"actor": {"workspaceId": "w"}, "eventType": "t"}'
    session.add_all([bad, good])
    session.commit()

    found = session.connection().exec_driver_sql(
        f"SELECT event_id FROM events WHERE {models.READ_MODEL_PREDICATE}"
        f" AND {models.WORKSPACE_OF_PAYLOAD} = 'w' AND {models.EVENT_TYPE_OF_PAYLOAD} = 't'"
    )
    assert [row[0] for row in found] == ["beta-3"]


# --- DDL --------------------------------------------------------------------------------------


def postgresql_ddl() -> list[str]:
    statements: list[str] = []

    def collect(statement: Any, *_: Any, **__: Any) -> None:
        statements.append(" ".join(str(statement.compile(dialect=mock.dialect)).split()))

    mock = create_mock_engine("postgresql+psycopg://", collect)
    Base.metadata.create_all(mock, checkfirst=False)
    return statements


def test_postgresql_gets_wide_integers_byte_order_and_deferred_keys() -> None:
    events = next(s for s in postgresql_ddl() if s.startswith("CREATE TABLE events"))

    assert 'event_id TEXT COLLATE "C" NOT NULL' in events
    assert "revision BIGINT NOT NULL" in events
    assert "REFERENCES inbox (message_id) DEFERRABLE INITIALLY DEFERRED" in events
    assert "STRICT" not in events
    assert "rowid" not in events


def test_postgresql_gets_a_real_cursor_column() -> None:
    statements = postgresql_ddl()

    assert (
        "ALTER TABLE events ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY"
        " (MAXVALUE 9007199254740991)"
    ) in statements
    assert "CREATE UNIQUE INDEX events_rowid_uq ON events (rowid)" in statements


def test_postgresql_gets_the_guards_as_functions_and_triggers() -> None:
    triggers = [s for s in postgresql_ddl() if s.startswith("CREATE TRIGGER")]
    functions = [s for s in postgresql_ddl() if "RETURNS trigger" in s]

    assert len(triggers) == len(functions) == 7
    assert (
        "CREATE TRIGGER streams_workspace_immutable BEFORE UPDATE OF workspace_id ON streams"
        " FOR EACH ROW WHEN (OLD.workspace_id IS NOT NULL AND OLD.workspace_id IS DISTINCT FROM"
        " NEW.workspace_id) EXECUTE FUNCTION streams_workspace_immutable()"
    ) in triggers
    assert (
        "CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events FOR EACH STATEMENT"
        " EXECUTE FUNCTION events_no_truncate()"
    ) in triggers


def test_postgresql_gets_no_index_that_only_sqlite_understands() -> None:
    statements = postgresql_ddl()

    assert not [s for s in statements if "json_valid" in s]
    assert (
        "CREATE INDEX outbox_undelivered_idx ON outbox (created_at, outbox_id, available_at)"
        " WHERE delivered_at IS NULL"
    ) in statements


def test_the_ownership_trigger_has_the_text_that_the_other_program_looks_for(
    tmp_path: Path,
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'created.db'}")
    Base.metadata.create_all(engine)
    engine.dispose()

    with closing(sqlite3.connect(tmp_path / "created.db")) as connection:
        (text,) = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE name = 'streams_workspace_immutable'"
        ).fetchone()
    assert text == (
        "CREATE TRIGGER streams_workspace_immutable BEFORE UPDATE OF workspace_id ON streams"
        " WHEN OLD.workspace_id IS NOT NULL AND OLD.workspace_id IS NOT NEW.workspace_id"
        " BEGIN SELECT RAISE(ABORT, 'runtime broker stream workspace ownership is immutable'); END"
    )
