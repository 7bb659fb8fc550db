"""What is committed: requests as a client would send them, and the same as ready-made parameters."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from broker import Options
from broker.commits import PreparedCommit, prepare
from broker.messages import Lease
from broker.runtime_events import workspace_of

ACTOR = "actor-0001"
STREAM = "stream-0001"
NONCE = "0123456789abcdef0123456789abcdef"
PAGE_MAX_BYTES = Options().page_max_bytes
FIRST_MS = 1_800_000_000_000
FOREVER_MS = 10**14

_TEXT = "The quick brown fox jumps over the lazy dog, and nobody has ever asked it why. "
_PAYLOAD_BYTES = 1_024

Request = dict[str, Any]
Ids = Callable[[int], str]


def ticking_options() -> Options:
    """Options under which every transaction comes in a millisecond of its own, from `FIRST_MS` on.

    As in real life, where commits are seldom two in a millisecond: so the store persists its clock
    every time, and the floor does exactly the same.
    """
    ticks = itertools.count(FIRST_MS)
    return Options(wall_clock=lambda: next(ticks), nonce=lambda: NONCE)


# --------------------------------------------------------------------------------------- payloads


def payload(number: int) -> dict[str, Any]:
    """A payload as applications have them, 1 KiB as JSON: nested, of every kind of value."""
    form: dict[str, Any] = {
        "kind": "task.progressed",
        "taskId": f"task-{number:08d}",
        "attempt": number % 7,
        "ratio": (number % 1_000) / 1_000 + 0.0005,
        "final": number % 2 == 0,
        "parent": None,
        "labels": ["alpha", "beta", f"shard-{number % 16}"],
        "worker": {"host": f"node-{number % 64}.example.org", "pid": 4_000 + number % 999},
        "steps": [
            {"name": f"step-{step}", "startedAt": FIRST_MS + number + step, "ok": step != 3}
            for step in range(4)
        ],
        "text": "",
    }
    form["text"] = (_TEXT * 12)[: _PAYLOAD_BYTES - len(orjson.dumps(form))]
    return form


def runtime_event(number: int) -> dict[str, Any]:
    """A payload that is a runtime event: its stream belongs to a workspace."""
    return {
        "version": 2,
        "revision": 1,
        "streamId": STREAM,
        "sequence": number + 1,
        "actor": {
            "version": 2,
            "revision": 1,
            "workspaceId": "workspace-1",
            "actorKind": "root",
            "actorId": ACTOR,
            "generation": 1,
        },
        "producerEpoch": 1,
        "occurredAt": FIRST_MS,
        "kind": "domain.event",
        "eventType": "teammate.runtime-read-model.frame.v2",
        "eventId": f"domain-{number}",
        "payload": payload(number) | {"text": ""},
    }


# --------------------------------------------------------------------------------------- requests


def time_ordered(number: int) -> str:
    """An id as a UUID of version 7 is: later ones are greater."""
    return f"{number:016x}-{number * 2_654_435_761 % 2**64:016x}"


def at_random(seed: int = 7) -> Ids:
    """Ids as UUIDs of version 4 are: each lands anywhere in an index."""
    rng = random.Random(seed)
    return lambda _number: f"{rng.getrandbits(64):016x}-{rng.getrandbits(64):016x}"


@dataclass(frozen=True, slots=True)
class Kind:
    """What commits are made of."""

    event_type: str
    payload: Callable[[int], dict[str, Any]]
    ids: Ids = time_ordered


PLAIN = Kind("task.progressed", payload)
RUNTIME_EVENT = Kind("domain.event", runtime_event)


@dataclass(slots=True)
class Requests:
    """The commits of one stream, one after another, each expecting what the last one left.

    Streams that share `numbers` never draw the same id.
    """

    lease: Lease
    kind: Kind = PLAIN
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    number: int = 0
    revision: int = 0
    first_event_id: str = ""
    credential: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.credential = {"epoch": self.lease.epoch, "nonce": self.lease.nonce}

    def next(self, events: int = 1) -> Request:
        """A commit of some events of 1 KiB, an outbox message and a projection."""
        self.number = next(self.numbers)
        drawn = self.kind.ids(self.number)
        self.first_event_id = self.first_event_id or f"e-{drawn}-0"
        stream_id = self.lease.stream_id
        request = {
            "messageId": f"m-{drawn}",
            "actorId": self.lease.actor_id,
            "streamId": stream_id,
            "lease": self.credential,
            "expectedRevision": self.revision,
            "events": [self._event(f"e-{drawn}-{index}", index) for index in range(events)],
            "outbox": [self._message(drawn)],
            "projections": [{"projectionId": f"{stream_id}:state", "value": {"at": self.revision}}],
        }
        self.revision += events
        return request

    def unused(self) -> Request:
        """A commit that the stream will not have had, for it is to be refused."""
        request = self.next()
        self.revision = request["expectedRevision"]
        return request

    def _event(self, event_id: str, index: int) -> dict[str, Any]:
        payload = self.kind.payload(self.revision + index)
        return {"eventId": event_id, "eventType": self.kind.event_type, "payload": payload}

    def _message(self, drawn: str) -> dict[str, Any]:
        return {
            "outboxId": f"o-{drawn}",
            "destination": "notifications",
            "eventId": f"e-{drawn}-0",
            "payload": {"number": self.number, "reason": "progress"},
        }


# ------------------------------------------------------------------------- ready-made parameters


class Ready(NamedTuple):
    """The parameters of every statement of a commit that has them."""

    look: tuple[str, str, str]
    clock: tuple[str]
    stream: tuple[int, int, str | None, str]
    inbox: tuple[str, str, str, int, str, int]
    events: list[tuple[Any, ...]]
    outbox: tuple[Any, ...]
    projection: tuple[str, str, int, str, int]

    def at_any_cursor(self) -> Ready:
        """The same where others write too: SQLite gives each event the next cursor."""
        return self._replace(events=[(*event[:-1], None) for event in self.events])


def ready(request: Request, now: int) -> Ready:
    """What the store would bind for this request at `now`, if it is the only stream there is."""
    sent = prepare(request, PAGE_MAX_BYTES)
    stream_id = sent.stream_id
    revision = sent.expected_revision + len(sent.events)
    outbox_id, destination, event_id, _ = sent.outbox[0]
    (*_, payload) = sent.events[0]
    workspace_id = workspace_of(payload, stream_id)
    return Ready(
        look=(sent.message_id, sent.actor_id, stream_id),
        clock=(str(now),),
        stream=(revision, now, workspace_id, stream_id),
        inbox=(sent.message_id, sent.request_hash, stream_id, revision, _result(sent, now), now),
        events=_event_rows(sent, now),
        outbox=(
            outbox_id,
            sent.message_id,
            event_id,
            destination,
            sent.outbox_payloads[0],
            now,
            now,
        ),
        projection=(sent.projection_ids[0], stream_id, revision, sent.values[0], now),
    )


def _event_rows(sent: PreparedCommit, now: int) -> list[tuple[Any, ...]]:
    own = (sent.lease.epoch, now, None, None, None)
    return [
        (event_id, sent.message_id, sent.stream_id, at, event_type, text, *own, at)
        for at, (event_id, event_type, *_), text in zip(
            itertools.count(sent.expected_revision + 1), sent.events, sent.payloads, strict=False
        )
    ]


def _result(sent: PreparedCommit, now: int) -> str:
    before, count = sent.expected_revision, len(sent.events)
    form = {
        "messageId": sent.message_id,
        "streamId": sent.stream_id,
        "previousRevision": before,
        "revision": before + count,
        "eventIds": [event[0] for event in sent.events],
        "eventCursors": list(range(before + 1, before + count + 1)),
        "outboxIds": [message[0] for message in sent.outbox],
        "appliedAt": now,
        "recovered": False,
    }
    return orjson.dumps(form).decode()
