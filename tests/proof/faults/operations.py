"""Each kind of operation that meets faults: what it needs beforehand, and the calls that it makes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import exc as sa_exc
from sqlalchemy.orm import Session

from broker import IMMEDIATE, Broker
from broker.messages import CommitResult
from broker.sqlite.engine import translate, translate_commit
from tests.journal_support import projection
from tests.places import raw
from tests.proof.faults.ground import STREAMS, Call, Ground, commit, receipt
from tests.support import TTL_MS, Order, commit_request, event, outbox_message

VERSION_1 = Path(__file__).parents[3] / "examples" / "version_1.sql"


@dataclass(frozen=True)
class Operation:
    """A kind of operation.

    `calls` makes what it does, once `prepare` was done. Where it `opens`, the store is not open
    when its fault comes. `in_threads`: all of its calls at the same time, so that the number of
    system calls is not the same each time.
    """

    name: str
    calls: Callable[[Ground], Sequence[Call]]
    prepare: Callable[[Ground], None] = lambda _ground: None
    opens: bool = False
    closes: bool = False
    in_threads: bool = False


def _commits(ground: Ground) -> list[Call]:
    """The second shows that the store goes on by itself after a fault that comes once."""
    return [
        commit(ground.leases[STREAMS[4]], "first", outbox=[outbox_message("first")]),
        commit(ground.leases[STREAMS[5]], "second", projections=[projection("second")]),
    ]


def _large_commit(ground: Ground) -> list[Call]:
    """More than SQLite's cache holds, so that it writes long before COMMIT."""
    events = [event(f"large-{number}", "x" * 900_000) for number in range(4)]
    return [commit(ground.leases[STREAMS[4]], "large", events=events)]


def _group(ground: Ground) -> list[Call]:
    calls = [commit(ground.leases[name], f"group-{name}") for name in STREAMS[4:10]]
    request = {"actorId": "new", "holderId": "holder", "ttlMs": TTL_MS}
    return [
        *calls,
        receipt("acquired", lambda store, name: store.acquire_lease(request, request_id=name)),
    ]


def _lease_mutations(ground: Ground) -> list[Call]:
    def shown(number: int) -> dict[str, Any]:
        lease = ground.leases[STREAMS[number]]
        return {"actorId": lease.actor_id, "lease": lease.credential}

    new = {"actorId": "new", "holderId": "holder", "ttlMs": TTL_MS}
    gone = {"actorId": "heir", "streamId": "gone", "holderId": "holder", "ttlMs": TTL_MS}
    beat = {**shown(4), "ttlMs": TTL_MS}
    swap = {**shown(5), "ttlMs": TTL_MS, "nextHolderId": "next"}
    return [
        receipt("acquire", lambda store, name: store.acquire_lease(new, request_id=name)),
        receipt("heartbeat", lambda store, name: store.heartbeat_lease(beat, request_id=name)),
        receipt("swap", lambda store, name: store.compare_and_swap_lease(swap, request_id=name)),
        receipt("takeover", lambda store, name: store.takeover_lease(gone, request_id=name)),
        receipt("release", lambda store, name: store.release_lease(shown(6), request_id=name)),
    ]


def _marks(_ground: Ground) -> list[Call]:
    def mark(outbox_id: str) -> Call:
        """Only the first of several to mark is told that it did; one attempt whoever asks."""
        return Call(
            f"mark {outbox_id}",
            lambda store: store.mark_outbox_delivered({"outboxId": outbox_id}),
            [(_DELIVERED, outbox_id)],
            agrees=lambda first, second: not (first and second),
        )

    return [mark("before-0"), mark("before-1")]


def _sessions(ground: Ground) -> list[Call]:
    """An application's row and a commit, in a session on the store's engine."""

    def call(number: int) -> Call:
        name = f"order-{number}"
        inner = commit(ground.leases[STREAMS[4 + number]], name)
        request = commit_request(ground.leases[STREAMS[4 + number]], name)
        stored = [*inner.stored, (_ORDER, name)]
        return Call(name, lambda store: _in_session(store, name, request), stored)

    return [call(0), call(1)]


