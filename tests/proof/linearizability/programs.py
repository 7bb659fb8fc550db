"""What processes are told to do: drawn at random, short, and about the same few things."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.proof.linearizability.doors import DOORS

MOST_OPERATIONS = 24
LONG_MS = 600_000
SHORT_MS = (1, 2, 3, 5, 8, 13)

#: What a thread is to ask for; by which door is added to each.
Order = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """What each thread of each process is to do, after `setup` was done.

    `patience` is their busy timeout in milliseconds; `actors` and `streams` are all it is about.
    """

    setup: list[Order]
    processes: list[list[list[Order]]]
    patience: int
    actors: list[str]
    streams: list[str]


def draw(seed: int) -> Program:
    """A program, always the same for the same seed."""
    return _Drawing(seed).program()


class _Drawing:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.prefix = f"{seed}"
        self.made = 0
        self.kind = self.random.choice(list(_KINDS))
        self.streams = [f"{self.prefix}-s{n}" for n in range(self.random.choice((1, 1, 2)))]
        self.actors = [f"{self.prefix}-a{n}" for n in range(self.random.choice((1, 2, 3)))]

    def program(self) -> Program:
        processes = self.random.randint(2, 4)
        threads = self.random.randint(1, 3)
        each = max(1, min(6, MOST_OPERATIONS // (processes * threads)))
        is_leased = self.kind != "leases" or self.random.random() < 0.5
        setup = [self.shared_acquire() | {"door": DOORS[0]}] if is_leased else []
        return Program(
            setup,
            [[self.thread(each) for _ in range(threads)] for _ in range(processes)],
            self.random.choice((5_000, 5_000, 5_000, 4)),
            self.actors,
            self.streams,
        )

    def thread(self, count: int) -> list[Order]:
        """What one thread does, all by the same door."""
        door = self.random.choice(DOORS)
        return [self.order() | {"door": door} for _ in range(count)]

    def order(self) -> Order:
        if self.random.random() < 0.12:
            return {"again": self.random.randrange(100)}
        makers, weights = zip(*_KINDS[self.kind], strict=True)
        make: Callable[[_Drawing], Order] = self.random.choices(makers, weights)[0]
        pause = self.random.choice((0, 0, 0, 1, 3, 10)) if self.kind == "leases" else 0
        return make(self) | {"pause": pause}

    def new(self, what: str) -> str:
        self.made += 1
        return f"{self.prefix}-{what}{self.made}"

    def actor(self) -> str:
        return self._one_of(self.actors)

    def stream(self) -> str:
        return self._one_of(self.streams)

    def _one_of(self, names: list[str]) -> str:
        """The first one more often where it has the lease that the others need."""
        first = 1 if self.kind == "leases" else 8
        return self.random.choices(names, [first, *[1 for _ in names[1:]]])[0]

    def ttl(self) -> int:
        return self.random.choice((LONG_MS, *SHORT_MS))

    def request_id(self) -> str | None:
        """An id of its own, now and then one that others use too, for whatever they ask."""
        if self.random.random() < 0.15:
            return f"{self.prefix}-r{self.random.randrange(2)}"
        return self.new("request") if self.random.random() < 0.7 else None

    # ------------------------------------------------------------------------------------- leases

    def acquire(self) -> Order:
        request = {
            "actorId": self.actor(),
            "streamId": self.stream(),
            "holderId": self.new("holder"),
            "ttlMs": self.ttl(),
        }
        return {"method": "acquire_lease", "request": request, "id": self.request_id()}

    def shared_acquire(self) -> Order:
        """What several processes ask for in the same words, under the same id."""
        request = {
            "actorId": self.actors[0],
            "streamId": self.streams[0],
            "holderId": "holder",
            "ttlMs": LONG_MS,
        }
        return {"method": "acquire_lease", "request": request, "id": f"{self.prefix}-shared"}

    def takeover(self) -> Order:
        return self.acquire() | {"method": "takeover_lease"}

    def heartbeat(self) -> Order:
        return self._shown("heartbeat_lease", ttlMs=self.ttl())

    def swap(self) -> Order:
        return self._shown(
            "compare_and_swap_lease", nextHolderId=self.new("holder"), ttlMs=self.ttl()
        )

    def lasting_swap(self) -> Order:
        return self._shown("compare_and_swap_lease", nextHolderId=self.new("holder"), ttlMs=LONG_MS)

    def release(self) -> Order:
        return self._shown("release_lease")

    def get(self) -> Order:
        return {"method": "get_lease", "request": {"actorId": self.actor()}}

    def _shown(self, method: str, **request: Any) -> Order:
        """An operation that shows the newest lease that is known, now and then an older one."""
        return {
            "method": method,
            "request": {"actorId": self.actor(), **request},
            "lease": self.random.choice((-1, -1, -1, -2)),
            "id": self.request_id(),
        }

    # ------------------------------------------------------------------------------------ appending

    def commit(self) -> Order:
        message = self.new("message")
        events = [
            {"eventId": f"{message}-{n}", "eventType": "note", "payload": None}
            for n in range(self.random.choice((0, 1, 1, 1, 2, 3)))
        ]
        request = {
            "messageId": message,
            "actorId": self.actor(),
            "streamId": self.stream(),
            "events": events,
        }
        return {"method": "commit", "request": request, "lease": self.random.choice((-1, -1, -2))}

    def shared_commit(self) -> Order:
        """What several processes ask for under the same id: in the same words, or in others."""
        message = f"{self.prefix}-shared{self.random.randrange(3)}"
        event = {"eventId": message, "eventType": "note", "payload": None}
        request = {
            "messageId": message,
            "actorId": self.actors[0],
            "streamId": self.streams[0],
            "expectedRevision": self.random.choice((0, 0, 0, 0, 1)),
            "events": [event],
        }
        return {"method": "commit", "request": request, "lease": -1}

    def revision(self) -> Order:
        return {"method": "get_stream_revision", "request": {"streamId": self.stream()}}

    def events(self) -> Order:
        return {"method": "read_events", "request": {"streamId": self.stream()}}


_LEASES: Sequence[tuple[Callable[[_Drawing], Order], int]] = (
    (_Drawing.acquire, 5),
    (_Drawing.takeover, 3),
    (_Drawing.heartbeat, 4),
    (_Drawing.swap, 3),
    (_Drawing.release, 3),
    (_Drawing.get, 3),
    (_Drawing.shared_acquire, 1),
)
_APPENDS: Sequence[tuple[Callable[[_Drawing], Order], int]] = (
    (_Drawing.commit, 8),
    (_Drawing.shared_commit, 3),
    (_Drawing.revision, 3),
    (_Drawing.events, 2),
)
# Appending alone, leases alone, and appending by who may lose its lease at any time.
_KINDS = {
    "appends": _APPENDS,
    "leases": _LEASES,
    "both": (
        *_APPENDS,
        (_Drawing.get, 4),
        (_Drawing.lasting_swap, 4),
        (_Drawing.release, 1),
        (_Drawing.acquire, 3),
    ),
}
