"""The database of version 1: made from the SQL under examples/, and read with plain `sqlite3`.

What it holds is noted before anything migrates it, with nothing of `broker` in between, as the
measure for everything that is claimed about it later.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL

from broker.errors import ConfigurationError, DatabaseUnavailable

EXAMPLE = "version_1.sql"

Row = tuple[Any, ...]

_KEPT = ("inbox", "events", "outbox", "projections")


@dataclass(frozen=True, slots=True)
class Legacy:
    """What a version 1 database holds; its actors write to streams of their own names.

    `owners` has the streams with runtime events, `frames` the read-model events with their streams
    in journal order, `projections` each with its stream, revision and value, `commits` the requests,
    as far as they can be told from what was stored, with their results.
    """

    epochs: dict[str, int]
    revisions: dict[str, int]
    owners: dict[str, str]
    frames: list[tuple[str, str]]
    pending: list[str]
    projections: dict[str, tuple[str, int, Any]]
    commits: list[tuple[dict[str, Any], dict[str, Any]]]
    rows: dict[str, list[Row]]


def example_sql() -> str:
    """The SQL: inside an installed package, or under examples/ of a checkout."""
    package = Path(__file__).resolve().parent.parent.parent
    places = [package / "_examples" / EXAMPLE, package.parent / "examples" / EXAMPLE]
    for place in places:
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise ConfigurationError(f"the example is missing: neither {places[0]} nor {places[1]} exists")


def sqlite_url(path: Path) -> URL:
    """The URL of a database file, whatever characters its name has."""
    return URL.create("sqlite", database=str(path))


def make(path: Path) -> None:
    """Make the database at `path`; raises DatabaseUnavailable if there is a file, or cannot be."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError as error:
        raise DatabaseUnavailable(f"{path} exists already, and is left alone") from error
    except OSError as error:
        raise DatabaseUnavailable(f"{path} cannot be made: {error.strerror}") from error
    with closing(sqlite3.connect(path)) as database:
        database.executescript(example_sql())


def look(path: Path) -> Legacy:
    """Everything that the demo will want to know about the database later."""
    with closing(sqlite3.connect(path)) as database:
        owners, frames = _runtime_events(database)
        return Legacy(
            epochs=dict(database.execute("SELECT actor_id, epoch FROM actor_leases")),
            revisions=dict(database.execute("SELECT stream_id, revision FROM streams")),
            owners=owners,
            frames=frames,
            pending=[outbox_id for (outbox_id,) in database.execute(_PENDING)],
            projections={
                key: (stream_id, revision, json.loads(text))
                for key, stream_id, revision, text in database.execute(_PROJECTIONS)
            },
            commits=[_commit(database, *row) for row in database.execute(_COMMITS)],
            rows=kept_rows(path),
        )


def kept_rows(path: Path) -> dict[str, list[Row]]:
    """Every row, with its rowid, of the tables that no migration may change."""
    with closing(sqlite3.connect(path)) as database:
        return {
            table: database.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchall()
            for table in _KEPT
        }


_PENDING = "SELECT outbox_id FROM outbox WHERE delivered_at IS NULL ORDER BY created_at, outbox_id"
_PROJECTIONS = "SELECT projection_id, stream_id, revision, value_json FROM projections"

# Older values of a projection are gone, and with them the requests that wrote them.
_COMMITS = """SELECT message_id, stream_id, result_json FROM inbox
WHERE stream_id NOT IN (SELECT stream_id FROM projections) ORDER BY rowid"""


def _runtime_events(database: sqlite3.Connection) -> tuple[dict[str, str], list[tuple[str, str]]]:
    owners, frames = {}, []
    rows = database.execute("SELECT stream_id, event_id, payload_json FROM events ORDER BY rowid")
    for stream_id, event_id, text in rows:
        payload = json.loads(text)
        if isinstance(payload, dict) and "actor" in payload:
            owners[stream_id] = payload["actor"]["workspaceId"]
            if payload.get("eventType") == "teammate.runtime-read-model.frame.v2":
                frames.append((event_id, stream_id))
    return owners, frames


def _commit(
    database: sqlite3.Connection, message_id: str, stream_id: str, result_text: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A request whose lease is long gone, and its result. The example gives all times itself."""
    result = json.loads(result_text)
    events = [
        {"eventId": event_id, "eventType": event_type, "payload": json.loads(payload)}
        | {"occurredAt": occurred_at}
        | ({} if correlation_id is None else {"correlationId": correlation_id})
        for event_id, event_type, payload, occurred_at, correlation_id in database.execute(
            "SELECT event_id, event_type, payload_json, occurred_at, correlation_id FROM events"
            " WHERE message_id = ? ORDER BY revision",
            (message_id,),
        )
    ]
    outbox = [
        {"outboxId": outbox_id, "destination": destination, "payload": json.loads(payload)}
        | {"availableAt": available_at}
        | ({} if event_id is None else {"eventId": event_id})
        for outbox_id, event_id, destination, payload, available_at in database.execute(
            "SELECT outbox_id, event_id, destination, payload_json, available_at FROM outbox"
            " WHERE message_id = ? ORDER BY rowid",
            (message_id,),
        )
    ]
    request = {
        "messageId": message_id,
        "actorId": stream_id,
        "lease": {"epoch": 1, "nonce": "of-a-lease-long-gone"},
        "streamId": stream_id,
        "expectedRevision": result["previousRevision"],
        "events": events,
    }
    request |= {"outbox": outbox} if outbox else {}
    request |= {"inboxResult": result["reply"]} if "reply" in result else {}
    return request, result
