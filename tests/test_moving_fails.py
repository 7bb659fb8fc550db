"""What a move refuses, finds or dies of: the target is empty after it, and the source as it was."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from broker import schema
from broker.errors import (
    BrokerError,
    CorruptRow,
    DatabaseError,
    DatabaseUnavailable,
    OutcomeUnknown,
    SchemaError,
)
from broker.moving import move
from broker.moving.postgresql import PostgresqlSide
from broker.moving.sqlite import SqliteSide
from broker.moving.tables import Listing, Row
from tests.moving_support import dump, is_empty, make_full, make_wide, put
from tests.places import Place, PlaceOn, PostgresPlace, client, raw, rows, url_of
from tests.support import ManualClock, finish, start_python, wait_for


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A store of two rows and two thousand events."""
    return make_wide(tmp_path / "source.db", 2_000)


@pytest.fixture(params=["empty sqlite", "empty postgresql"], ids=["to sqlite", "to postgresql"])
def target(request: pytest.FixtureRequest, place_on: PlaceOn) -> Iterator[Place]:
    """An empty database on each backend."""
    with place_on(request.param) as made:
        yield made


# ------------------------------------------------------------------------- rows that do not fit in

NUL_ROWS: dict[str, tuple[str, str, str]] = {
    "destination": (
        "outbox",
        "o",
        "INSERT INTO outbox VALUES ('o', '000000001', NULL, 'a' || char(0), '', 0, 0, NULL, 0)",
    ),
    "stream_id": (
        "streams",
        "a\0b",
        "INSERT INTO streams VALUES ('a' || char(0) || 'b', 0, 0, 0, NULL)",
    ),
    "value": ("metadata", "k", "INSERT INTO metadata VALUES ('k', char(0))"),
    "actor_id": (
        "actor_leases",
        "\0other",
        "INSERT INTO actor_leases VALUES (char(0) || 'other', 's', 'h', 1, 'n', 0, 0, 0)",
    ),
    "nonce": (
        "actor_leases",
        "\0runtime-broker-x",
        "INSERT INTO actor_leases VALUES"
        " (char(0) || 'runtime-broker-x', 's', 'h', 1, char(0), 0, 0, 0)",
    ),
}


@pytest.mark.parametrize("column", NUL_ROWS)
def test_nul_cannot_go_to_postgresql_and_the_row_is_named(
    source: Path, place_on: PlaceOn, tmp_path: Path, column: str
) -> None:
    table, row, statement = NUL_ROWS[column]
    put(source, statement)
    with place_on("empty postgresql") as target:
        with pytest.raises(SchemaError, match="NUL") as caught:
            move(url_of(source), url_of(target))
        assert caught.value.details["table"] == table
        assert caught.value.details["column"] == column
        assert caught.value.details["row"].lstrip("\0\1") == row.lstrip("\0")
        assert is_empty(target)
    move(url_of(source), url_of(tmp_path / "other.db"))  # another file may hold it
    assert dump(tmp_path / "other.db") == dump(source)


def test_an_actor_that_would_become_a_lineage_cannot_go_to_postgresql(
    source: Path, place_on: PlaceOn
) -> None:
    put(
        source,
        "INSERT INTO actor_leases VALUES"
        " (char(1) || 'runtime-broker-lineage:', 's', 'h', 1, 'n', 0, 0, 0)",
    )
    with place_on("empty postgresql") as target:
        with pytest.raises(SchemaError, match="would be a lineage's") as caught:
            move(url_of(source), url_of(target))
        assert caught.value.details["column"] == "actor_id"
        assert is_empty(target)


