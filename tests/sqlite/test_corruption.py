"""Rows that another client has spoilt: the error names the row, and all other rows stay readable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork, configure_engine
from broker.errors import CorruptRow, DatabaseError
from broker.sqlite.channel import SQLiteChannel
from broker.sqlite.corruption import as_ours
from broker.statements import Undecodable
from tests.places import raw, rows, url_of
from tests.support import (
    TTL_MS,
    ManualClock,
    acquire,
    commit_request,
    event,
    is_write_locked,
    outbox_message,
    runtime_event,
)

INVALID = "CAST(x'6162ff63' AS TEXT)"
DEEP = "[" * 100_000 + "]" * 100_000
LEASE_REQUEST = {"actorId": "actor", "streamId": "stream", "holderId": "holder", "ttlMs": TTL_MS}

Read = Callable[[Any], Any]


def fill(store: Broker) -> dict[str, Any]:
    """Rows in every table: streams `stream` (spoilt later) and `other`; the commit of `stream`."""
    lease = store.acquire_lease(LEASE_REQUEST, request_id="receipt")
    payload = runtime_event("stream", "workspace")
    request = commit_request(
        lease,
        events=[event("event", payload, eventType="domain.event", correlationId="c")],
        outbox=[outbox_message("outgoing", eventId="event")],
        projections=[{"projectionId": "projection", "value": {"n": 1}}],
    )
    store.commit(request)
    other = acquire(store, "other", "other")
    store.commit(
        commit_request(
            other,
            "other-message",
            events=[event("other-event", {"n": 2})],
            projections=[{"projectionId": "other-projection", "value": 2}],
        )
    )
    return request


def spoil(path: Path, table: str, column: str, row: str, value: str = INVALID) -> None:
    """Another client's statement, without the guards that would refuse it meanwhile."""
    key = {"events": "event_id", "outbox": "outbox_id", "projections": "projection_id"}
    key |= {"inbox": "message_id", "mutation_receipts": "request_id", "actor_leases": "actor_id"}
    key |= {"streams": "stream_id", "metadata": "key"}
    with raw(path) as connection:
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?", (table,)
        ).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(f"UPDATE {table} SET {column} = {value} WHERE {key[table]} = ?", (row,))
        for _, guard in triggers:
            connection.execute(guard)


def read_events(store: Any) -> Any:
    return store.read_events({"streamId": "stream"})


def get_lease(store: Any) -> Any:
    return store.get_lease({"actorId": "actor"})


def pending(store: Any) -> Any:
    return store.list_pending_outbox()


def projection(store: Any) -> Any:
    return store.read_projection({"projectionId": "projection"})


def repeat_acquire(store: Any) -> Any:
    return store.acquire_lease(LEASE_REQUEST, request_id="receipt")


def list_streams(store: Any) -> Any:
    return store.list_streams({"workspaceId": "workspace", "prefix": "s", "limit": 9})


def read_model(store: Any) -> Any:
    return store.read_model_events({"workspaceId": "workspace"})


COLUMNS: list[tuple[str, str, str, Read]] = [
    ("actor_leases", "holder_id", "actor", get_lease),
    ("actor_leases", "nonce", "actor", get_lease),
    ("events", "message_id", "event", read_events),
    ("events", "event_type", "event", read_events),
    ("events", "payload_json", "event", read_events),
    ("events", "correlation_id", "event", read_events),
    ("events", "causation_id", "event", read_events),
    ("events", "trace_id", "event", read_model),
    ("outbox", "message_id", "outgoing", pending),
    ("outbox", "destination", "outgoing", pending),
    ("outbox", "payload_json", "outgoing", pending),
    ("outbox", "event_id", "outgoing", pending),
    ("projections", "value_json", "projection", projection),
    ("projections", "stream_id", "projection", projection),
    ("mutation_receipts", "method", "receipt", repeat_acquire),
    ("mutation_receipts", "response_json", "receipt", repeat_acquire),
]


@pytest.mark.parametrize(("table", "column", "row", "read"), COLUMNS)
def test_text_that_is_not_utf8_is_named_by_table_row_and_column(
    store: Broker, path: Path, table: str, column: str, row: str, read: Read
) -> None:
    fill(store)
    spoil(path, table, column, row)
    with pytest.raises(CorruptRow) as caught:
        read(store)
    assert caught.value.details == {"table": table, "row": row, "column": column}


def test_a_commit_whose_recorded_result_is_not_utf8_is_named(store: Broker, path: Path) -> None:
    request = fill(store)
    spoil(path, "inbox", "result_json", "message")
    with pytest.raises(CorruptRow) as caught:
        store.commit(request)
    assert caught.value.details == {"table": "inbox", "row": "message", "column": "result_json"}


