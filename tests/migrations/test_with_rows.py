"""Populated databases there and back, so that no step works on empty tables only."""

from __future__ import annotations

import re
from pathlib import Path

from broker import schema
from tests.migrations.support import Rows, contents, looking, rows, run_sql, url, version_1

KEPT = ("inbox", "events", "outbox", "projections")
NONCE = re.compile("[0-9a-f]{32}")


def leases(path: Path) -> Rows:
    """The leases without the nonces of ended ones, which are random."""
    found = rows(path, "SELECT * FROM actor_leases ORDER BY actor_id")
    return [tuple("random" if NONCE.fullmatch(str(v)) else v for v in row) for row in found]


def test_a_populated_version_1_database_goes_up_and_back(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    before = contents(path)

    schema.upgrade(url(path))
    schema.downgrade(url(path), "0001", lose_data=True)

    after = contents(path)
    for table in (*KEPT, "streams", "metadata"):
        assert after[table] == before[table]
    assert leases(path) == [
        ("alpha", "\0runtime-broker-migration", 3, "random", 0, 0, 0),
        ("b\u00e9ta", "\0runtime-broker-migration", 7, "random", 0, 0, 0),
    ]


def test_up_down_up_ends_where_up_did(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    schema.upgrade(url(path))
    first, first_leases = contents(path), leases(path)

    schema.downgrade(url(path), "0001", lose_data=True)
    schema.upgrade(url(path))

    second = contents(path)
    for table in (*KEPT, "streams", "metadata", "mutation_receipts", "broker_alembic_version"):
        assert second[table] == first[table]
    assert leases(path) == first_leases
    with looking(path) as connection:
        assert schema.drift(connection) == []


def test_epochs_survive_every_step_so_that_fences_hold(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")

    for _ in range(2):
        schema.upgrade(url(path))
        assert rows(path, "SELECT stream_id, epoch FROM actor_leases ORDER BY 1") == [
            ("alpha", 3),
            ("b\u00e9ta", 7),
        ]
        schema.downgrade(url(path), "0001", lose_data=True)


def test_a_lineage_name_is_the_one_of_the_other_program(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")

    schema.upgrade(url(path))

    assert rows(path, "SELECT actor_id, stream_id FROM actor_leases ORDER BY stream_id") == [
        ("\0runtime-broker-lineage:616C706861", "alpha"),
        ("\0runtime-broker-lineage:62C3A97461", "b\u00e9ta"),
    ]


def test_two_live_leases_on_one_stream_become_one_ended_lease_with_the_higher_epoch(
    tmp_path: Path,
) -> None:
    path = tmp_path / "2.db"
    schema.upgrade(url(path), "0002")
    run_sql(
        path,
        """
        INSERT INTO actor_leases VALUES ('a', 's', 'h', 4, 'n1', 1, 2, 900);
        INSERT INTO actor_leases VALUES ('b', 's', 'h', 9, 'n2', 1, 2, 900);
        INSERT INTO actor_leases VALUES ('c', 't', 'h', 1, 'n3', 1, 2, 900);
        """,
    )

    schema.upgrade(url(path))

    assert leases(path) == [
        (
            "\0runtime-broker-lineage:73",
            "s",
            "\0runtime-broker-migration",
            9,
            "random",
            0,
            0,
            0,
        ),
        ("c", "t", "h", 1, "n3", 1, 2, 900),
    ]