def _in_session(store: Broker, name: str, request: dict[str, Any]) -> CommitResult:
    """What a session itself raises is told as the store would, for there is no other word for it."""
    with Session(store.engine.execution_options(**IMMEDIATE)) as session:
        try:
            session.merge(Order(name=name))
            session.flush()
        except sa_exc.DBAPIError as error:
            raise translate(error) from error
        result = store.unit_of_work(session).commit(request)
        try:
            session.commit()
        except sa_exc.DBAPIError as error:
            raise translate_commit(error) from error
        return result


def _reads(ground: Ground) -> list[Call]:
    """Right answers or none."""
    lease = ground.leases[STREAMS[0]]
    shown = {"actorId": lease.actor_id, "lease": lease.credential}
    stream = {"streamId": lease.stream_id}
    asked: dict[str, Callable[[Broker], Any]] = {
        "revision": lambda store: store.get_stream_revision(stream),
        "events": lambda store: store.read_events({**stream, "afterRevision": 0}),
        "authorized": lambda store: store.read_authorized_events(
            {**stream, "authorization": shown}
        ),
        "journal": lambda store: list(store.walk_journal({})),
        "outbox": lambda store: store.list_pending_outbox({}),
        "projection": lambda store: store.read_projection({"projectionId": "before-0"}),
        "read model": lambda store: store.read_model_events({"workspaceId": "ws"}),
    }
    return [Call(name, do, agrees=_begins_alike, is_keyed=False) for name, do in asked.items()]


def _begins_alike(first: Any, second: Any) -> bool:
    """Whether a later answer is the earlier one, to which something new may have been added."""
    return bool(second[: len(first)] == first if isinstance(first, list) else second == first)


def _opening(ground: Ground) -> list[Call]:
    """Opening is a call whose answer is the store."""

    def do(_store: Broker | None) -> str:
        if ground.store is None:
            ground.store = ground.open()
        return "open"

    return [Call("opening", do)]


def _closing(ground: Ground) -> list[Call]:
    def do(_store: Broker) -> str:
        if ground.store is not None:
            ground.store.close()
            ground.store = None
        return "closed"

    return [Call("closing", do, is_keyed=False)]


# ------------------------------------------------------------------------------ what they need


def _nothing_there(ground: Ground) -> None:
    ground.path.unlink()
    ground.kept.clear()


def _version_1(ground: Ground) -> None:
    _nothing_there(ground)
    with raw(ground.path) as connection:
        connection.executescript(VERSION_1.read_text())


def _a_log_to_recover(ground: Ground) -> None:
    """What a process leaves that was killed: a log, and no index of it that counts."""
    with ground.open() as store:
        call = commit(ground.leases[STREAMS[4]], "logged")
        ground.kept.append((call, call.do(store)))
        log = ground.path.with_name("broker.db-wal")
        kept = {path: path.read_bytes() for path in (ground.path, log)}
    for path, content in kept.items():
        path.write_bytes(content)


def _a_log_to_checkpoint(ground: Ground) -> None:
    """So much in the log that the next commit moves it into the database."""
    with _client_without_checkpoints(ground.path) as connection:
        connection.execute("CREATE TABLE filling (content)")
        connection.execute("INSERT INTO filling VALUES (zeroblob(4200000))")


def _client_without_checkpoints(path: Path) -> closing[sqlite3.Connection]:
    """A client that leaves the log alone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    return closing(connection)


def _something_logged(ground: Ground) -> None:
    assert ground.store is not None
    call = commit(ground.leases[STREAMS[4]], "logged")
    ground.kept.append((call, call.do(ground.store)))


_DELIVERED = "SELECT 1 FROM outbox WHERE outbox_id = ? AND delivered_at > 0 AND attempts = 1"
_ORDER = "SELECT 1 FROM orders WHERE name = ?"

OPERATIONS = (
    Operation("commit", _commits),
    Operation("commit of 3.6 MB", _large_commit),
    Operation("group commit", _group, in_threads=True),
    Operation("lease mutations", _lease_mutations),
    Operation("outbox", _marks),
    Operation("unit of work", _sessions),
    Operation("commit and checkpoint", _commits, _a_log_to_checkpoint),
    Operation("reads", _reads),
    Operation("close", _closing, _something_logged, closes=True),
    Operation("open", _opening, opens=True),
    Operation("open and recover", _opening, _a_log_to_recover, opens=True),
    Operation("open a new file", _opening, _nothing_there, opens=True),
    Operation("migrate from version 1", _opening, _version_1, opens=True),
)
