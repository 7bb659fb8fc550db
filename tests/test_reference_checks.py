"""The independent checks themselves: they accept what is right and see every fault they are for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from broker import schema
from tests import reference_checks
from tests.migrations.support import SCRIPTS, run_sql, url
from tests.reference_checks import assert_reference_would_open

FAULTS = [
    "PRAGMA user_version = 2",
    "UPDATE metadata SET value = '03' WHERE key = 'schema_version'",
    "DELETE FROM metadata WHERE key = 'schema_version'",
    "UPDATE metadata SET value = '07' WHERE key = 'logical_time_floor'",
    "UPDATE metadata SET value = '9007199254740992' WHERE key = 'logical_time_floor'",
    "DROP TABLE projections",
    "DROP TABLE projections; CREATE TABLE projections (projection_id TEXT PRIMARY KEY)",
    "ALTER TABLE inbox ADD COLUMN more TEXT",
    "ALTER TABLE inbox RENAME COLUMN applied_at TO done_at",
    "DROP INDEX actor_leases_stream_id_uq",
    "DROP INDEX actor_leases_stream_id_uq;"
    "CREATE INDEX actor_leases_stream_id_uq ON actor_leases(stream_id)",
    "DROP INDEX mutation_receipts_created_idx;"
    "CREATE INDEX mutation_receipts_created_idx ON mutation_receipts(request_id, created_at)",
    "DROP TRIGGER streams_workspace_immutable",
    "DROP TRIGGER streams_workspace_immutable; CREATE TRIGGER streams_workspace_immutable"
    " BEFORE UPDATE ON streams BEGIN SELECT 1; END",
]


def test_they_accept_the_reference_own_database(tmp_path: Path) -> None:
    path = run_sql(tmp_path / "theirs.db", SCRIPTS["v3-as-it-is"])

    assert_reference_would_open(path)
    assert path.exists()


@pytest.mark.parametrize("name", ["v1-empty", "v2-unique-leases-survive", "v3-as-it-is"])
def test_they_accept_what_was_upgraded(name: str, tmp_path: Path) -> None:
    path = run_sql(tmp_path / "theirs.db", SCRIPTS[name])
    assert schema.upgrade(url(path))

    assert_reference_would_open(path)


@pytest.mark.parametrize("fault", FAULTS)
def test_they_see_a_fault(fault: str, tmp_path: Path) -> None:
    path = run_sql(tmp_path / "theirs.db", SCRIPTS["v3-as-it-is"])
    run_sql(path, fault)

    with pytest.raises(AssertionError):
        assert_reference_would_open(path)


def test_they_import_nothing_of_the_code_under_test() -> None:
    tree = ast.parse(Path(str(reference_checks.__file__)).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }

    assert modules == {"__future__", "contextlib", "pathlib", "re", "sqlite3"}
