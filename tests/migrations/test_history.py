"""The revisions as a history: one line, short ids, frozen."""

from __future__ import annotations

import ast
from pathlib import Path

import alembic
import pytest
from alembic.script import ScriptDirectory

from broker import schema
from broker.errors import ConfigurationError
from broker.schema import migrate, versions
from tests.migrations.support import ROOT

SCRIPTS = ScriptDirectory(str(ROOT / "alembic"))
FILES = sorted((ROOT / "alembic" / "versions").glob("*.py"))


def test_there_is_one_head_and_it_is_the_one_that_the_package_expects() -> None:
    assert SCRIPTS.get_heads() == [versions.HEAD]


def test_the_history_is_one_line_from_base_to_head() -> None:
    walked = [script.revision for script in SCRIPTS.walk_revisions()]

    assert walked == ["0004", "0003", "0002", "0001"]
    assert SCRIPTS.get_bases() == ["0001"]


def test_every_revision_has_a_schema_version() -> None:
    assert set(versions.VERSION_OF) == {script.revision for script in SCRIPTS.walk_revisions()}


def test_b22_revision_ids_fit_into_32_characters() -> None:
    assert all(len(script.revision) <= 32 for script in SCRIPTS.walk_revisions())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_revision_does_not_import_what_will_change(file: Path) -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
    }

    assert imported <= {
        "__future__",
        "alembic",
        "broker.schema.steps",
        "broker.schema.backfill",
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_b22_raw_statements_never_pass_through_the_parser_of_bind_parameters(file: Path) -> None:
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "op"
    }

    assert called == set(), "statements go through Step.execute, which takes them verbatim"


def test_the_folder_of_revisions_never_hides_the_library() -> None:
    assert not list((ROOT / "alembic").rglob("__init__.py"))
    assert Path(str(alembic.__file__)).parent != ROOT / "alembic"


def test_missing_scripts_are_reported_with_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "__file__", str(tmp_path / "broker" / "schema" / "migrate.py"))

    with pytest.raises(ConfigurationError) as refused:
        schema.upgrade(f"sqlite:///{tmp_path / 'x.db'}")

    assert str(tmp_path / "broker" / "_alembic") in refused.value.message
    assert str(tmp_path / "alembic") in refused.value.message
