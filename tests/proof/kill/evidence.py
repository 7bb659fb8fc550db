"""What a store holds, row by row, and whether that is what was asked for."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from tests.places import Client, Place, client
from tests.proof.invariants import snapshot

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Evidence:
    """The rows that asks can be traced to, as a plain client reads them."""

    inbox: dict[str, str]  # results by message
    applied_at: dict[str, int]
    events: dict[str, Rows]  # by message, in the order of revisions
    outbox: dict[str, Rows]  # by message, in the order of ids
    projections: dict[str, tuple[int, str]]
    deliveries: dict[str, int]  # attempts by outbox message
    receipts: dict[str, str]
    leases: dict[str, int]  # epochs by stream

    @classmethod
    def of(cls, place: Place) -> Self:
        """Of a place whose schema is at head."""
        with client(place) as other:
            return cls.seen_by(other, place)

    @classmethod
    def seen_by(cls, other: Client, place: Place) -> Self:
        """As `of`, by a client that is connected to the place already."""
        with snapshot(other, place):
            inbox = other.execute("SELECT message_id, result_json, applied_at FROM inbox")
            messages = inbox.fetchall()
            return cls(
                {message: result for message, result, _ in messages},
                {message: at for message, _, at in messages},
                _by_message(other, _EVENTS),
                _by_message(other, _OUTBOX),
                {key: (at, value) for key, at, value in other.execute(_PROJECTIONS)},
                dict(other.execute("SELECT outbox_id, attempts FROM outbox").fetchall()),
                dict(other.execute("SELECT request_id, response_json FROM mutation_receipts")),
                dict(other.execute("SELECT stream_id, epoch FROM actor_leases").fetchall()),
            )

    def differences(self, request: dict[str, Any]) -> Iterator[str]:
        """How what a commit left differs from what it asked for; nothing, where it is not stored."""
        message = request["messageId"]
        is_stored = message in self.inbox
        epoch = request["lease"]["epoch"]
        events = [
            (
                each["eventId"],
                each["eventType"],
                stored(each["payload"]),
                epoch,
                request["streamId"],
            )
            for each in request["events"]
        ]
        outbox = [
            (each["outboxId"], each["destination"], stored(each["payload"]), each.get("eventId"))
            for each in request.get("outbox", ())
        ]
        for what, wanted, found in (
            ("events", events, self.events.get(message, [])),
            ("outbox messages", sorted(outbox), sorted(self.outbox.get(message, []))),
        ):
            if found != (wanted if is_stored else []):
                yield f"of {message}, {'' if is_stored else 'not '}stored, the {what} are {found}"


def _by_message(other: Client, query: str) -> dict[str, Rows]:
    found: dict[str, Rows] = defaultdict(list)
    for message, *rest in other.execute(query):
        found[message].append(tuple(rest))
    return found


def stored(value: Any) -> str:
    """Stored JSON of a value that has no floats."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_EVENTS = (
    "SELECT message_id, event_id, event_type, payload_json, producer_epoch, stream_id FROM events"
    " ORDER BY stream_id, revision"
)
_OUTBOX = "SELECT message_id, outbox_id, destination, payload_json, event_id FROM outbox"
_PROJECTIONS = "SELECT projection_id, revision, value_json FROM projections"
