"""What many tests need: a clock that they move, requests with everything but the point filled in."""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Engine, ForeignKey, NullPool, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from broker import IMMEDIATE, Broker, Options, UnitOfWork, configure_engine
from broker.connections import connect
from broker.database_url import database_url
from broker.errors import BrokerError
from broker.messages import (
    AcquireLeaseRequest,
    Authorization,
    CommitRequest,
    CompareAndSwapLeaseRequest,
    GetLeaseRequest,
    GetStreamRevisionRequest,
    HeartbeatLeaseRequest,
    Lease,
    ListPendingOutboxRequest,
    ListStreamsRequest,
    MarkOutboxDeliveredRequest,
    ReadAuthorizedEventsPageRequest,
    ReadAuthorizedEventsRequest,
    ReadEventsRequest,
    ReadJournalRequest,
    ReadModelEventsRequest,
    ReadModelSourcesRequest,
    ReadProjectionRequest,
    ReleaseLeaseRequest,
    Request,
    TakeoverLeaseRequest,
)
from broker.operations import Operations
from broker.sqlite.channel import SQLiteChannel
from broker.statements import SQLITE, Statement
from broker.store import _advance_clock
from tests.places import Place, PostgresPlace, is_at_head, raw, rows, url_of
from tests.processes import WarmProcess

TTL_MS = 60_000
T = TypeVar("T")


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


def open_store(place: Place, clock: ManualClock, **others: Any) -> Broker:
    """A store at a place, on the test's clock.

    The look of an opening, in which a server's new process reads its whole catalogue, takes a third
    of a test's time, and half of it on SQLite; where it is known what there is, it is left out.
    """
    options = clock.options(**others)
    if not is_at_head(place) or options.schema is not None:
        return Broker.open(url_of(place), options=options)
    store = Broker(connect(database_url(url_of(place)), options), options)
    try:
        store._write(_advance_clock)
    except BaseException:
        store.close()
        raise
    return store


def credential(lease: Lease) -> dict[str, Any]:
    """What to show in requests that need the lease."""
    return {"epoch": lease.epoch, "nonce": lease.nonce}


def page_request(lease: Lease, **others: Any) -> dict[str, Any]:
    """A page of the lease's stream from its beginning, of at most 128 events."""
    return {
        "streamId": lease.stream_id,
        "afterRevision": 0,
        "limit": 128,
        "actorId": lease.actor_id,
        "lease": credential(lease),
    } | others


def floor(place: Place) -> str:
    """The clock floor as another client reads it."""
    ((value,),) = rows(place, "SELECT value FROM metadata WHERE key = 'logical_time_floor'")
    return str(value)


@contextmanager
def expect_refusal(kind: type[BrokerError], **details: Any) -> Iterator[None]:
    """Pass if exactly this kind of error comes out, with exactly these details."""
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    assert caught.value.details == details


# ------------------------------------------------------------------------------- other processes
ROOT = Path(__file__).parent.parent


