"""The recorded databases of the other program, as they would be on PostgreSQL."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from broker import schema
from broker.errors import SchemaError
from broker.schema import versions
from tests.migrations.postgres_support import dump, looking, recorded
from tests.migrations.support import VECTORS
from tests.places import PostgresPlace, contents

TABLES = [*versions.TABLES[3]]

# There is no STRICT, and no version outside the tables.
NOT_APPLICABLE = {
    "versioned-but-empty",
    "metadata-not-strict",
    "version-mismatch",
    "v1-table-not-strict",
}
ACCEPTED = [case for case in VECTORS if "upgraded" in case["expect"]]
REFUSED = [
    case for case in VECTORS if "error" in case["expect"] and case["name"] not in NOT_APPLICABLE
]


def by_name(case: dict[str, Any]) -> str:
    return str(case["name"])


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the NUL of migrations as U+0001, its random nonce left out, its JSON as values."""
    plain = {
        name: value.replace("\0", "\1") if isinstance(value, str) else value
        for name, value in row.items()
    }
    nonce = str(plain.get("nonce"))
    if re.fullmatch("[0-9a-f]{32}|<32 lower-case hex digits>", nonce):
        plain["nonce"] = "random"
    return {
        name: json.loads(value) if name.endswith("_json") else value
        for name, value in plain.items()
    }


def without_floor(tables: dict[str, Any]) -> dict[str, Any]:
    """The floor belongs to the store's opening, which does more than migrate."""
    return {
        table: [comparable(row) for row in tables[table] if row.get("key") != "logical_time_floor"]
        for table in TABLES
    }


@pytest.mark.parametrize("case", ACCEPTED, ids=by_name)
def test_a_recorded_database_gives_the_same_rows(
    case: dict[str, Any], empty_server: PostgresPlace
) -> None:
    recorded(empty_server, case["name"])

    schema.upgrade(empty_server.url)

    wanted = without_floor(case["expect"]["upgraded"])
    assert without_floor(dump(empty_server, TABLES)) == wanted


@pytest.mark.parametrize("case", REFUSED, ids=by_name)
def test_a_recorded_refusal_leaves_everything(
    case: dict[str, Any], empty_server: PostgresPlace
) -> None:
    recorded(empty_server, case["name"])
    before = contents(empty_server)

    with pytest.raises(SchemaError):
        schema.upgrade(empty_server.url)

    assert contents(empty_server) == before


@pytest.mark.parametrize(
    "case", [case for case in REFUSED if not case["name"].endswith("-abort")], ids=by_name
)
def test_a_refusal_for_the_schema_comes_at_the_first_look(
    case: dict[str, Any], empty_server: PostgresPlace
) -> None:
    recorded(empty_server, case["name"])

    with looking(empty_server) as connection, pytest.raises(SchemaError):
        schema.state(connection)


@pytest.mark.parametrize(
    ("name", "version"), [("v1-empty", 1), ("v2-unique-leases-survive", 2), ("v3-as-it-is", 3)]
)
def test_looking_finds_the_version_of_a_database_without_a_version_table(
    name: str, version: int, empty_server: PostgresPlace
) -> None:
    recorded(empty_server, name)

    at = schema.current(empty_server.url)

    assert (at.version, at.stamped, at.at_head) == (version, None, False)
    assert at.revision == f"000{version}"
