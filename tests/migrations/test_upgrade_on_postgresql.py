"""Revisions on PostgreSQL: there and back with rows, schemas, locks, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from broker import schema
from broker.errors import ConfigurationError, DatabaseBusy, DatabaseUnavailable, SchemaError
from broker.schema import migrate, versions
from broker.schema.state import State
from tests.migrations.postgres_support import (
    add_events,
    connected,
    dump,
    found,
    looking,
    recorded,
    run,
    version_1,
)
from tests.migrations.support import ROOT, payload
from tests.places import PostgresPlace, contents

KEPT = ["inbox", "events", "outbox", "projections", "metadata"]
RELATIONS = """
SELECT relname, relkind FROM pg_class
WHERE relnamespace = current_schema()::regnamespace UNION ALL
SELECT proname, 'function' FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
ORDER BY 1, 2
"""


def leases(place: PostgresPlace) -> list[tuple[Any, ...]]:
    """The leases without the nonces of ended ones, which are random."""
    rows = found(place, "SELECT * FROM actor_leases ORDER BY actor_id")
    return [
        tuple("random" if re.fullmatch("[0-9a-f]{32}", str(v)) else v for v in row) for row in rows
    ]


def test_every_revision_runs_on_an_empty_database_and_says_what_it_did(
    empty_server: PostgresPlace,
) -> None:
    reports = schema.upgrade(empty_server.url)

    assert [report.revision for report in reports] == ["0001", "0002", "0003", "0004"]
    assert reports[0].changes == {"tables made": 7}
    assert reports[3].changes == {"indexes made": 4, "guard triggers made": 6}
    assert schema.upgrade(empty_server.url) == []
    assert schema.current(empty_server.url) == State(version=3, stamped="0004")


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004"])
def test_every_revision_can_be_undone_and_leaves_nothing(
    revision: str, empty_server: PostgresPlace
) -> None:
    schema.upgrade(empty_server.url, revision)
    assert schema.current(empty_server.url).stamped == revision

    schema.downgrade(empty_server.url, "base")

    assert found(empty_server, RELATIONS) == []
    assert schema.current(empty_server.url) == State(version=0, stamped=None)


def test_a_populated_version_1_database_goes_up_and_back(empty_server: PostgresPlace) -> None:
    place = version_1(empty_server)
    before = contents(place)

    schema.upgrade(place.url)
    owners = found(place, "SELECT stream_id, workspace_id FROM streams ORDER BY 1")
    schema.downgrade(place.url, "0001", lose_data=True)

    after = contents(place)
    for table in (*KEPT, "streams"):
        assert after[table] == before[table]
    assert owners == [("alpha", "w1"), ("beta", "w2"), ("gamma", None)]
    assert leases(place) == [
        ("alpha", "\1runtime-broker-migration", 3, "random", 0, 0, 0),
        ("b\u00e9ta", "\1runtime-broker-migration", 7, "random", 0, 0, 0),
    ]


def test_a_lineage_name_is_the_other_backends_with_another_first_character(
    empty_server: PostgresPlace,
) -> None:
    schema.upgrade(version_1(empty_server).url)

    names = found(empty_server, "SELECT actor_id, stream_id FROM actor_leases ORDER BY stream_id")
    assert names == [
        ("\1runtime-broker-lineage:616C706861", "alpha"),
        ("\1runtime-broker-lineage:62C3A97461", "b\u00e9ta"),
    ]


def test_up_down_up_ends_where_up_did(empty_server: PostgresPlace) -> None:
    place = version_1(empty_server)
    schema.upgrade(place.url)
    first, first_leases = dump(place, [*versions.TABLES[3]]), leases(place)

    schema.downgrade(place.url, "0001", lose_data=True)
    schema.upgrade(place.url)

    second = dump(place, [*versions.TABLES[3]])
    assert second | {"actor_leases": []} == first | {"actor_leases": []}
    assert leases(place) == first_leases
    with looking(place) as connection:
        assert schema.drift(connection) == []


def test_a_downgrade_that_loses_data_counts_it_and_changes_nothing(
    empty_server: PostgresPlace,
) -> None:
    place = version_1(empty_server)
    schema.upgrade(place.url)
    run(place, "INSERT INTO mutation_receipts VALUES ('r', 'm', 'h', 'null', 1)")
    before = contents(place)

    with pytest.raises(SchemaError, match="would lose data") as refused:
        schema.downgrade(place.url, "base")

    lost = refused.value.details["lost"]
    assert (lost["receipts"], lost["owners of streams"], lost["events rows"]) == (1, 2, 6)
    assert contents(place) == before


def test_leases_that_version_1_cannot_hold_are_counted(empty_server: PostgresPlace) -> None:
    place = recorded(empty_server, "v2-three-leases-two-streams")

    with pytest.raises(SchemaError, match="leases that version 1 cannot hold: 5"):
        schema.downgrade(place.url, "0001")
    schema.downgrade(place.url, "0001", lose_data=True)

    ended = found(place, "SELECT actor_id, epoch FROM actor_leases ORDER BY 1")
    assert ended == [("s", 3), ("t", 9), ("u", 5)]


def test_one_bad_row_ends_the_backfill_and_its_correction_lets_it_pass(
    empty_server: PostgresPlace,
) -> None:
    place = recorded(empty_server, "v1-empty")
    add_events(place, "s", [payload("s", n, "w") for n in range(1, 1_500)] + ['{"a":'])
    told: list[int] = []

    with pytest.raises(SchemaError, match="'s-1500'") as refused:
        schema.upgrade(place.url, progress=lambda done, _total: told.append(done))
    run(place, "UPDATE events SET payload_json = '{}' WHERE event_id = 's-1500'")
    schema.upgrade(place.url)

    details = refused.value.details
    assert (details["table"], details["row"], details["column"]) == ("events", 1500, "payload_json")
    assert told == [1_000]
    assert found(place, "SELECT workspace_id FROM streams") == [("w",)]


def test_several_stores_are_in_one_database_each_in_its_schema(empty_server: PostgresPlace) -> None:
    odd = 'a "b" %s'
    schema.upgrade(empty_server.url, schema="one")
    schema.upgrade(empty_server.url, schema=odd)
    schema.downgrade(empty_server.url, "0002", schema="one")

    assert schema.current(empty_server.url, schema="one").revision == "0002"
    assert schema.current(empty_server.url, schema=odd).at_head
    assert schema.current(empty_server.url) == State(version=0, stamped=None)
    assert found(empty_server, RELATIONS) == []


def test_a_missing_schema_is_made_by_an_upgrade_that_does_something_only(
    empty_server: PostgresPlace,
) -> None:
    with pytest.raises(DatabaseUnavailable, match="there is no schema 'store'"):
        schema.current(empty_server.url, schema="store")
    with pytest.raises(DatabaseUnavailable, match="there is no schema 'store'"):
        schema.downgrade(empty_server.url, "base", schema="store")
    assert schema.upgrade(empty_server.url, "base", schema="store") == []
    with pytest.raises(DatabaseUnavailable, match="there is no schema 'store'"):
        schema.current(empty_server.url, schema="store")


@pytest.mark.parametrize("name", ["", "pg_store", "x" * 64, "a\0b"])
def test_what_is_no_name_of_a_schema_is_refused(name: str, empty_server: PostgresPlace) -> None:
    with pytest.raises(ConfigurationError, match="a schema's name"):
        schema.upgrade(empty_server.url, schema=name)


def test_the_store_is_where_the_connections_search_path_begins(empty_server: PostgresPlace) -> None:
    run(empty_server, "CREATE SCHEMA mine")
    url = make_url(empty_server.url).update_query_dict({"options": "-csearch_path=mine,public"})

    schema.upgrade(url)

    assert schema.current(empty_server.url, schema="mine").at_head
    assert found(empty_server, RELATIONS) == []


def test_a_search_path_that_leads_nowhere_is_explained(empty_server: PostgresPlace) -> None:
    url = make_url(empty_server.url).update_query_dict({"options": "-csearch_path=nowhere"})

    with pytest.raises(ConfigurationError, match="names no schema that exists"):
        schema.upgrade(url)


def test_a_schema_is_for_postgresql_only(tmp_path: Any) -> None:
    with pytest.raises(ConfigurationError, match="SQLite has no schema 'store'"):
        schema.upgrade(f"sqlite:///{tmp_path / 'x.db'}", schema="store")
    assert list(tmp_path.iterdir()) == []


def test_an_applications_tables_are_left_alone_unless_the_database_is_shared(
    empty_server: PostgresPlace,
) -> None:
    run(empty_server, "CREATE TABLE orders (id BIGINT); INSERT INTO orders VALUES (7)")

    with pytest.raises(SchemaError, match="has tables, but no table metadata of ours"):
        schema.upgrade(empty_server.url)
    schema.upgrade(empty_server.url, shared=True)
    schema.downgrade(empty_server.url, "base")

    assert found(empty_server, "SELECT * FROM orders") == [(7,)]


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        ("CREATE TABLE streams (id BIGINT)", "streams"),
        ("CREATE TABLE orders (id BIGINT PRIMARY KEY); CREATE INDEX inbox ON orders (id)", "inbox"),
        ("CREATE SEQUENCE events_rowid_seq", "events_rowid_seq"),
        ("CREATE TYPE outbox AS ENUM ('a')", "outbox"),
        (
            "CREATE FUNCTION events_no_delete() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            r"events_no_delete\(\)",
        ),
    ],
)
def test_a_name_that_is_in_use_is_refused_though_the_database_is_shared(
    taken: str, name: str, empty_server: PostgresPlace
) -> None:
    run(empty_server, taken)

    with pytest.raises(SchemaError, match=f"already in use in this database: {name};"):
        schema.upgrade(empty_server.url, shared=True)


def test_functions_alone_do_not_make_a_database_an_applications(
    empty_server: PostgresPlace,
) -> None:
    run(empty_server, "CREATE FUNCTION helper() RETURNS int LANGUAGE sql AS 'SELECT 1'")

    assert len(schema.upgrade(empty_server.url)) == 4


def test_a_table_that_a_crash_would_empty_is_refused(server: PostgresPlace) -> None:
    run(server, "ALTER TABLE projections SET UNLOGGED")

    with pytest.raises(SchemaError, match="projections is missing, or not an ordinary, logged"):
        schema.current(server.url)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DROP INDEX events_message_idx", "missing from the database: events_message_idx"),
        ("ALTER TABLE events DISABLE TRIGGER events_no_delete", "database: events_no_delete"),
        ("DROP TRIGGER streams_no_truncate ON streams", "database: streams_no_truncate"),
        (
            "ALTER TABLE streams DISABLE TRIGGER streams_workspace_immutable",
            "streams_workspace_immutable on streams is missing",
        ),
        ("ALTER TABLE events DROP COLUMN rowid", "nothing where rowid BIGINT NOT NULL belongs"),
        ("ALTER TABLE events ALTER occurred_at TYPE int", "occurred_at INTEGER NOT NULL where"),
        ("ALTER TABLE inbox ADD x text", "a column x that is not ours"),
        ("UPDATE metadata SET value = '4'", "newer than 3"),
        ("UPDATE broker_alembic_version SET version_num = '9999'", "names '9999'"),
        ("DELETE FROM metadata", "metadata.schema_version is missing"),
    ],
)
def test_a_database_that_is_not_what_its_version_says_is_refused(
    change: str, message: str, server: PostgresPlace
) -> None:
    run(server, change)

    with pytest.raises(SchemaError, match=message):
        schema.current(server.url)


def test_a_table_that_others_hang_something_on_is_not_removed(server: PostgresPlace) -> None:
    run(server, "CREATE VIEW owners AS SELECT workspace_id FROM streams")
    before = contents(server)

    with pytest.raises(SchemaError, match=r"depend on what the migration removes .*view owners"):
        schema.downgrade(server.url, "base")

    assert contents(server) == before
    assert schema.current(server.url).at_head


def test_a_migration_waits_for_a_lock_as_long_as_it_is_told(server: PostgresPlace) -> None:
    with connected(server) as holder:
        holder.execute("LOCK TABLE streams IN ACCESS SHARE MODE")
        with pytest.raises(DatabaseBusy):
            schema.downgrade(server.url, "0003", busy_timeout_ms=1)

    assert schema.current(server.url).at_head


UPGRADE = """
import sys
from broker import schema
from broker.errors import DatabaseBusy
try:
    schema.upgrade(sys.argv[1], schema=sys.argv[2], busy_timeout_ms=int(sys.argv[3]))
