"""An application with migrations of its own in the same PostgreSQL database."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import BigInteger, Column, MetaData, Table

from broker import schema
from tests.migrations.postgres_support import looking, run
from tests.places import PostgresPlace


def differences(place: PostgresPlace, **options: Any) -> list[str]:
    """What the application's autogenerate would do."""
    metadata = MetaData()
    Table("orders", metadata, Column("id", BigInteger, primary_key=True))
    with looking(place) as connection:
        context = MigrationContext.configure(
            connection, opts={"target_metadata": metadata, **options}
        )
        return sorted(
            f"{kind} {item.name}" for kind, item, *_ in compare_metadata(context, metadata)
        )


@pytest.mark.parametrize("namespace", [None, "store"])
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")
def test_an_applications_autogenerate_leaves_the_brokers_tables_alone(
    namespace: str | None, empty_server: PostgresPlace
) -> None:
    run(empty_server, "CREATE TABLE orders (id BIGINT PRIMARY KEY); CREATE TABLE scratch (id INT)")
    schema.upgrade(empty_server.url, schema=namespace, shared=True)
    several = {"include_schemas": namespace is not None}

    without = differences(empty_server, **several)
    found = differences(empty_server, **several, **schema.autogenerate_options(schema=namespace))

    assert "remove_table events" in without
    assert found == ["remove_table scratch"]


def test_a_table_of_the_applications_in_another_schema_is_its_own(
    empty_server: PostgresPlace,
) -> None:
    run(empty_server, "CREATE TABLE orders (id BIGINT PRIMARY KEY); CREATE TABLE events (id INT)")
    schema.upgrade(empty_server.url, schema="store")

    found = differences(empty_server, **schema.autogenerate_options(schema="store"))

    assert found == ["remove_table events"]
