"""Databases of other programs: adopted, refused with every byte kept, or shared."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker import schema
from broker.errors import SchemaError
from broker.schema import versions
from tests.migrations.support import (
    SCRIPTS,
    VECTORS,
    contents,
    looking,
    rows,
    run_sql,
    schema_of,
    url,
    version_1,
)
from tests.reference_checks import assert_reference_would_open

ACCEPTED = [case for case in VECTORS if "upgraded" in case["expect"]]
REFUSED = [case for case in VECTORS if "error" in case["expect"]]


def by_name(case: dict[str, Any]) -> str:
    return str(case["name"])


def dump(path: Path) -> dict[str, Any]:
    """The eight tables in the form of the vectors."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        found: dict[str, Any] = {
            table: [
                _comparable(dict(row))
                for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1")
            ]
            for table in versions.TABLES[3]
        }
        found["user_version"] = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    if str(row.get("actor_id", "")).startswith("\0") and re.fullmatch("[0-9a-f]{32}", row["nonce"]):
        row["nonce"] = "<32 lower-case hex digits>"
    return {
        name: json.loads(value) if name.endswith("_json") and isinstance(value, str) else value
        for name, value in row.items()
    }


def without_floor(tables: dict[str, Any]) -> dict[str, Any]:
    """The floor belongs to the store's opening, which does more than migrate."""
    entries = [row for row in tables["metadata"] if row["key"] != "logical_time_floor"]
    return tables | {"metadata": entries}


@pytest.mark.parametrize("case", ACCEPTED, ids=by_name)
def test_a_recorded_database_is_adopted_and_upgraded(case: dict[str, Any], tmp_path: Path) -> None:
    path = run_sql(tmp_path / "recorded.db", case["script"])

    schema.upgrade(url(path))

    wanted = case["expect"]["upgraded"]
    wanted = wanted | {
        table: [_comparable(row) for row in wanted[table]] for table in versions.TABLES[3]
    }
    assert without_floor(dump(path)) == without_floor(wanted)
    assert_reference_would_open(path)


@pytest.mark.parametrize("case", REFUSED, ids=by_name)
def test_a_recorded_refusal_leaves_every_byte(case: dict[str, Any], tmp_path: Path) -> None:
    path = run_sql(tmp_path / "recorded.db", case["script"])
    before = path.read_bytes()

    with pytest.raises(SchemaError):
        schema.upgrade(url(path))

    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["recorded.db"]


@pytest.mark.parametrize(
    "case", [case for case in REFUSED if not case["name"].endswith("-abort")], ids=by_name
)
def test_a_refusal_for_the_schema_comes_at_the_first_look(
    case: dict[str, Any], tmp_path: Path
) -> None:
    path = run_sql(tmp_path / "recorded.db", case["script"])

    with looking(path) as connection, pytest.raises(SchemaError):
        schema.state(connection)


@pytest.mark.parametrize(
    ("name", "version"), [("v1-empty", 1), ("v2-unique-leases-survive", 2), ("v3-as-it-is", 3)]
)
def test_looking_finds_the_version_of_a_database_without_a_version_table(
    name: str, version: int, tmp_path: Path
) -> None:
    path = run_sql(tmp_path / "recorded.db", SCRIPTS[name])

    found = schema.current(url(path))

    assert (found.version, found.stamped, found.at_head) == (version, None, False)
    assert found.revision == f"000{version}"


def test_a_version_table_that_the_other_program_has_overtaken_is_stamped_anew(
    tmp_path: Path,
) -> None:
    path = tmp_path / "both.db"
    schema.upgrade(url(path), "0003")
    run_sql(path, "UPDATE broker_alembic_version SET version_num = '0001'")

    reports = schema.upgrade(url(path))

    assert [report.revision for report in reports] == ["0004"]
    assert schema.current(url(path)).at_head