@pytest.mark.parametrize("column", ["stream_id", "workspace_id"])
def test_text_that_is_not_utf_8_is_refused_and_the_row_named(
    source: Path, target: Place, column: str
) -> None:
    bad = "CAST(x'61ff' AS TEXT)"
    values = {"stream_id": "'b'", "workspace_id": "NULL"} | {column: bad}
    put(
        source,
        f"INSERT INTO streams VALUES ({values['stream_id']}, 0, 0, 0, {values['workspace_id']})",
    )
    put(source, "INSERT INTO streams VALUES ('a', 0, 0, 0, NULL)")
    with pytest.raises(CorruptRow, match=f"streams.{column}") as caught:
        move(url_of(source), url_of(target))
    row = "a\\xff" if column == "stream_id" else "b"
    assert caught.value.details == {"table": "streams", "row": row, "column": column}
    if isinstance(target, PostgresPlace) or target.exists():
        schema.upgrade(url_of(target))
        assert is_empty(target)


def test_a_stream_whose_revision_is_not_its_number_of_events_is_refused(
    source: Path, target: Place
) -> None:
    put(source, "UPDATE streams SET revision = 2001")
    with pytest.raises(SchemaError, match="2000 events") as caught:
        move(url_of(source), url_of(target))
    assert caught.value.details == {"table": "streams", "row": "stream", "column": "revision"}
    schema.upgrade(url_of(target))
    assert is_empty(target)


def test_a_row_that_refers_to_none_is_refused(source: Path, target: Place) -> None:
    with raw(source) as careless:  # it has not switched foreign keys on
        careless.execute("INSERT INTO projections VALUES ('lost', 'nowhere', 0, '{}', 0)")
    with pytest.raises(BrokerError, match=r"nowhere|'lost'"):
        move(url_of(source), url_of(target))
    assert is_empty(target)


# ------------------------------------------------------------------------------- what can go wrong

Writing = Callable[[Any, Listing, Iterable[Row]], None]


def _lose_a_row(table: Listing, rows: Iterable[Row]) -> Iterable[Row]:
    return (row for row in rows if "000001234" not in row)


def _change_a_row(table: Listing, rows: Iterable[Row]) -> Iterable[Row]:
    return ((*row[:-1], 5_000) if row[0] == "000001234" else row for row in rows)


def _add_a_row(table: Listing, rows: Iterable[Row]) -> Iterable[Row]:
    yield from rows
    yield "extra", "hash", "stream", 1, "{}", 0


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (_lose_a_row, "events"),
        (_change_a_row, "events"),
        (_change_a_row, "inbox"),
        (_add_a_row, "inbox"),
    ],
)
def test_a_copy_that_is_not_the_same_is_found_before_it_is_committed(
    source: Path, target: Place, monkeypatch: pytest.MonkeyPatch, fault: Any, name: str
) -> None:
    for side in (SqliteSide, PostgresqlSide):
        monkeypatch.setattr(side, "write", _faulty(side.write, fault, name))
    with pytest.raises(DatabaseError, match=f"{name} in the target is not what the source has"):
        move(url_of(source), url_of(target))
    assert is_empty(target)


def _faulty(write: Writing, fault: Any, name: str) -> Writing:
    def faulty(side: Any, table: Listing, them: Iterable[Row]) -> None:
        write(side, table, fault(table, them) if table.name == name else them)

    return faulty


