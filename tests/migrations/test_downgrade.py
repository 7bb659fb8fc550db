"""Downgrading: every step goes back, and none loses data unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker import schema
from broker.errors import SchemaError
from tests.migrations.support import (
    SCRIPTS,
    add_events,
    contents,
    looking,
    payload,
    rows,
    run_sql,
    schema_of,
    url,
    version_1,
)
from tests.reference_checks import assert_reference_would_open

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


def test_b23_a_downgrade_of_several_steps_counts_what_every_one_of_them_loses(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path))
    run_sql(
        path,
        """
        INSERT INTO streams VALUES ('s', 0, 1, 1, 'w');
        INSERT INTO streams VALUES ('t', 0, 1, 1, NULL);
        INSERT INTO mutation_receipts VALUES ('r', 'm', 'h', 'null', 1);
        INSERT INTO actor_leases VALUES ('a', 's', 'h', 4, 'n1', 1, 2, 900);
        INSERT INTO actor_leases VALUES ('t', 't', 'h', 1, 'n2', 1, 2, 900);
        """,
    )
    before = path.read_bytes()

    with pytest.raises(SchemaError, match="nothing was changed") as to_1:
        schema.downgrade(url(path), "0001")
    with pytest.raises(SchemaError) as to_base:
        schema.downgrade(url(path), "base")

    assert path.read_bytes() == before
    first = {"receipts": 1, "owners of streams": 1, "leases that version 1 cannot hold": 1}
    assert to_1.value.details["lost"] == first
    assert all(f"{what}: {number}" in to_1.value.message for what, number in first.items())
    assert to_base.value.details["lost"] == first | {"actor_leases rows": 2, "streams rows": 2}

    reports = schema.downgrade(url(path), "0001", lose_data=True)
    lost = {
        what.removesuffix(" lost"): number
        for report in reports
        for what, number in report.changes.items()
        if what.endswith(" lost")
    }
    assert lost == first


BROKEN_VIEW = "CREATE TABLE a(x); CREATE VIEW v AS SELECT x FROM a; DROP TABLE a"
HUNG_ON = """
    CREATE INDEX app_index ON streams(updated_at) WHERE revision > 0;
    CREATE TRIGGER app_trigger AFTER UPDATE ON streams BEGIN SELECT 1; END;
    CREATE VIEW app_view AS SELECT stream_id FROM streams;
    CREATE TABLE app (id INTEGER PRIMARY KEY, stream TEXT REFERENCES streams(stream_id));
    INSERT INTO app VALUES (1, 'beta');
"""


def test_a_broken_view_of_the_application_stops_no_step(tmp_path: Path) -> None:
    path = run_sql(version_1(tmp_path / "1.db"), BROKEN_VIEW)

    for _ in range(2):
        schema.upgrade(url(path))
        schema.downgrade(url(path), "0001", lose_data=True)
    schema.upgrade(url(path))

    assert schema.current(url(path)).at_head
    assert rows(path, "SELECT name FROM sqlite_schema WHERE type = 'view'") == [("v",)]


def test_leaving_version_3_makes_streams_as_version_2_has_it_and_keeps_what_hangs_on_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "2.db"
    schema.upgrade(url(path), "0002")
    for stream in ("alpha", "beta", "gamma"):
        add_events(path, stream, [payload(stream, 1, "w")])
    run_sql(path, "UPDATE streams SET rowid = 9 WHERE stream_id = 'beta'")
    run_sql(path, HUNG_ON)
    before, wanted = contents(path), schema_of(path)
    schema.upgrade(url(path))

    schema.downgrade(url(path), "0002", lose_data=True)

    assert schema_of(path) == wanted
    assert contents(path) == before
    assert rows(path, "PRAGMA foreign_key_check") == []
    parents = {
        row[2]
        for table in ("events", "projections", "app")
        for row in rows(path, f"PRAGMA foreign_key_list({table})")
    }
    assert parents == {"inbox", "streams"}


def test_after_leaving_version_3_the_way_up_ends_without_drift(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    schema.upgrade(url(path))
    owners = rows(path, "SELECT rowid, * FROM streams ORDER BY rowid")
    schema.downgrade(url(path), "0002", lose_data=True)

    schema.upgrade(url(path))

    assert_reference_would_open(path)
    assert rows(path, "SELECT rowid, * FROM streams ORDER BY rowid") == owners
    with looking(path) as connection:
        assert schema.drift(connection) == []


def test_events_whose_stream_was_gone_before_do_not_stop_it(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    run_sql(path, "DELETE FROM streams WHERE stream_id = 'gamma'")
    schema.upgrade(url(path))

    schema.downgrade(url(path), "0002", lose_data=True)

    assert schema.current(url(path)).revision == "0002"
