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
from broker.schema.sqlite.catalogue import VERSION_TABLE_DDL
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


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "INSERT INTO metadata VALUES ('title', 'theirs')",
        "INSERT INTO metadata VALUES ('schema_version', 'theirs')",
    ],
)
def test_an_applications_metadata_of_our_shape_is_refused_by_name(
    statement: str, tmp_path: Path
) -> None:
    path = run_sql(
        tmp_path / "app.db",
        "CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
        f"CREATE TABLE orders (id INTEGER); {statement}",
    )
    before = path.read_bytes()

    with pytest.raises(SchemaError, match="already in use in this database: metadata;") as caught:
        schema.upgrade(url(path), shared=True)
    assert caught.value.details == {"names": ["metadata"]}
    with pytest.raises(SchemaError, match=r"metadata\.schema_version"):
        schema.upgrade(url(path))

    assert path.read_bytes() == before


def test_a_store_that_lost_its_version_is_not_taken_for_an_applications(tmp_path: Path) -> None:
    path = run_sql(tmp_path / "3.db", SCRIPTS["v3-as-it-is"])
    run_sql(path, "DELETE FROM metadata WHERE key = 'schema_version'")

    with pytest.raises(SchemaError, match=r"metadata\.schema_version is missing"):
        schema.upgrade(url(path), shared=True)


UTF_16 = {
    "empty": "CREATE TABLE t (a); DROP TABLE t",
    "an application's": "CREATE TABLE orders (id INTEGER)",
    "version 1": SCRIPTS["v1-empty"],
    "version 3": SCRIPTS["v3-as-it-is"],
}


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
@pytest.mark.parametrize("script", UTF_16.values(), ids=UTF_16.keys())
def test_a_database_of_another_encoding_is_refused(
    script: str, encoding: str, tmp_path: Path
) -> None:
    path = run_sql(tmp_path / "wide.db", f"PRAGMA encoding = '{encoding}'; {script}")
    before = path.read_bytes()

    with pytest.raises(SchemaError, match=f"is {encoding}") as caught:
        schema.upgrade(url(path), shared=True)

    assert caught.value.details == {"encoding": encoding}
    assert path.read_bytes() == before


@pytest.mark.parametrize("table", ["metadata", "streams", "broker_alembic_version"])
def test_a_table_without_rowid_is_refused(table: str, tmp_path: Path) -> None:
    path = run_sql(tmp_path / "theirs.db", SCRIPTS["v3-as-it-is"] + VERSION_TABLE_DDL + ";")
    with closing(sqlite3.connect(path)) as connection:
        statement = "SELECT sql FROM sqlite_schema WHERE name = ?"
        (create,) = connection.execute(statement, (table,)).fetchone()
        connection.executescript(
            f"CREATE TEMP TABLE kept AS SELECT * FROM {table}; DROP TABLE {table};"
            f"{create.replace('STRICT', 'STRICT, WITHOUT ROWID')};"
            f"INSERT INTO {table} SELECT * FROM kept"
        )
    before = path.read_bytes()

    with pytest.raises(SchemaError, match=f"{table} is missing, not STRICT or WITHOUT ROWID"):
        schema.upgrade(url(path))

    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("UPDATE metadata SET value = {} WHERE key = 'schema_version'", "metadata.schema_version"),
        ("REPLACE INTO metadata VALUES ('logical_time_floor', {})", "metadata.logical_time_floor"),
        ("UPDATE broker_alembic_version SET version_num = {}", "broker_alembic_version"),
    ],
)
def test_text_that_is_not_utf_8_is_refused_by_name(
    statement: str, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "garbled.db"
    schema.upgrade(url(path))
    run_sql(path, statement.format("CAST(x'33ff' AS TEXT)"))
    before = path.read_bytes()

    with pytest.raises(SchemaError, match=f"{re.escape(name)} is not UTF-8"):
        schema.upgrade(url(path))

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
