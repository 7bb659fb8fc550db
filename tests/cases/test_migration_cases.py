"""Cases B24 to B26: large journals, odd values and rows that cannot be read, on the way to version 3."""

from __future__ import annotations

import gc
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from broker import schema
from broker.errors import SchemaError
from broker.models import Base
from tests.migrations.support import (
    SCRIPTS,
    add_events,
    contents,
    payload,
    rows,
    run_sql,
    url,
    version_1,
)


def version_1_with(path: Path, events: int, size: int) -> Path:
    run_sql(path, SCRIPTS["v1-empty"])
    text = payload("s", 1, "w").replace('"revision"', f'"note": "{"x" * size}", "revision"', 1)
    add_events(path, "s", [text] * events)
    return path


def peak_of_upgrade(path: Path) -> int:
    gc.collect()
    tracemalloc.start()
    schema.upgrade(url(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_b24_memory_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    warm = version_1_with(tmp_path / "warm.db", 10, 2_000)
    small = version_1_with(tmp_path / "small.db", 1_000, 2_000)
    large = version_1_with(tmp_path / "large.db", 10_000, 2_000)  # 20 MB in one stream
    schema.upgrade(url(warm))

    growth = peak_of_upgrade(large) - peak_of_upgrade(small)

    assert growth < 500_000
    assert rows(large, "SELECT workspace_id FROM streams") == [("w",)]


def test_b24_one_bad_row_ends_the_backfill_and_its_correction_lets_it_pass(tmp_path: Path) -> None:
    path = run_sql(tmp_path / "1.db", SCRIPTS["v1-empty"])
    add_events(path, "s", [payload("s", n, "w") for n in range(1, 1_500)] + ['{"a":'])
    told: list[int] = []

    with pytest.raises(SchemaError, match="'s-1500'"):
        schema.upgrade(url(path), progress=lambda done, _total: told.append(done))
    run_sql(path, "UPDATE events SET payload_json = '{}' WHERE event_id = 's-1500'")
    schema.upgrade(url(path))

    assert told == [1_000]
    assert rows(path, "SELECT workspace_id FROM streams") == [("w",)]


def test_b24_owners_are_found_in_the_order_of_the_streams_not_of_the_journal(
    tmp_path: Path,
) -> None:
    path = run_sql(tmp_path / "1.db", SCRIPTS["v1-empty"])
    for turn in range(3):
        for stream in ("b", "a", "c"):
            add_events(path, f"{stream}{turn}", [payload(f"{stream}{turn}", 1, f"w-{stream}")])

    schema.upgrade(url(path))

    found = rows(path, "SELECT stream_id, workspace_id FROM streams ORDER BY stream_id")
    assert found == [(f"{s}{turn}", f"w-{s}") for s in "abc" for turn in range(3)]


@pytest.mark.parametrize(
    ("column", "value"),
    [("epoch", "1.5"), ("epoch", "'abc'"), ("holder_id", "x'00ff'"), ("nonce", "NULL")],
)
def test_b25_a_table_that_could_hold_odd_values_is_refused_not_copied(
    column: str, value: str, tmp_path: Path
) -> None:
    script = SCRIPTS["v1-empty"].replace(
        "epoch INTEGER NOT NULL CHECK (epoch > 0), nonce TEXT NOT NULL, acquired_at INTEGER NOT NULL,"
        " heartbeat_at INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT",
        "epoch INTEGER, nonce TEXT, acquired_at INTEGER, heartbeat_at INTEGER, expires_at INTEGER)",
    )
    path = run_sql(tmp_path / "1.db", script)
    run_sql(path, "INSERT INTO actor_leases VALUES ('a', 'h', 1, 'n', 1, 1, 1)")
    run_sql(path, f"UPDATE actor_leases SET {column} = {value}")
    before = path.read_bytes()

    with pytest.raises(SchemaError, match="actor_leases is missing, not STRICT"):
        schema.upgrade(url(path))

    assert path.read_bytes() == before


def test_b25_the_models_use_only_types_that_strict_tables_know(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path))

    for table in Base.metadata.tables:
        kinds = rows(path, f"SELECT DISTINCT type FROM pragma_table_info('{table}')")
        assert {kind for (kind,) in kinds} <= {"TEXT", "INTEGER"}


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (b"ab\xffc", "is not UTF-8"),
        (b'{"a":"\xff"}', "is not UTF-8"),
        ('{"a":', "is not JSON"),
        ('{"a":NaN}', "not JSON"),
        ("[" * 100_000, "JSON|deep"),
        ("", "is not JSON"),
    ],
    ids=["bytes", "bytes-in-json", "cut-off", "nan", "deep", "empty"],
)
def test_b26_a_payload_that_cannot_be_read_names_table_row_and_column(
    bad: str | bytes, fault: str, tmp_path: Path
) -> None:
    path = version_1(tmp_path / "1.db")
    add_events(path, "zeta", [payload("zeta", 1, "w"), bad])
    before = contents_as_bytes(path)

    with pytest.raises(SchemaError, match=fault) as refused:
        schema.upgrade(url(path))

    (row,) = rows(path, "SELECT rowid FROM events WHERE event_id = 'zeta-2'")
    details = refused.value.details
    assert (details["table"], details["row"], details["column"]) == (
        "events",
        row[0],
        "payload_json",
    )
    assert contents_as_bytes(path) == before


@pytest.mark.parametrize("column", ["event_id", "stream_id"])
def test_b26_an_id_that_is_not_utf8_names_its_row_and_column(column: str, tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    run_sql(path, f"UPDATE events SET {column} = CAST(x'6162ff63' AS TEXT) WHERE rowid = 2")

    with pytest.raises(
        SchemaError, match=rf"events\.{column} of the row with rowid 2 is not UTF-8"
    ):
        schema.upgrade(url(path))


def test_b26_the_corrected_row_lets_the_migration_pass(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    add_events(path, "zeta", [b"ab\xffc"])
    with pytest.raises(SchemaError):
        schema.upgrade(url(path))

    run_sql(path, "UPDATE events SET payload_json = 'null' WHERE event_id = 'zeta-1'")

    assert [report.revision for report in schema.upgrade(url(path))] == ["0002", "0003", "0004"]


def test_b26_leases_with_names_that_are_not_utf8_keep_their_bytes(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    run_sql(path, "UPDATE actor_leases SET actor_id = CAST(x'61ff' AS TEXT) WHERE epoch = 3")

    schema.upgrade(url(path))

    lineage = "SELECT CAST(stream_id AS BLOB), actor_id FROM actor_leases WHERE epoch = 3"
    assert rows(path, lineage) == [(b"a\xff", "\0runtime-broker-lineage:61FF")]


def contents_as_bytes(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        return connection.execute("SELECT rowid, * FROM events ORDER BY rowid").fetchall()


def test_the_helper_of_these_tests_sees_a_change(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    before = contents(path)

    run_sql(path, "UPDATE events SET payload_json = 'x' WHERE rowid = 1")

    assert contents(path) != before