def test_a_key_that_is_not_utf8_is_shown_with_its_bytes_escaped(store: Broker, path: Path) -> None:
    fill(store)
    spoil(path, "outbox", "outbox_id", "outgoing")
    with pytest.raises(CorruptRow) as caught:
        pending(store)
    assert caught.value.details["row"] == r"ab\xffc"


def test_a_spoilt_row_in_the_way_of_a_write_is_named_and_nothing_is_stored(
    store: Broker, path: Path
) -> None:
    fill(store)
    spoil(path, "actor_leases", "nonce", "actor")
    before = rows(path, "SELECT * FROM metadata"), rows(path, "SELECT count(*) FROM events")
    with pytest.raises(CorruptRow) as caught:
        store.acquire_lease(LEASE_REQUEST)
    assert caught.value.details["table"] == "actor_leases"
    assert not is_write_locked(path)
    assert before == (
        rows(path, "SELECT * FROM metadata"),
        rows(path, "SELECT count(*) FROM events"),
    )


@pytest.mark.parametrize("value", [INVALID, "'{\"a\":'", f"'{DEEP}'"], ids=["utf8", "json", "deep"])
def test_other_rows_are_read_and_written_as_ever(store: Broker, path: Path, value: str) -> None:
    fill(store)
    for table, column, row in [
        ("events", "payload_json", "event"),
        ("outbox", "payload_json", "outgoing"),
        ("projections", "value_json", "projection"),
    ]:
        spoil(path, table, column, row, value)

    assert [each.payload for each in store.read_events({"streamId": "other"})] == [{"n": 2}]
    found = store.read_projection({"projectionId": "other-projection"})
    assert found is not None
    assert found.value == 2
    third = acquire(store, "third", "third")
    assert store.commit(commit_request(third, "third")).revision == 1


def test_a_read_that_failed_pins_nothing(store: Broker, path: Path) -> None:
    fill(store)
    spoil(path, "events", "payload_json", "event")
    for _ in range(20):  # more than the pool has connections
        with pytest.raises(CorruptRow):
            read_events(store)
    with raw(path) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)


MALFORMED = {
    "unclosed": "'{\"a\":'",
    "not a number": "'{\"a\":NaN}'",
    "twice": "'not json'",
    "empty": "''",
    "deep": f"'{DEEP}'",
}


@pytest.mark.parametrize("value", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize(
    ("table", "column", "row", "read"),
    [
        ("events", "payload_json", "event", read_events),
        ("outbox", "payload_json", "outgoing", pending),
        ("projections", "value_json", "projection", projection),
        ("mutation_receipts", "response_json", "receipt", repeat_acquire),
    ],
)
def test_stored_json_that_cannot_be_decoded_is_named(
    store: Broker, path: Path, table: str, column: str, row: str, read: Read, value: str
) -> None:
    fill(store)
    spoil(path, table, column, row, value)
    with pytest.raises(CorruptRow) as caught:
        read(store)
    assert caught.value.details == {"table": table, "row": row, "column": column}
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    "value", [*MALFORMED.values(), "'[]'", "'{}'", "'null'", "'{\"messageId\":1}'", "'{\"x\":1}'"]
)
def test_a_recorded_result_that_is_none_is_named(store: Broker, path: Path, value: str) -> None:
    request = fill(store)
    spoil(path, "inbox", "result_json", "message", value)
    with pytest.raises(CorruptRow) as caught:
        store.commit(request)
    assert caught.value.details == {"table": "inbox", "row": "message", "column": "result_json"}


@pytest.mark.parametrize("value", ["'[]'", "'1'", "'{}'", "'{\"epoch\":1}'", "'{\"x\":1}'"])
def test_a_recorded_response_that_is_no_lease_is_named(
    store: Broker, path: Path, value: str
) -> None:
    fill(store)
    spoil(path, "mutation_receipts", "response_json", "receipt", value)
    with pytest.raises(CorruptRow) as caught:
        repeat_acquire(store)
    assert caught.value.details["table"] == "mutation_receipts"


