"""What is done to the store in a soak, by threads of several processes, all at the same time.

Each role is a step that is repeated as fast as it goes until the end. What has to be expected where
many contend is counted; anything else ends the process with its error.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from broker import IMMEDIATE, AsyncBroker, Broker, configure_engine
from broker.errors import (
    DatabaseBusy,
    LeaseUnavailable,
    OutcomeUnknown,
    Refusal,
    RevisionConflict,
    StaleLease,
)
from broker.messages import Lease
from tests.proof.soak.tally import Tally

WORKSPACE = "soak"
LONG_MS = 10**9
TASKS = 12
HOT_STREAMS = 3

_TRY_AGAIN = (DatabaseBusy, OutcomeUnknown)


@dataclass
class Load:
    """What a process works with; `name` is new in each process, `pause_s` lets others breathe."""

    url: str
    name: str
    seed: int
    pause_s: float
    store: Broker
    tally: Tally
    over: threading.Event = field(default_factory=threading.Event)
    cursor: int = 0

    def steps(self) -> Iterator[int]:
        """A number a step, until it is over."""
        number = 0
        while not self.over.wait(self.pause_s) if self.pause_s else not self.over.is_set():
            yield number
            number += 1


@dataclass
class Stream:
    """A stream that one thread or task writes to, for as long as it has the lease."""

    name: str
    lease: Lease
    revision: int = 0
    commits: int = 0

    def commit(self, random: Random) -> dict[str, Any]:
        """The next commit: one event to eight, mostly small, some with more than events."""
        self.commits += 1
        message = f"{self.name}-{self.lease.epoch}-{self.lease.actor_id}-{self.commits}"
        events = [
            {
                "eventId": f"{message}-{number}",
                "eventType": "domain.event",
                "payload": self._payload(random, f"{message}-{number}", number),
            }
            for number in range(random.choice((1, 1, 1, 1, 2, 3, 8)))
        ]
        request: dict[str, Any] = {
            "messageId": message,
            "actorId": self.lease.actor_id,
            "lease": self.lease.credential,
            "streamId": self.name,
            "expectedRevision": self.revision,
            "events": events,
        }
        if random.random() < 0.08:
            sent = {"outboxId": message, "destination": "mail", "payload": {"to": "ann"}}
            request["outbox"] = [sent]
        if random.random() < 0.2:
            request["projections"] = [{"projectionId": self.name, "value": {"last": message}}]
        if random.random() < 0.2:
            request["inboxResult"] = {"ok": True}
        return request

    def _payload(self, random: Random, event_id: str, number: int) -> dict[str, Any]:
        size = 20_000 if random.random() < 0.002 else int(random.expovariate(1 / 150))
        return {
            "version": 2,
            "streamId": self.name,
            "sequence": self.revision + number + 1,
            "actor": {
                "version": 2,
                "workspaceId": WORKSPACE,
                "actorKind": "root",
                "actorId": self.lease.actor_id,
                "generation": self.lease.epoch,
            },
            "occurredAt": 1,
            "kind": "domain.event",
            "eventType": "teammate.runtime-read-model.frame.v2",
            "eventId": event_id,
            "payload": "x" * size,
        }


# ------------------------------------------------------------------------------------------ writing


def commits(load: Load, random: Random) -> None:
    """A stream after another: commits, heartbeats, some repetitions and conflicts, a release."""
    for number in load.steps():
        name = f"{load.name}-{random.randrange(10**9)}-{number}"
        stream = _own_stream(load, name)
        for _ in load.steps():
            with suppress(*_TRY_AGAIN):
                _commit_once(load, random, stream)
            if stream.commits % 50 == 0:
                shown = {"actorId": name, "lease": stream.lease.credential}
                with suppress(*_TRY_AGAIN), load.tally.timed("lease"):
                    load.store.heartbeat_lease(shown | {"ttlMs": LONG_MS})
            if stream.commits >= 400:
                break
        with suppress(*_TRY_AGAIN), load.tally.timed("lease"):
            load.store.release_lease({"actorId": name, "lease": stream.lease.credential})


def _own_stream(load: Load, name: str) -> Stream:
    """A stream of one's own; who finds the store busy asks again until it is not."""
    asked = {"actorId": name, "holderId": load.name, "ttlMs": LONG_MS}
    while True:
        with suppress(*_TRY_AGAIN), load.tally.timed("lease"):
            return Stream(name, load.store.acquire_lease(asked, request_id=name))


def _commit_once(load: Load, random: Random, stream: Stream) -> None:
    request = stream.commit(random)
    with load.tally.timed("commit"):
        done = load.store.commit(request)
    load.tally.count("events", len(done.event_ids))
    stream.revision = done.revision
    if random.random() < 0.02 and not load.store.commit(request).recovered:
        raise AssertionError(f"{request['messageId']} was applied twice")
    if random.random() < 0.01:
        with suppress(RevisionConflict), load.tally.timed("commit"):
            load.store.commit(request | {"messageId": f"{request['messageId']}-late"})
            raise AssertionError(f"{stream.name} took a commit at an old revision")


def contending(load: Load, random: Random) -> None:
    """Leases that many want, short ones: some are given up, some lost, and then shown in vain."""
    actor = f"{load.name}-{random.randrange(10**9)}"
    for _ in load.steps():
        with suppress(Refusal, *_TRY_AGAIN):
            _contend_once(load, random, actor)
            continue
        load.over.wait(0.005)