except DatabaseBusy:
    print("busy")
else:
    print("done")
"""


def test_only_one_migration_of_a_schema_runs_at_a_time(empty_server: PostgresPlace) -> None:
    answers: list[str] = []

    def meanwhile(_done: int, _total: int) -> None:
        for name, timeout_ms in (("slow", 1), ("other", 60_000)):
            command = [sys.executable, "-c", UPGRADE, empty_server.url, name, str(timeout_ms)]
            answers.append(subprocess.check_output(command, text=True, cwd=ROOT))

    schema.upgrade(empty_server.url, "0002", schema="slow")
    with connected(empty_server, "slow") as other:
        other.execute("INSERT INTO streams VALUES ('s', 1, 1, 1)")
        other.execute("INSERT INTO inbox VALUES ('m', 'h', 's', 1, '{}', 1)")
        other.execute("INSERT INTO events VALUES ('e', 'm', 's', 1, 't', '{}', 1, 1)")
    schema.upgrade(empty_server.url, schema="slow", progress=meanwhile)

    assert answers == ["busy\n", "done\n"]
    assert schema.current(empty_server.url, schema="slow").at_head


def test_a_statement_timeout_of_the_role_does_not_end_a_migration(
    empty_server: PostgresPlace,
) -> None:
    url = make_url(empty_server.url).update_query_dict({"options": "-cstatement_timeout=9s"})

    with migrate.transaction(url, writes=True, busy_timeout_ms=1) as connection:
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar_one() == "0"
    with migrate.transaction(url, writes=False, busy_timeout_ms=1) as connection:
        assert connection.exec_driver_sql("SHOW statement_timeout").scalar_one() == "9s"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"database": "no_such_database"}, "create it first"),
        ({"username": "nobody_of_this_name"}, "nobody_of_this_name"),
    ],
)
def test_a_server_that_lets_nobody_in_is_out_of_reach(
    change: dict[str, Any], message: str, empty_server: PostgresPlace
) -> None:
    url = make_url(empty_server.url).set(**change)

    for ask in (schema.upgrade, schema.current):
        with pytest.raises(DatabaseUnavailable, match=message):
            ask(url)


def test_a_role_that_may_not_make_tables_is_told_so(empty_server: PostgresPlace) -> None:
    run(
        empty_server,
        "CREATE ROLE reader_of_nothing; REVOKE CREATE ON SCHEMA public FROM PUBLIC;"
        " CREATE SCHEMA closed",
    )
    url = make_url(empty_server.url).update_query_dict({"options": "-crole=reader_of_nothing"})

    try:
        with pytest.raises(DatabaseUnavailable, match="lacks a privilege"):
            schema.upgrade(url, schema="mine")
    finally:
        run(empty_server, "DROP ROLE reader_of_nothing")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM events", "append-only"),
        ("UPDATE events SET payload_json = '1'", "append-only"),
        ("TRUNCATE events CASCADE", "append-only"),
        ("DELETE FROM streams", "permanent"),
        ("UPDATE streams SET stream_id = 'x'", "permanent"),
        ("TRUNCATE streams CASCADE", "permanent|append-only"),
        ("UPDATE streams SET workspace_id = 'other'", "ownership is immutable"),
        ("INSERT INTO events (rowid) VALUES (7)", "GENERATED ALWAYS|rowid"),
    ],
)
def test_the_guards_hold_for_every_client(
    statement: str, message: str, empty_server: PostgresPlace
) -> None:
    place = recorded(empty_server, "v2-unique-leases-survive")
    schema.upgrade(place.url)
    before = contents(place)

    with pytest.raises(psycopg.Error, match=message):
        run(place, statement)

    assert contents(place) == before