def test_a_unit_of_work_names_the_row_too_and_its_transaction_goes_on(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    fill(store)
    spoil(path, "projections", "value_json", "projection")
    engine = configure_engine(create_engine(url_of(path)))
    with Session(engine) as session:
        unit = UnitOfWork(session, clock.options())
        with pytest.raises(CorruptRow) as caught:
            projection(unit)
        lease = acquire(unit, "third", "third")
        unit.commit(commit_request(lease, "third"))
        session.commit()
    assert caught.value.details["table"] == "projections"
    assert rows(path, "SELECT revision FROM streams WHERE stream_id = 'third'") == [(1,)]


def test_where_all_of_the_stores_text_is_utf8_the_store_is_not_blamed(
    store: Broker, path: Path
) -> None:
    fill(store)
    with raw(path) as connection:
        connection.execute(f"CREATE TABLE application AS SELECT {INVALID} AS x")
        found = as_ours(Undecodable(), SQLiteChannel(connection))
    assert type(found) is DatabaseError
    assert "not the store's own" in str(found)


# ------------------------------------------------------------------------- after such an error


def insert(path: Path, key: str) -> None:
    """Another client's commit."""
    with raw(path) as connection:
        connection.execute("INSERT INTO metadata VALUES (?, '1')", (key,))


def checkpoint(path: Path) -> tuple[int, int, int]:
    """Another client empties the log; (0, 0, 0) if nobody is in its way."""
    with raw(path) as connection:
        answer: tuple[int, int, int] = connection.execute(
            "PRAGMA wal_checkpoint(TRUNCATE)"
        ).fetchone()
        return answer


def application_engine(path: Path, configure: bool) -> Engine:
    """An engine of one connection, which every session of it has to share."""
    engine = create_engine(url_of(path), pool_size=1, max_overflow=0)
    return configure_engine(engine) if configure else engine


@pytest.mark.parametrize("configure", [True, False])
@pytest.mark.parametrize("ending", ["rollback", "close"])
def test_a_sessions_connection_keeps_no_snapshot_of_a_read_that_failed(
    store: Broker, path: Path, clock: ManualClock, configure: bool, ending: str
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, events=[event(f"e{n}", {"n": n}) for n in range(200)]))
    spoil(path, "events", "payload_json", "e3")
    engine = application_engine(path, configure)
    session = Session(engine)
    unit = UnitOfWork(session, clock.options())
    with pytest.raises(CorruptRow) as caught:
        read_events(unit)
    getattr(session, ending)()

    insert(path, "theirs")
    with Session(engine) as later:
        seen = later.execute(text("SELECT key FROM metadata WHERE key = 'theirs'")).all()
        later.execute(text("INSERT INTO metadata VALUES ('mine', '1')"))
        later.commit()
    assert seen == [("theirs",)]
    assert rows(path, "SELECT value FROM metadata WHERE key = 'mine'") == [("1",)]
    assert checkpoint(path) == (0, 0, 0)
    assert caught.value.details["row"] == "e3"
    assert unit.session is session  # both are alive: no finaliser has helped
    engine.dispose()


def many_commits(store: Broker) -> dict[str, Any]:
    """A request that was answered before 199 others."""
    lease = acquire(store)
    requests = [commit_request(lease, f"m{n}", expectedRevision=n) for n in range(200)]
    for request in requests:
        store.commit(request)
    return requests[0]


@pytest.mark.parametrize("configure", [True, False])
def test_a_sessions_connection_keeps_no_lock_of_a_write_that_met_such_a_row(
    store: Broker, path: Path, clock: ManualClock, configure: bool
) -> None:
    request = many_commits(store)
    spoil(path, "inbox", "result_json", "m0")
    engine = application_engine(path, configure)
    session = Session(engine)
    unit = UnitOfWork(session, clock.options())
    with pytest.raises(CorruptRow) as caught:
        unit.commit(request)
    session.rollback()

    assert not is_write_locked(path)
    insert(path, "theirs")
    assert acquire(unit, "third", "third").epoch == 1
    session.commit()
    session.close()
    assert checkpoint(path) == (0, 0, 0)
    assert caught.value.details["table"] == "inbox"
    engine.dispose()


def test_the_writer_keeps_neither_snapshot_nor_lock_after_a_write_that_met_such_a_row(
    store: Broker, path: Path
) -> None:
    request = many_commits(store)
    spoil(path, "inbox", "result_json", "m0")
    with pytest.raises(CorruptRow) as caught:
        store.commit(request)

    assert not is_write_locked(path)
    insert(path, "theirs")
    assert checkpoint(path) == (0, 0, 0)
    assert acquire(store, "third", "third").epoch == 1
    assert checkpoint(path) == (0, 0, 0)
    assert caught.value.details["row"] == "m0"


def test_a_search_for_the_row_that_fails_itself_ends_in_an_error_of_ours(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    request = fill(store)
    spoil(path, "inbox", "result_json", "message")
    spoil(path, "events", "payload_json", "event")
    engine = application_engine(path, configure=True)
    with Session(engine) as session:
        unit = UnitOfWork(session, clock.options())
        unit.table_names()  # which checks the schema, for the last time on this engine
        session.rollback()
        with raw(path) as connection:
            connection.execute("DROP TABLE actor_leases")  # the first that is searched

        attempts: list[Callable[[], object]] = [
            lambda: store.commit(request),
            lambda: read_events(store),
            lambda: unit.commit(request),
            lambda: read_events(unit),
        ]
        for attempt in attempts:
            with pytest.raises(DatabaseError, match="no such table: actor_leases"):
                attempt()
            session.rollback()
    assert not is_write_locked(path)
    engine.dispose()
