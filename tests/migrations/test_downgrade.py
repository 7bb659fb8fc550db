"""Downgrading: every step goes back, and none loses data unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker import schema
from broker.errors import SchemaError
from tests.migrations.support import (
    SCRIPTS,
    contents,
    looking,
    rows,
    run_sql,
    schema_of,
    url,
    version_1,
)

LEASES = "SELECT * FROM actor_leases ORDER BY actor_id"


def test_every_step_goes_back(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path))

    for revision, version in (("0003", 3), ("0002", 2), ("0001", 1)):
        (report,) = schema.downgrade(url(path), revision)

        assert report.revision > revision
        assert schema.current(url(path)) == schema.State(version, revision)


def test_base_leaves_an_empty_database(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path))

    schema.downgrade(url(path), "base")

    assert schema_of(path) == []
    assert rows(path, "PRAGMA user_version") == [(0,)]
    assert schema.current(url(path)) == schema.State(version=0, stamped=None)


@pytest.mark.parametrize("name", ["v1-empty", "v2-unique-leases-survive", "v3-as-it-is"])
def test_a_downgraded_schema_is_the_one_of_the_other_program(name: str, tmp_path: Path) -> None:
    theirs = run_sql(tmp_path / "theirs.db", SCRIPTS[name])
    ours = tmp_path / "ours.db"
    schema.upgrade(url(ours))
    schema.downgrade(url(ours), f"000{name[1]}")

    with looking(theirs) as connection:
        wanted = schema.drift(connection)
    with looking(ours) as connection:
        found = schema.drift(connection)

    missing = "broker_alembic_version: table is missing"
    recorded = f"broker_alembic_version: recorded version is 000{name[1]} instead of 0004"
    assert found == sorted({*wanted, recorded} - {missing})


def test_b23_leaving_version_3_names_what_would_be_lost_and_keeps_every_byte(
    tmp_path: Path,
) -> None:
    path = version_1(tmp_path / "1.db")
    schema.upgrade(url(path))
    run_sql(path, "INSERT INTO mutation_receipts VALUES ('r', 'm', 'h', 'null', 1)")
    before = path.read_bytes()

    with pytest.raises(SchemaError, match=r"receipts: 1, owners of streams: 2") as refused:
        schema.downgrade(url(path), "0002")

    assert refused.value.details["lost"] == {"receipts": 1, "owners of streams": 2}
    assert path.read_bytes() == before


def test_b23_losing_it_on_purpose_is_reported(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    schema.upgrade(url(path))

    reports = schema.downgrade(url(path), "0002", lose_data=True)

    assert reports[-1].changes == {"owners of streams lost": 2}
    assert schema.current(url(path)).version == 2


def test_b23_leaving_version_1_counts_the_rows_of_every_table(tmp_path: Path) -> None:
    path = run_sql(version_1(tmp_path / "1.db"), "INSERT INTO metadata VALUES ('mine', '1')")
    before = path.read_bytes()

    with pytest.raises(SchemaError) as refused:
        schema.downgrade(url(path), "base")

    assert path.read_bytes() == before
    assert refused.value.details["lost"] == {
        "actor_leases rows": 2,
        "streams rows": 3,
        "inbox rows": 3,
        "events rows": 6,
        "outbox rows": 2,
        "projections rows": 1,
        "other metadata rows": 1,
    }


def test_leases_that_version_1_can_hold_go_back_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path), "0002")
    run_sql(path, "INSERT INTO actor_leases VALUES ('s', 's', 'h', 4, 'n', 1, 2, 900)")

    schema.downgrade(url(path), "0001")

    assert rows(path, LEASES) == [("s", "h", 4, "n", 1, 2, 900)]


def test_b23_leases_that_version_1_cannot_hold_are_refused_or_leave_their_epoch(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path), "0002")
    run_sql(
        path,
        """
        INSERT INTO actor_leases VALUES ('a', 's', 'h', 4, 'n1', 1, 2, 900);
        INSERT INTO actor_leases VALUES ('s', 's', 'h', 9, 'n2', 1, 2, 900);
        INSERT INTO actor_leases VALUES ('t', 't', 'h', 1, 'n3', 1, 2, 900);
        """,
    )
    with pytest.raises(SchemaError, match="leases that version 1 cannot hold: 2"):
        schema.downgrade(url(path), "0001")

    schema.downgrade(url(path), "0001", lose_data=True)

    ended, kept = rows(path, LEASES)
    assert ended[:3] == ("s", "\0runtime-broker-migration", 9)
    assert ended[4:] == (0, 0, 0)
    assert kept == ("t", "h", 1, "n3", 1, 2, 900)


def test_a_downgrade_keeps_the_applications_tables(tmp_path: Path) -> None:
    path = run_sql(tmp_path / "app.db", "CREATE TABLE orders (id INTEGER)")
    schema.upgrade(url(path), shared=True)

    schema.downgrade(url(path), "base")

    assert contents(path) == {"orders": []}


def test_a_downgrade_that_would_orphan_the_applications_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    schema.upgrade(url(path))
    run_sql(
        path,
        "CREATE TABLE note (stream TEXT REFERENCES streams(stream_id));"
        "INSERT INTO note VALUES ('s')",
    )
    before = path.read_bytes()

    with pytest.raises(SchemaError, match="rows of note refer to rows of streams"):
        schema.downgrade(url(path), "base")

    assert path.read_bytes() == before
