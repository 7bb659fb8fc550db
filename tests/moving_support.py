"""Stores to move: with everything in them that is hard to move, and read again by another client."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from broker import schema
from broker.models import Base
from tests.places import Place, PostgresPlace, execute, raw, rows, url_of
from tests.support import (
    TTL_MS,
    ManualClock,
    acquire,
    commit_request,
    event,
    open_store,
    outbox_message,
    runtime_event,
)

ODD_STREAM = "strëam/Ω \U0001f980"
LINEAGE = "\0runtime-broker-lineage:"

Dump = dict[str, list[tuple[Any, ...]]]

COLUMNS = {
    name: tuple(column.name for column in table.columns)
    for name, table in Base.metadata.tables.items()
}

# What other programs may have stored: gaps in the journal, text that is not JSON or holds escapes
# of lone surrogates, all of the integers.
ODD_ROWS = (
    "INSERT INTO streams VALUES ('raw', 3, 0, 9223372036854775807, NULL)",
    "INSERT INTO inbox VALUES ('raw', '', 'raw', 3, '{\"a\":\"\\ud800\"}', -9223372036854775808)",
    "INSERT INTO events (rowid, event_id, message_id, stream_id, revision, event_type,"
    " payload_json, producer_epoch, occurred_at) VALUES"
    " (1000, 'raw-1', 'raw', 'raw', 1, 'note', 'no JSON: \\ud800 \\u0000 \t', 7, -1),"
    " (2000, 'raw-3', 'raw', 'raw', 3, 'domain.event', '', 7, 0),"
    " (1500, 'raw-2', 'raw', 'raw', 2, 'domain.event', '{\"eventType\":\"\\udfff\\ud800\"}', 7, 0)",
    "INSERT INTO outbox VALUES ('raw', 'raw', NULL, '', '{', 0, 0, 5, 2)",
    "INSERT INTO metadata VALUES ('another', 'fact')",
)


def make_full(path: Path, clock: ManualClock) -> Path:
    """A store in a file that has rows of every kind, lineage rows among them."""
    with open_store(path, clock) as store:
        lease = acquire(store, stream=ODD_STREAM)
        store.commit(
            commit_request(
                lease,
                "first",
                events=[
                    event("é-1", {"text": "\U0001f980", "lone": "\ud800"}),
                    event("é-2", runtime_event(ODD_STREAM, "wörkspace"), eventType="domain.event"),
                ],
                outbox=[outbox_message("out-1"), outbox_message("out-2", eventId="é-1")],
                projections=[{"projectionId": "π", "value": [1, None]}],
            )
        )
        store.acquire_lease(
            {"actorId": "other", "streamId": "s", "holderId": "h", "ttlMs": TTL_MS},
            request_id="receipt-1",
        )
        clock.advance(TTL_MS)
        acquire(store, stream="next")  # the actor moves on: its old stream keeps its epoch
    with raw(path) as connection:
        for statement in ODD_ROWS:
            connection.execute(statement)
    return path


def make_wide(path: Path, events: int, *, payload: str = "{}") -> Path:
    """A store in a file that has one stream of many events, each of a message of its own."""
    schema.upgrade(url_of(path))
    with raw(path) as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO streams VALUES ('stream', ?, 0, 0, NULL)", (events,))
        numbers = [(f"{n:09}", n) for n in range(1, events + 1)]
        connection.executemany(
            "INSERT INTO inbox VALUES (?, 'hash', 'stream', ?, '{}', 0)", numbers
        )
        connection.executemany(
            "INSERT INTO events VALUES (?1, ?1, 'stream', ?2, 'note', ?3, 1, 0, NULL, NULL, NULL)",
            [(*each, payload) for each in numbers],
        )
        connection.execute("COMMIT")
    return path


def dump(place: Place) -> Dump:
    """Every row as another client reads it, in the order of ids; a lineage as on SQLite."""
    return {
        name: sorted(
            (
                _as_on_sqlite(place, row)
                for row in rows(place, f"SELECT {', '.join(c)} FROM {name}")
            ),
            key=lambda row: row[0],
        )
        for name, c in COLUMNS.items()
    }


def _as_on_sqlite(place: Place, row: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(place, PostgresPlace):
        return row
    return tuple(
        f"\0{value[1:]}" if isinstance(value, str) and value.startswith("\1") else value
        for value in row
    )


def hash_of(dumped: Dump, name: str) -> str:
    """What a report says of these rows, by another way of writing JSON."""
    found = [row for row in dumped[name] if row[0] != "logical_time_floor"]
    if name == "events":
        found.sort(key=lambda row: row[-1])
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in found]
    return sha256("".join(lines).encode()).hexdigest()


def is_empty(place: Place) -> bool:
    """Whether there is no row of a store in a place whose tables were made."""
    kept = {name: len(found) for name, found in dump(place).items() if found}
    return kept == {"metadata": 1}


def put(place: Place, statement: str, *parameters: Any) -> None:
    """Let another client write, on either backend."""
    execute(place, statement, *parameters)