def test_an_overtaken_version_table_does_not_excuse_an_invalid_schema(tmp_path: Path) -> None:
    path = tmp_path / "both.db"
    schema.upgrade(url(path), "0002")
    run_sql(
        path,
        "UPDATE metadata SET value = '3' WHERE key = 'schema_version'; PRAGMA user_version = 3",
    )
    before = path.read_bytes()

    with pytest.raises(SchemaError):
        schema.upgrade(url(path))

    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "disagreement",
    [
        "UPDATE broker_alembic_version SET version_num = '0003'",
        "UPDATE broker_alembic_version SET version_num = '0004'",
        "UPDATE broker_alembic_version SET version_num = 'abcdef'",
        "INSERT INTO broker_alembic_version VALUES ('0001')",
        "DROP TABLE broker_alembic_version;"
        "CREATE TABLE broker_alembic_version (version_num VARCHAR(32) NOT NULL)",
    ],
)
def test_any_other_disagreement_is_refused(disagreement: str, tmp_path: Path) -> None:
    path = tmp_path / "both.db"
    schema.upgrade(url(path), "0002")
    run_sql(path, disagreement)
    before = path.read_bytes()

    with pytest.raises(SchemaError, match="broker_alembic_version"):
        schema.upgrade(url(path))

    assert path.read_bytes() == before


def test_a_strangers_database_is_refused_until_it_is_said_to_be_shared(tmp_path: Path) -> None:
    path = run_sql(
        tmp_path / "app.db", "CREATE TABLE orders (id INTEGER); INSERT INTO orders VALUES (7)"
    )
    before = path.read_bytes()

    with pytest.raises(SchemaError, match="shared=True"):
        schema.upgrade(url(path))
    assert path.read_bytes() == before

    schema.upgrade(url(path), shared=True)
    assert rows(path, "SELECT id FROM orders") == [(7,)]
    assert schema.current(url(path)).at_head


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("CREATE TABLE events (id INTEGER)", "events"),
        ("CREATE TABLE Streams (id INTEGER)", "Streams"),
        ("CREATE VIEW inbox AS SELECT 1", "inbox"),
        ("CREATE TABLE metadata (id INTEGER)", "metadata"),
        ("CREATE VIEW metadata AS SELECT 1", "metadata"),
        ("CREATE TABLE broker_alembic_version (id INTEGER)", "broker_alembic_version"),
        ("CREATE TABLE t (a); CREATE INDEX outbox_pending_idx ON t(a)", "outbox_pending_idx"),
        (
            "CREATE TABLE t (a); CREATE TRIGGER streams_no_delete AFTER INSERT ON t BEGIN SELECT 1; END",
            "streams_no_delete",
        ),
    ],
)
def test_a_name_of_ours_in_use_is_refused_by_name(
    statement: str, name: str, tmp_path: Path
) -> None:
    path = run_sql(tmp_path / "app.db", statement)
    before = path.read_bytes()

    with pytest.raises(SchemaError, match=rf"\b{name}\b"):
        schema.upgrade(url(path), shared=True)

    assert path.read_bytes() == before


def test_an_application_that_uses_user_version_cannot_share(tmp_path: Path) -> None:
    path = run_sql(tmp_path / "app.db", "CREATE TABLE t (a); PRAGMA user_version = 12")
    before = path.read_bytes()

    with pytest.raises(SchemaError, match="user_version is 12"):
        schema.upgrade(url(path), shared=True)

    assert path.read_bytes() == before


def test_a_name_of_a_later_revision_in_use_is_refused_before_anything_is_done(
    tmp_path: Path,
) -> None:
    path = run_sql(
        version_1(tmp_path / "1.db"), "CREATE TABLE t (a); CREATE INDEX events_message_idx ON t(a)"
    )
    before = path.read_bytes()

    with pytest.raises(SchemaError, match="events_message_idx"):
        schema.upgrade(url(path))

    assert path.read_bytes() == before


def test_an_applications_own_alembic_version_is_left_alone(tmp_path: Path) -> None:
    path = run_sql(
        tmp_path / "app.db",
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL);"
        "INSERT INTO alembic_version VALUES ('theirs')",
    )

    schema.upgrade(url(path), shared=True)
    schema.downgrade(url(path), "base")

    assert rows(path, "SELECT * FROM alembic_version") == [("theirs",)]
    assert [row[1] for row in schema_of(path)] == ["alembic_version"]


def test_a_populated_database_keeps_every_row_that_no_rule_changes(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    before = contents(path)

    schema.upgrade(url(path))

    after = contents(path)
    for table in ("inbox", "events", "outbox", "projections"):
        assert after[table] == before[table]
    assert [row[:5] for row in after["streams"]] == before["streams"]


def test_looking_at_a_reference_database_writes_nothing(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    before = path.read_bytes()

    with looking(path) as connection:
        schema.state(connection)
        schema.drift(connection)
    schema.current(url(path))

    assert path.read_bytes() == before
