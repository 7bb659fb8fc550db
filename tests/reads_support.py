"""What the tests of reads write, and how they measure what they read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from broker import Broker
from broker.messages import Result
from tests.places import Place, client
from tests.support import acquire, commit_request, event, runtime_event

MODEL = "teammate.runtime-read-model.frame.v2"


def write(store: Broker, stream: str, *events: dict[str, Any]) -> None:
    """Commit events to a stream, whatever its revision, under a lease of its own."""
    actor = f"writer of {stream}"
    lease = store.get_lease({"actorId": actor}) or acquire(store, actor, stream)
    revision = store.get_stream_revision({"streamId": stream})
    store.commit(
        commit_request(
            lease, f"{stream} {revision}", expectedRevision=revision, events=list(events)
        )
    )


def frame(event_id: str, stream: str, workspace: str = "ws", **others: Any) -> dict[str, Any]:
    """A read-model event."""
    return event(event_id, runtime_event(stream, workspace, **others), eventType="domain.event")


def store_raw_event(
    place: Place, event_id: str, payload: str | bytes, revision: int = 2, stream: str = "stream"
) -> None:
    """As another program would: `payload` in bytes may be no UTF-8, on SQLite."""
    with client(place) as other:
        other.execute(
            "INSERT INTO events (event_id, message_id, stream_id, revision, event_type,"
            " payload_json, producer_epoch, occurred_at)"
            " VALUES (?, (SELECT min(message_id) FROM inbox), ?, ?, 'note', CAST(? AS TEXT), 1, 1)",
            (event_id, stream, revision, payload),
        )
        other.execute("UPDATE streams SET revision = ? WHERE stream_id = ?", (revision, stream))


def ids(events: Any) -> list[str]:
    return [each.event_id for each in events]


def array_bytes(results: Sequence[Result]) -> int:
    """The length of results as one JSON array, by the standard library."""
    forms = [result.to_json() for result in results]
    return len(json.dumps(forms, ensure_ascii=False, separators=(",", ":")).encode())