def _contend_once(load: Load, random: Random, actor: str) -> None:
    name = f"hot-{random.randrange(HOT_STREAMS)}"
    asked = {"actorId": actor, "streamId": name, "holderId": load.name}
    ttl_ms = random.choice((20, 50, 100))
    with load.tally.timed("lease"):
        try:
            lease = load.store.takeover_lease(asked | {"ttlMs": ttl_ms})
        except LeaseUnavailable:
            lease = load.store.acquire_lease(asked | {"ttlMs": ttl_ms})
    stream = Stream(name, lease, load.store.get_stream_revision({"streamId": name}))
    for _ in range(random.randint(1, 6)):
        _commit_once(load, random, stream)
    if random.random() < 0.5:
        with load.tally.timed("lease"):
            load.store.release_lease({"actorId": actor, "lease": lease.credential})
        return
    if not load.over.wait(ttl_ms / 1e3 + 0.005):
        with suppress(StaleLease):
            load.store.commit(stream.commit(random))
            load.tally.count("stale writes")


def units(load: Load, random: Random) -> None:
    """Units of work: a row of the application's and a commit of ours, together."""
    engine = configure_engine(create_engine(load.url)).execution_options(**IMMEDIATE)
    name = f"{load.name}-unit-{random.randrange(10**9)}"
    stream = _own_stream(load, name)
    note = text(
        "INSERT INTO soak_notes VALUES (:name, 1) ON CONFLICT (name) DO UPDATE SET n = soak_notes.n + 1"
    )
    for _ in load.steps():
        request = stream.commit(random)
        # What the application asks for itself, BEGIN and COMMIT too, raises SQLAlchemy's errors.
        with suppress(*_TRY_AGAIN, OperationalError), load.tally.timed("unit"):
            with Session(engine) as session, session.begin():
                session.execute(note, {"name": name})
                done = load.store.unit_of_work(session).commit(request)
            stream.revision = done.revision
            load.tally.count("events", len(done.event_ids))
    engine.dispose()


def tasks(load: Load, random: Random) -> None:
    """Tasks of an event loop: commits of their own, and walks through their streams."""
    asyncio.run(_tasks(load, random))


async def _tasks(load: Load, random: Random) -> None:
    async with await AsyncBroker.open(load.url) as store:
        await asyncio.gather(*[_task(load, store, Random(random.random())) for _ in range(TASKS)])


async def _task(load: Load, store: AsyncBroker, random: Random) -> None:
    name = f"{load.name}-task-{random.randrange(10**9)}"
    asked = {"actorId": name, "holderId": load.name, "ttlMs": LONG_MS}
    stream = Stream(name, await store.acquire_lease(asked, request_id=name))
    while not load.over.is_set():
        await asyncio.sleep(load.pause_s)
        with suppress(*_TRY_AGAIN):
            with load.tally.timed("task's commit"):
                done = await store.commit(stream.commit(random))
            stream.revision = done.revision
            load.tally.count("events", len(done.event_ids))
        if random.random() < 0.02:
            after = {"streamId": name, "afterRevision": max(0, stream.revision - 300)}
            with load.tally.timed("walk"):
                async for _ in store.walk_events(after):
                    pass


# ------------------------------------------------------------------------------- reading, delivering


def journal(load: Load, random: Random) -> None:
    """Who follows the journal: in the order of cursors, from where it was when the process began."""
    cursor = load.cursor
    for _ in load.steps():
        with load.tally.timed("journal"):
            page = load.store.read_journal({"afterCursor": cursor, "limit": 128})
        if not page:
            load.over.wait(0.01)
            continue
        cursors = [each.cursor for each in page]
        if sorted(set(cursors)) != cursors or cursors[0] <= cursor:
            raise AssertionError(f"cursors {cursors} after {cursor}")
        cursor = cursors[-1]
        load.tally.count("events followed", len(page))


def pages(load: Load, random: Random) -> None:
    """Who reads a stream by page with a lease on it, and the workspace's read model."""
    name = f"{load.name}-pages-{random.randrange(10**9)}"
    stream = _own_stream(load, name)
    for _ in range(40):
        with suppress(*_TRY_AGAIN):
            _commit_once(load, random, stream)
    shown = {"actorId": name, "lease": stream.lease.credential, "streamId": name}
    for _ in load.steps():
        after = random.randrange(stream.revision)
        with load.tally.timed("page"):
            load.store.read_authorized_events_page(shown | {"afterRevision": after, "limit": 64})
        with load.tally.timed("read model"):
            load.store.read_model_events(
                {"workspaceId": WORKSPACE, "afterCursor": load.cursor, "limit": 32}
            )
        with load.tally.timed("projection"):
            load.store.read_projection({"projectionId": name})
        with load.tally.timed("list"):
            load.store.list_streams({"workspaceId": WORKSPACE, "prefix": "hot", "limit": 100})


def delivery(load: Load, random: Random) -> None:
    """Who delivers the outbox, beside others who do the same."""
    for _ in load.steps():
        with load.tally.timed("outbox"):
            pending = load.store.list_pending_outbox({"limit": 64})
        random.shuffle(pending)
        for message in pending[:16]:
            with suppress(*_TRY_AGAIN), load.tally.timed("delivery"):
                load.store.mark_outbox_delivered({"outboxId": message.outbox_id})
        if not pending:
            load.over.wait(0.01)


def visits(load: Load, random: Random) -> None:
    """Readers that come and go: each opens a store of its own, reads a little, and closes it."""
    for _ in load.steps():
        with suppress(*_TRY_AGAIN), load.tally.timed("visit"), Broker.open(load.url) as store:
            store.read_journal({"afterCursor": load.cursor, "limit": 10})
            store.get_stream_revision({"streamId": "hot-0"})
        load.over.wait(0.1)


ROLES: dict[str, Callable[[Load, Random], None]] = {
    role.__name__: role
    for role in (commits, contending, units, tasks, journal, pages, delivery, visits)
}
