"""Opening a store on PostgreSQL: looked at, migrated or refused; and the commands that do so."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import Connection, make_url

from broker import opening, schema
from broker.database_url import database_url
from broker.errors import DatabaseUnavailable, SchemaDrift, SchemaError
from broker.schema.state import State
from tests.cli.support import run as run_command
from tests.migrations.postgres_support import found, run, version_1
from tests.migrations.support import assert_one_line, run_alembic
from tests.places import PostgresPlace, contents

HEAD = State(version=3, stamped="0004")
NOBODYS = "SELECT count(*) FROM pg_namespace WHERE nspname = 'store'"


def test_an_empty_database_is_brought_up_to_date_and_then_left_alone(
    empty_server: PostgresPlace,
) -> None:
    url = database_url(empty_server.url)
    before = opening.find(url)

    for _ in range(2):
        opening.bring_up_to_date(url, busy_timeout_ms=1, shared=False)

    assert before == State(version=0, stamped=None)
    assert opening.find(url) == HEAD
    opening.require_current(url, busy_timeout_ms=1)


def test_a_schema_that_is_missing_is_made_by_opening_and_by_nothing_else(
    empty_server: PostgresPlace,
) -> None:
    url = database_url(empty_server.url)
    assert opening.find(url, schema="store") is None
    with pytest.raises(DatabaseUnavailable, match="there is no schema 'store'"):
        opening.require_current(url, busy_timeout_ms=1, schema="store")
    assert found(empty_server, NOBODYS) == [(0,)]

    opening.bring_up_to_date(url, busy_timeout_ms=1, shared=False, schema="store")

    assert opening.find(url, schema="store") == HEAD
    assert opening.find(url) == State(version=0, stamped=None)


def test_a_database_that_is_refused_is_left_as_it_was(empty_server: PostgresPlace) -> None:
    run(empty_server, "CREATE TABLE orders (id BIGINT)")
    url = database_url(empty_server.url)

    with pytest.raises(SchemaError, match="shared=True"):
        opening.bring_up_to_date(url, busy_timeout_ms=1, shared=False)
    assert list(contents(empty_server)) == ["orders"]

    opening.bring_up_to_date(url, busy_timeout_ms=1, shared=True)
    assert opening.find(url) == HEAD


def test_a_schema_that_has_drifted_or_lags_is_no_current_one(server: PostgresPlace) -> None:
    url = database_url(server.url)
    run(server, "CREATE INDEX mine ON inbox (applied_at)")

    with pytest.raises(SchemaDrift) as refused:
        opening.require_current(url, busy_timeout_ms=1)
    schema.downgrade(url, "0003")
    with pytest.raises(SchemaError, match="not 0004: upgrade it first"):
        opening.require_current(url, busy_timeout_ms=1)

    assert refused.value.details["facts"] == ["inbox: index mine is not one of ours"]


def test_a_role_that_may_only_write_rows_can_open_a_store_that_is_up_to_date(
    server: PostgresPlace,
) -> None:
    run(
        server,
        "CREATE ROLE writes_rows; GRANT ALL ON ALL TABLES IN SCHEMA public TO writes_rows;"
        " REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    )
    url = make_url(server.url).update_query_dict({"options": "-crole=writes_rows"})
    try:
        opening.require_current(database_url(url), busy_timeout_ms=1)
        opening.bring_up_to_date(database_url(url), busy_timeout_ms=1, shared=False)
        run(server, "DROP INDEX events_message_idx")
        with pytest.raises(SchemaError, match="missing from the database: events_message_idx"):
            opening.require_current(database_url(url), busy_timeout_ms=1)
    finally:
        run(server, "DROP OWNED BY writes_rows; DROP ROLE writes_rows")


def test_what_is_looked_at_is_of_one_moment(server: PostgresPlace) -> None:
    def count_twice(connection: Connection) -> list[int]:
        ask = "SELECT count(*) FROM metadata"
        first: int = connection.exec_driver_sql(ask).scalar_one()
        run(server, "INSERT INTO metadata VALUES ('new', '1')")
        return [first, connection.exec_driver_sql(ask).scalar_one()]

    first, second = opening.look(database_url(server.url), count_twice)

    assert first == second


def test_looking_keeps_nothing(server: PostgresPlace) -> None:
    def write(connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO metadata VALUES ('new', '1')")

    opening.look(database_url(server.url), write)

    assert found(server, "SELECT count(*) FROM metadata WHERE key = 'new'") == [(0,)]


# --- Commands -----------------------------------------------------------------------------------


def test_the_commands_upgrade_and_check_a_store_in_a_schema(
    empty_server: PostgresPlace,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = empty_server.url
    code, out, err = run_command(capsys, "upgrade", "--url", url, "--schema", "store", "--json")
    assert (code, err) == (0, "")
    assert [step["revision"] for step in json.loads(out)["steps"]] == [
        "0001",
        "0002",
        "0003",
        "0004",
    ]

    monkeypatch.setenv("BROKER_DATABASE_SCHEMA", "store")
    assert run_command(capsys, "upgrade", "--url", url)[1] == (
        "nothing to do: the database is at revision 0004\n"
    )
    assert run_command(capsys, "check", "--url", url)[0] == 0
    run(empty_server, "DROP TABLE store.projections")
    code, out, _ = run_command(capsys, "check", "--url", url)
    assert (code, out) == (1, "projections: table is missing\n")
    monkeypatch.delenv("BROKER_DATABASE_SCHEMA")
    assert opening.find(database_url(url)) == State(version=0, stamped=None)


def test_alembics_commands_work_as_on_sqlite(empty_server: PostgresPlace) -> None:
    def alembic(*arguments: str) -> tuple[int, str]:
        answer = run_alembic("-x", f"url={url}", "-x", "schema=store", *arguments)
        return answer.returncode, answer.stdout

    url = empty_server.url
    code, out = alembic("upgrade", "0003")
    assert (code, out.count("\n")) == (0, 3)
    run(empty_server, "DROP TABLE store.broker_alembic_version")
    assert alembic("stamp", "0003") == (0, "")
    assert alembic("current") == (0, "0003\n")
    assert alembic("upgrade", "+1")[0] == 0
    assert alembic("check") == (0, "no drift: the schema is what the models say\n")
    assert "0004 (head)" in alembic("history", "--indicate-current")[1]
    run(empty_server, "CREATE INDEX mine ON store.inbox (applied_at)")
    assert alembic("check")[0] == 1
    assert alembic("downgrade", "base")[0] == 0
    assert found(empty_server, "SELECT count(*) FROM pg_class WHERE relname = 'streams'") == [(0,)]


def test_alembic_answers_a_mistake_with_one_line(empty_server: PostgresPlace) -> None:
    url = f"url={empty_server.url}"

    assert_one_line(run_alembic("-x", url, "-x", "schema=no", "current"), 1, "no schema 'no'")
    assert_one_line(run_alembic("-x", url, "-x", "schema=pg_x", "upgrade", "head"), 1, "pg_")
    assert_one_line(run_alembic("-x", url, "stamp", "0002"), 1, "would make the version table lie")


def test_an_old_database_is_upgraded_by_the_command_with_its_counts(
    empty_server: PostgresPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    version_1(empty_server)

    code, out, _ = run_command(capsys, "upgrade", "--url", empty_server.url)

    assert code == 0
    assert "leases ended, epochs kept as lineage: 2" in out
    assert "streams given their owner: 2" in out
