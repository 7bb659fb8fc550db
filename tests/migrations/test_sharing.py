"""An application with migrations of its own in the same database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, Table, create_engine

from broker import schema
from broker.models import Base
from broker.schema.versions import TABLE_NAMES
from tests.migrations.support import ROOT, run_sql, url


def differences(path: Path, metadata: MetaData | list[MetaData], **options: Any) -> list[Any]:
    engine = create_engine(url(path))
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"target_metadata": metadata, **options}
        )
        found = compare_metadata(context, metadata)  # type: ignore[arg-type]  # takes a list too
    engine.dispose()
    return list(found)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    path = run_sql(
        tmp_path / "app.db",
        "CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY); CREATE TABLE scratch (id INTEGER)",
    )
    schema.upgrade(url(path), shared=True)
    return path


def orders() -> MetaData:
    metadata = MetaData()
    Table("orders", metadata, Column("id", Integer, primary_key=True))
    return metadata


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")
def test_without_the_options_autogenerate_would_drop_our_tables(shared: Path) -> None:
    found = differences(shared, orders())

    dropped = {item[1].name for item in found if item[0] == "remove_table"}
    assert dropped >= TABLE_NAMES


def test_with_the_options_it_sees_only_the_applications_tables(shared: Path) -> None:
    found = differences(shared, orders(), **schema.autogenerate_options())

    assert [(item[0], item[1].name) for item in found] == [("remove_table", "scratch")]


def test_our_models_among_the_applications_change_nothing(shared: Path) -> None:
    options = schema.autogenerate_options()

    found = differences(shared, [orders(), Base.metadata], **options)

    assert [(item[0], item[1].name) for item in found] == [("remove_table", "scratch")]


def test_the_applications_own_filters_see_everything_else(shared: Path) -> None:
    names: list[str | None] = []
    objects: list[str | None] = []

    def include_name(name: str | None, kind: str, _parents: Any) -> bool:
        names.append(name if kind == "table" else None)
        return True

    def include_object(
        _object: Any, name: str | None, _kind: str, _reflected: bool, _other: Any
    ) -> bool:
        objects.append(name)
        return name != "scratch"

    found = differences(
        shared,
        orders(),
        **schema.autogenerate_options(include_name=include_name, include_object=include_object),
    )

    assert found == []
    assert {"orders", "scratch"} <= set(names)
    assert not TABLE_NAMES & {*names, *objects}


def test_a_table_of_our_name_in_another_schema_is_the_applications() -> None:
    options = schema.autogenerate_options()

    assert options["include_name"]("events", "table", {"schema_name": "theirs"})
    assert not options["include_name"]("events", "table", {"schema_name": None})
    assert options["include_name"]("events", "column", {"schema_name": None})


def test_the_example_runs_from_any_folder(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "shared_database" / "run.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert answer.returncode == 0, answer.stderr
    assert "leaves the broker's tables alone: yes" in answer.stdout
