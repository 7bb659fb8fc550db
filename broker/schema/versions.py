"""The frozen facts of schema versions 1 to 3, and which Alembic revision stands for which.

What PostgreSQL has instead or besides is in `broker.schema.postgresql.catalogue`.

Nothing here follows from the models: a revision, and the check of a database that some other
program made, must mean the same in ten years.
"""

from __future__ import annotations

from typing import NamedTuple

VERSION_TABLE = "broker_alembic_version"

HEAD = "0004"
NEWEST_VERSION = 3

#: The revision that leaves a database at each schema version; None is an empty database.
REVISION_OF: dict[int, str | None] = {0: None, 1: "0001", 2: "0002", 3: "0003"}

#: The schema version of a database at each revision: 0004 adds to version 3 and keeps its number.
VERSION_OF: dict[str, int] = {"0001": 1, "0002": 2, "0003": 3, "0004": 3}


class Column(NamedTuple):
    name: str
    type: str
    not_null: bool
    key: bool


class IndexFacts(NamedTuple):
    table: str
    columns: tuple[str, ...]
    unique: bool


def _columns(spec: str) -> tuple[Column, ...]:
    """Read a table's spec: `*` marks the key, `#` INTEGER instead of TEXT, `?` NULL allowed."""
    return tuple(
        Column(
            word.rstrip("*#?"), "INTEGER" if "#" in word else "TEXT", "?" not in word, "*" in word
        )
        for word in spec.split()
    )


_LEASE_TIMES = "acquired_at# heartbeat_at# expires_at#"

_VERSION_1 = {
    "metadata": _columns("key* value"),
    "actor_leases": _columns(f"actor_id* holder_id epoch# nonce {_LEASE_TIMES}"),
    "streams": _columns("stream_id* revision# created_at# updated_at#"),
    "inbox": _columns(
        "message_id* request_hash stream_id applied_revision# result_json applied_at#"
    ),
    "events": _columns(
        "event_id* message_id stream_id revision# event_type payload_json producer_epoch#"
        " occurred_at# correlation_id? causation_id? trace_id?"
    ),
    "outbox": _columns(
        "outbox_id* message_id event_id? destination payload_json created_at# available_at#"
        " delivered_at#? attempts#"
    ),
    "projections": _columns("projection_id* stream_id revision# value_json updated_at#"),
}
_VERSION_2 = _VERSION_1 | {
    "actor_leases": _columns(f"actor_id* stream_id holder_id epoch# nonce {_LEASE_TIMES}")
}
_VERSION_3 = _VERSION_2 | {
    "streams": _columns("stream_id* revision# created_at# updated_at# workspace_id?"),
    "mutation_receipts": _columns("request_id* method params_hash response_json created_at#"),
}

TABLES = {1: _VERSION_1, 2: _VERSION_2, 3: _VERSION_3}

OWNERSHIP_TRIGGER = "streams_workspace_immutable"
OWNERSHIP_CONDITION = "OLD.workspace_id IS NOT NULL"  # what its text has to contain

INDEXES_3 = {
    "actor_leases_stream_id_uq": IndexFacts("actor_leases", ("stream_id",), unique=True),
    "streams_workspace_stream_idx": IndexFacts(
        "streams", ("workspace_id", "stream_id"), unique=False
    ),
    "mutation_receipts_created_idx": IndexFacts(
        "mutation_receipts", ("created_at", "request_id"), unique=False
    ),
}

INDEXES_OF_HEAD = (
    "events_message_idx",
    "events_read_model_idx",
    "outbox_message_idx",
    "outbox_undelivered_idx",
)
TRIGGERS_OF_HEAD = (
    "events_no_delete",
    "events_no_replace",
    "events_no_update",
    "events_rowid_positive",
    "streams_identity_immutable",
    "streams_no_delete",
    "streams_no_replace",
    "streams_rowid_positive",
)

_NAMES_1 = frozenset({*_VERSION_1, "outbox_pending_idx"})

#: What a database has by schema version, by name; whoever shares it must not use them.
NAMES_OF: dict[int, frozenset[str]] = {
    0: frozenset({"metadata"}),
    1: _NAMES_1,
    2: _NAMES_1,
    3: _NAMES_1 | {*_VERSION_3, *INDEXES_3, OWNERSHIP_TRIGGER},
}
NAMES = NAMES_OF[3] | {*INDEXES_OF_HEAD, *TRIGGERS_OF_HEAD, VERSION_TABLE}

#: Tables that an application's migrations must leave alone.
TABLE_NAMES = frozenset({*_VERSION_3, VERSION_TABLE})