@pytest.mark.parametrize("when", ["copying", "verifying"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_move_that_is_interrupted_leaves_the_target_empty_and_may_be_repeated(
    source: Path, target: Place, when: str, error: type[BaseException]
) -> None:
    def interrupt(doing: str, done: int, _total: int) -> None:
        if (doing, done) == (when, 3_000):
            raise error

    with pytest.raises(error):
        move(url_of(source), url_of(target), progress=interrupt)
    assert is_empty(target)
    move(url_of(source), url_of(target))
    assert dump(target) == dump(source)


MOVE_AND_WAIT = """
import sys
from broker.moving import move

def wait(doing, done, total):
    if doing == sys.argv[3] and done == 3000:
        print("there", flush=True)
        sys.stdin.readline()

move(sys.argv[1], sys.argv[2], progress=wait)
"""


@pytest.mark.parametrize("when", ["copying", "verifying"])
@pytest.mark.parametrize("way", ["there", "back"])
def test_a_move_that_is_killed_leaves_the_target_empty_and_may_be_repeated(
    source: Path, target: Place, tmp_path: Path, when: str, way: str
) -> None:
    have: Place = source
    if way == "back":
        move(url_of(source), url_of(target))
        have, target = target, tmp_path / "back.db"
    process = start_python(MOVE_AND_WAIT, url_of(have), url_of(target), when)
    wait_for(process, "there")
    process.kill()
    process.communicate()
    assert process.returncode < 0
    assert is_empty(target)
    move(url_of(have), url_of(target))
    assert dump(target) == dump(source)


@pytest.mark.parametrize("role", ["source", "target"])
def test_a_server_that_ends_the_session_is_said_to_be_out_of_reach(
    source: Path, place_on: PlaceOn, tmp_path: Path, role: str
) -> None:
    with place_on("empty postgresql") as server:
        places: tuple[Place, Place] = source, server
        if role == "source":
            move(url_of(source), url_of(server))
            places = server, tmp_path / "back.db"

        def end(_doing: str, done: int, _total: int) -> None:
            if done == 1_000:
                put(
                    server,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()",
                )

        with pytest.raises(DatabaseUnavailable):
            move(*map(url_of, places), progress=end)
        assert is_empty(places[1])


def test_an_unknown_outcome_is_either_all_or_nothing(source: Path, target: Place) -> None:
    breaking: list[str] = []

    def break_commit(_connection: Any) -> None:
        if breaking:
            raise OperationalError("COMMIT", None, ConnectionError("lost"))

    schema.upgrade(url_of(target))
    event.listen(Engine, "commit", break_commit)
    try:
        with pytest.raises(OutcomeUnknown, match="either complete or empty") as caught:
            move(
                url_of(source),
                url_of(target),
                progress=lambda doing, *_: breaking.append(doing) if doing == "verifying" else None,
            )
    finally:
        event.remove(Engine, "commit", break_commit)
    assert "\n" not in str(caught.value)
    assert is_empty(target)


def test_nobody_writes_to_the_target_meanwhile_and_a_reader_finds_nothing(
    source: Path, target: Place
) -> None:
    process = start_python(MOVE_AND_WAIT, url_of(source), url_of(target), "verifying")
    wait_for(process, "there")
    with client(target) as other:
        hurry = (
            "SET lock_timeout = 1"
            if isinstance(target, PostgresPlace)
            else "PRAGMA busy_timeout = 0"
        )
        other.execute(hurry)
        with pytest.raises((sqlite3.OperationalError, psycopg.errors.LockNotAvailable)):
            other.execute("INSERT INTO streams VALUES ('mine', 0, 0, 0, NULL)")
    if isinstance(target, PostgresPlace):  # a reader of SQLite's may have to wait
        assert rows(target, "SELECT count(*) FROM events") == [(0,)]
    finish(process, "go on\n")
    assert dump(target) == dump(source)


def test_memory_does_not_grow_with_the_store(tmp_path: Path, target: Place) -> None:
    source = make_wide(tmp_path / "large.db", 6_000, payload='"' + "x" * 2_000 + '"')
    schema.upgrade(url_of(target))  # what it imports is not counted
    make_wide(tmp_path / "small.db", 1)
    move(url_of(tmp_path / "small.db"), url_of(tmp_path / "warm.db"))
    tracemalloc.start()
    try:
        move(url_of(source), url_of(target))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert dump(target) == dump(source)
    assert peak < 4_000_000 < 6_000 * 2_000


def test_a_target_that_another_client_writes_to_is_busy(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.moving.sqlite.LOCK_TIMEOUT_MS", 1)
    source = make_full(tmp_path / "source.db", clock)
    schema.upgrade(url_of(tmp_path / "target.db"))
    with raw(tmp_path / "target.db") as busy:
        busy.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="another connection holds the database"):
            move(url_of(source), url_of(tmp_path / "target.db"))