WRITING = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
AND (backend_xid IS NOT NULL OR pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory'))
"""


@contextmanager
def write_locked(path: Path) -> Iterator[None]:
    """Another client is in the middle of a write."""
    with raw(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def is_write_locked(place: Place) -> bool:
    """Whether somebody is in the middle of a write at this moment."""
    if isinstance(place, PostgresPlace):
        return rows(place, WRITING) != []
    with raw(place) as connection:
        connection.execute("PRAGMA busy_timeout=0")
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        return False


def start_python(
    script: str, *arguments: object, kind: type[subprocess.Popen[str]] = WarmProcess
) -> subprocess.Popen[str]:
    """Another process that runs a script; talk to it by its standard input and output.

    It has imported what the store needs, unless it is an interpreter of its own: a `Popen`.
    """
    return kind(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    """Wait until a process says `line`."""
    assert process.stdout is not None
    said = process.stdout.readline()
    if said != f"{line}\n":
        raise AssertionError(f"{said!r} instead of {line!r}: {process.communicate()[1]}")


def finish(process: subprocess.Popen[str], said: str = "") -> str:
    """Say the last word to a process, wait for its end, and return what it said."""
    output, errors = process.communicate(said, timeout=60)
    assert process.returncode == 0, errors
    return output


HOLD_THE_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@contextmanager
def locked_by_a_process(path: Path, script: str = HOLD_THE_LOCK) -> Iterator[None]:
    """Another process is in the middle of a write, or holds what `script` locks."""
    other = start_python(script, path)
    wait_for(other, "locked")
    try:
        yield
    finally:
        finish(other, "done\n")


def open_files(path: Path) -> list[str]:
    """What this process has open of a database: the file, its log, its shared memory."""
    links = Path("/proc/self/fd").iterdir()
    targets = [str(link.readlink()) for link in links if link.is_symlink()]
    return sorted(target for target in targets if target.startswith(str(path)))


# ------------------------------------------------------------------------------ every operation

MUTATIONS = {
    "acquire_lease",
    "heartbeat_lease",
    "compare_and_swap_lease",
    "takeover_lease",
    "release_lease",
    "commit",
    "mark_outbox_delivered",
}


def operation_names() -> set[str]:
    """Every public operation, those that take no request (`table_names`, …) included."""
    return {name for name in vars(Operations) if not name.startswith("_")}


def operation_requests(store: Any, clock: ManualClock) -> dict[str, Request | None]:
    """A request for every operation that it will accept, in an order in which all of them may run.

    Makes what they need. None is for an operation without a request.
    """
    gone = acquire(store, "gone", "gone")
    clock.advance(TTL_MS)
    lease = acquire(store)
    swapping = acquire(store, "swapping", "swapping")
    store.commit(commit_request(lease, "first", outbox=[outbox_message("outgoing")]))
    shown: dict[str, Any] = {"actor_id": lease.actor_id, "lease": lease.credential}
    return {
        "acquire_lease": AcquireLeaseRequest(actor_id="new", holder_id="holder", ttl_ms=TTL_MS),
        "takeover_lease": TakeoverLeaseRequest(
            actor_id="heir", stream_id=gone.stream_id, holder_id="holder", ttl_ms=TTL_MS
        ),
        "heartbeat_lease": HeartbeatLeaseRequest(**shown, ttl_ms=TTL_MS),
        "get_lease": GetLeaseRequest(actor_id=lease.actor_id),
        "commit": CommitRequest.model_validate(
            commit_request(lease, "second", expectedRevision=1, events=[event("second")])
        ),
        "get_stream_revision": GetStreamRevisionRequest(stream_id=lease.stream_id),
        "read_events": ReadEventsRequest(stream_id=lease.stream_id),
        "read_authorized_events": ReadAuthorizedEventsRequest(
            stream_id=lease.stream_id, authorization=Authorization(**shown)
        ),
        "read_authorized_events_page": ReadAuthorizedEventsPageRequest.model_validate(
            page_request(lease)
        ),
        "list_streams": ListStreamsRequest(workspace_id="workspace", prefix="s", limit=9),
        "read_journal": ReadJournalRequest(),
        "read_model_events": ReadModelEventsRequest(workspace_id="workspace"),
        "read_model_sources": ReadModelSourcesRequest(workspace_id="workspace"),
        "walk_events": ReadEventsRequest(stream_id=lease.stream_id),
        "walk_journal": ReadJournalRequest(),
        "walk_read_model_events": ReadModelEventsRequest(workspace_id="workspace"),
        "read_projection": ReadProjectionRequest(projection_id="projection"),
        "list_pending_outbox": ListPendingOutboxRequest(),
        "mark_outbox_delivered": MarkOutboxDeliveredRequest(outbox_id="outgoing"),
        "release_lease": ReleaseLeaseRequest(**shown),
        "compare_and_swap_lease": CompareAndSwapLeaseRequest(
            actor_id="swapping", lease=swapping.credential, ttl_ms=TTL_MS, next_holder_id="next"
        ),
        "table_names": None,
        "journal_mode": None,
    }


def operate(store: Any, name: str, request: Any) -> Any:
    """Do an operation by its name; a walk is walked to its end."""
    operation = getattr(store, name)
    if not callable(operation):
        return operation
    result = operation() if request is None else operation(request)
    return list(result) if isinstance(result, Iterator) else result


def break_commit(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, *, takes_effect: bool
) -> None:
    """Let the next COMMIT of a `Broker` raise, after or instead of taking effect."""
    control, broken = SQLiteChannel.control, [False]

    def break_once(channel: SQLiteChannel, sql: str) -> None:
        if sql != "COMMIT" or broken[0]:
            control(channel, sql)
            return
        broken[0] = True
        if takes_effect:
            control(channel, sql)
        raise error

    monkeypatch.setattr(SQLiteChannel, "control", break_once)


def in_threads(*works: Callable[[], object]) -> None:
    """Do these at the same time, each in its thread; raises the first error of theirs."""
    barrier = threading.Barrier(len(works))

    def work_together(work: Callable[[], object]) -> object:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(work_together, work) for work in works]:
            future.result()


def alive(kind: type[T]) -> list[T]:
    """All objects of exactly this class that have not become garbage."""
    gc.collect()
    gc.unfreeze()  # else those from before the first test are not among them
    try:
        return [each for each in gc.get_objects() if type(each) is kind]
    finally:
        gc.freeze()


def query_plan(path: Path, statement: Statement) -> list[str]:
    """The steps by which SQLite answers a statement of the store's on this database."""
    sql, _ = statement.compiled[SQLITE]
    return [step for *_, step in rows(path, f"EXPLAIN QUERY PLAN {sql}", *[1] * sql.count("?"))]


# ---------------------------------------------------------------------- an application of its own


class Application(DeclarativeBase):
    """An application's own tables, in the same database."""


class Order(Application):
    __tablename__ = "orders"

    name: Mapped[str] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(default="")
    state: Mapped[str] = mapped_column(default="new")


class Line(Application):
    __tablename__ = "lines"

    name: Mapped[str] = mapped_column(primary_key=True)
    order_name: Mapped[str] = mapped_column(
        ForeignKey("orders.name", deferrable=True, initially="DEFERRED")
    )


def create_orders(url: str) -> None:
    """Make the application's tables."""
    engine = create_engine(url)
    Application.metadata.create_all(engine)
    engine.dispose()


def _configured(url: str) -> Engine:
    return configure_engine(create_engine(url))


def _without_pool(url: str) -> Engine:
    return create_engine(url, poolclass=NullPool)


# The engines of applications, by backend.
ENGINES: dict[str, dict[str, Callable[[str], Engine]]] = {
    "sqlite": {
        "default": create_engine,
        "driver immediate": lambda url: create_engine(
            url, connect_args={"isolation_level": "IMMEDIATE"}
        ),
        "no pool": _without_pool,
        "configured": _configured,
        "configured, immediate": lambda url: _configured(url).execution_options(**IMMEDIATE),
    },
    "postgresql": {
        "default": create_engine,
        "no pool": _without_pool,
        "configured": _configured,
    },
}
# Those on which savepoints nest.
NESTING = {
    "sqlite": {
        name: make for name, make in ENGINES["sqlite"].items() if name.startswith("configured")
    },
    "postgresql": ENGINES["postgresql"],
}

UnitOn = Callable[[Session], UnitOfWork]


def orders(place: Place) -> list[str]:
    """The application's rows as another client reads them."""
    return [name for (name,) in rows(place, "SELECT name FROM orders ORDER BY name")]


def messages(place: Place) -> list[str]:
    """The ids of the messages applied, as another client reads them."""
    return [name for (name,) in rows(place, "SELECT message_id FROM inbox ORDER BY applied_at, 1")]


def used_ids(session: Session, unit_on: UnitOn) -> Lease:
    """Commit a message, an event and an outbox message whose ids are used from now on."""
    unit = unit_on(session)
    lease = acquire(unit)
    unit.commit(commit_request(lease, outbox=[outbox_message("outgoing")]))
    session.commit()
    return lease
