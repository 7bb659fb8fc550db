"""The checks with which the reference opens a database, stated anew in plain `sqlite3`.

Nothing of `broker` is imported: a fault there must not be able to excuse itself here. The facts are
those of schema version 3 as the reference knows it, written out once more.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

# `*` marks the key, `#` an INTEGER (else TEXT), `?` a column that may be NULL.
TABLES = {
    "metadata": "key* value",
    "actor_leases": (
        "actor_id* stream_id holder_id epoch# nonce acquired_at# heartbeat_at# expires_at#"
    ),
    "streams": "stream_id* revision# created_at# updated_at# workspace_id?",
    "inbox": "message_id* request_hash stream_id applied_revision# result_json applied_at#",
    "mutation_receipts": "request_id* method params_hash response_json created_at#",
    "events": (
        "event_id* message_id stream_id revision# event_type payload_json producer_epoch#"
        " occurred_at# correlation_id? causation_id? trace_id?"
    ),
    "outbox": (
        "outbox_id* message_id event_id? destination payload_json created_at# available_at#"
        " delivered_at#? attempts#"
    ),
    "projections": "projection_id* stream_id revision# value_json updated_at#",
}
INDEXES = {
    "actor_leases_stream_id_uq": ("actor_leases", ["stream_id"], 1),
    "streams_workspace_stream_idx": ("streams", ["workspace_id", "stream_id"], 0),
    "mutation_receipts_created_idx": ("mutation_receipts", ["created_at", "request_id"], 0),
}
CANONICAL = re.compile(r"0|[1-9][0-9]*")


def assert_reference_would_open(path: Path | str) -> None:
    """Fail, naming the fault, unless the reference would open this file as version 3 as it is."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        _assert_versions(connection)
        for table, spec in TABLES.items():
            _assert_table(connection, table, spec)
        for index, facts in INDEXES.items():
            _assert_index(connection, index, *facts)
        _assert_trigger(connection)
        _assert_floor(connection)


def _assert_versions(connection: sqlite3.Connection) -> None:
    rows = connection.execute("SELECT value FROM metadata WHERE key = 'schema_version'").fetchall()
    assert rows == [("3",)], f"metadata.schema_version is {rows}"
    (user_version,) = connection.execute("PRAGMA user_version").fetchone()
    assert user_version == 3, f"user_version is {user_version}"


def _assert_table(connection: sqlite3.Connection, table: str, spec: str) -> None:
    strict = connection.execute(
        "SELECT strict FROM pragma_table_list"
        " WHERE schema = 'main' AND type = 'table' AND name = ?",
        (table,),
    ).fetchall()
    assert strict == [(1,)], f"table {table} is missing or is not STRICT"

    found = [
        (name, kind.upper(), bool(not_null), bool(key))
        for _, name, kind, not_null, _, key in connection.execute(f"PRAGMA table_info({table})")
    ]
    wanted = [
        (word.rstrip("*#?"), "INTEGER" if "#" in word else "TEXT", "?" not in word, "*" in word)
        for word in spec.split()
    ]
    assert found == wanted, f"table {table} has incompatible columns: {found}"


def _assert_index(
    connection: sqlite3.Connection, index: str, table: str, columns: list[str], unique: int
) -> None:
    listed = {row[1]: row[2] for row in connection.execute(f"PRAGMA index_list({table})")}
    assert listed.get(index) == unique, f"index {index} is missing or incompatible"
    found = [row[2] for row in connection.execute(f"PRAGMA index_info({index})")]
    assert found == columns, f"index {index} has incompatible columns: {found}"


def _assert_trigger(connection: sqlite3.Connection) -> None:
    row = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = 'streams_workspace_immutable'"
    ).fetchone()
    assert row is not None, "trigger streams_workspace_immutable is missing"
    assert "OLD.workspace_id IS NOT NULL" in row[0], row[0]


def _assert_floor(connection: sqlite3.Connection) -> None:
    rows = connection.execute("SELECT value FROM metadata WHERE key = 'logical_time_floor'")
    for (value,) in rows:
        assert CANONICAL.fullmatch(value), f"the floor {value!r} is not canonical"
        assert int(value) < 2**53, f"the floor {value} is not a safe integer"
