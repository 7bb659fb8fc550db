"""What many tests need: a clock that they move, requests with everything but the point filled in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker import Broker, Options
from broker.messages import Lease

TTL_MS = 60_000


@dataclass
class ManualClock:
    """A wall clock and a monotonic clock, both moved by the test and by nothing else."""

    wall_ms: int = 1_000
    monotonic_ms: float = 0

    def advance(self, ms: int) -> None:
        """Let time pass on both."""
        self.wall_ms += ms
        self.monotonic_ms += ms

    def options(self, **others: Any) -> Options:
        """Options on this clock, with nonces `nonce-1`, `nonce-2`, … unless others are given."""
        counter = iter(range(1, 1_000_000))
        others.setdefault("nonce", lambda: f"nonce-{next(counter)}")
        return Options(
            wall_clock=lambda: self.wall_ms,
            monotonic_clock=lambda: self.monotonic_ms,
            **others,
        )


def url_of(path: Path) -> str:
    """The URL of a database file."""
    return f"sqlite:///{path}"


def acquire(store: Any, actor: str = "actor", stream: str = "stream", **others: Any) -> Lease:
    """A lease on a stream."""
    request = {"actorId": actor, "streamId": stream, "holderId": "holder", "ttlMs": TTL_MS}
    lease: Lease = store.acquire_lease(request | others)
    return lease


def event(event_id: str, payload: Any = None, **others: Any) -> dict[str, Any]:
    """An event to append."""
    return {"eventId": event_id, "eventType": "note", "payload": payload, **others}


def outbox_message(outbox_id: str, **others: Any) -> dict[str, Any]:
    """A message for the outbox."""
    return {"outboxId": outbox_id, "destination": "mail", "payload": {"to": "you"}, **others}


def commit_request(lease: Lease, message_id: str = "message", **others: Any) -> dict[str, Any]:
    """A commit to the lease's stream at revision 0, of one event unless `events` says otherwise."""
    return {
        "messageId": message_id,
        "actorId": lease.actor_id,
        "lease": {"epoch": lease.epoch, "nonce": lease.nonce},
        "streamId": lease.stream_id,
        "expectedRevision": 0,
        "events": [event(f"{message_id}-event")],
    } | others


def runtime_event(stream_id: str, workspace_id: str, **others: Any) -> dict[str, Any]:
    """The payload of a read-model event."""
    return {
        "version": 2,
        "streamId": stream_id,
        "sequence": 1,
        "actor": {
            "version": 2,
            "workspaceId": workspace_id,
            "actorKind": "root",
            "actorId": stream_id,
            "generation": 1,
        },
        "occurredAt": 1,
        "kind": "domain.event",
        "eventType": "teammate.runtime-read-model.frame.v2",
        "eventId": f"frame-{stream_id}",
        "payload": {"frame": 1},
    } | others


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection of another client, with none of the broker's settings."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def rows(path: Path, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """What another client reads from the file."""
    with raw(path) as connection:
        return connection.execute(query, parameters).fetchall()


def open_store(path: Path, clock: ManualClock, **others: Any) -> Broker:
    """A store on a file, on the test's clock."""
    return Broker.open(url_of(path), options=clock.options(**others))
