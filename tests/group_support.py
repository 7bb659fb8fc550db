"""Groups made to order: whose writes are in one, and in which sequence, is the test's to say."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any, TypeVar

import pytest

from broker import Broker, leases
from broker.messages import Lease
from broker.sqlite.channel import SQLiteChannel
from broker.sqlite.pending import Pending
from broker.sqlite.write_queue import WriteQueue
from broker.transaction import Write
from tests.places import rows
from tests.sqlite_support import connections_of
from tests.support import TTL_MS, acquire, is_write_locked

T = TypeVar("T")

PATIENCE = 30  # seconds after which a test says that a thread hangs


def queue_of(store: Broker) -> WriteQueue:
    return connections_of(store).writes


def outcome_of(call: Callable[[], object]) -> Any:
    """What a call gives: its result, or the error that it raises."""
    try:
        return call()
    except BaseException as error:
        return error


def acquiring(actor: str) -> Write[Lease]:
    """The write by which an actor takes the lease on a stream of its name."""
    return leases.acquire({"actorId": actor, "holderId": "holder", "ttlMs": TTL_MS}, None)


def ready(write: Write[T]) -> Callable[[], Write[T]]:
    """What makes a write that is made already."""
    return lambda: write


def pending(write: Write[Any]) -> Pending[Any]:
    """A write that is prepared and waits patiently."""
    made = Pending(ready(write), monotonic() + PATIENCE)
    assert made.prepare()
    return made


def actors(path: Path) -> list[str]:
    return [actor for (actor,) in rows(path, "SELECT actor_id FROM actor_leases ORDER BY rowid")]


def ask(store: Broker, actor: str) -> Callable[[], Lease]:
    return lambda: acquire(store, actor, actor)


class Caller(threading.Thread):
    """A thread that asks for something, and what it was told."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.has_joined = threading.Event()  # the queue, if it did not end before
        self._work = work
        self._outcome: object = None
        self.start()

    def run(self) -> None:
        """Ask."""
        self._outcome = outcome_of(self._work)
        self.has_joined.set()

    def outcome(self) -> Any:
        """Wait for it: a result, or an error; it is given away once."""
        self.join(PATIENCE)
        assert not self.is_alive(), "it hangs"
        outcome, self._outcome = self._outcome, None
        return outcome


class Crowd:
    """Callers that wait in a queue, in the order in which they joined."""

    def __init__(self, queue: WriteQueue) -> None:
        self._queue = queue
        self._holder: Pending[Any] = Pending(ready(Write(lambda _: None)), queue.deadline())
        assert queue.enter(self._holder)  # as if it were about to begin a transaction

    def join(self, work: Callable[[], object]) -> Caller:
        """Start a thread, and wait until its write is in the queue, or it has ended."""
        caller = Caller(work)
        assert caller.has_joined.wait(PATIENCE), "it never came to the queue"
        return caller

    def let_go(self) -> None:
        """Let the first of those who wait lead all of them."""
        self._queue.abandon(self._holder)


@contextmanager
def _telling_who_joins() -> Iterator[None]:
    expect_to_wait = Pending.expect_to_wait

    def tell(pending: Pending[Any]) -> None:
        expect_to_wait(pending)  # it has the queue's lock, and keeps it until it is in there
        thread = threading.current_thread()
        if isinstance(thread, Caller):
            thread.has_joined.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pending, "expect_to_wait", tell)
        yield


@contextmanager
def crowd(store: Broker) -> Iterator[Crowd]:
    """Callers of a store who wait until they are let go, at the end if not before."""
    with _telling_who_joins():
        made = Crowd(queue_of(store))
        try:
            yield made
        finally:
            made.let_go()


def joined(store: Broker, actor: str) -> Caller:
    """A caller that waits for a lease, behind those who are there."""
    with _telling_who_joins():
        caller = Caller(ask(store, actor))
        assert caller.has_joined.wait(PATIENCE), "it never came to the queue"
    with queue_of(store)._state:
        return caller


def together(store: Broker, *works: Callable[[], object]) -> list[Any]:
    """What becomes of calls that write in one group, in this order."""
    with crowd(store) as waiting:
        callers = [waiting.join(work) for work in works]
    return [caller.outcome() for caller in callers]


def grouped(queue: WriteQueue, writes: Sequence[Write[Any]]) -> list[Any]:
    """As `together`, for writes themselves and by one thread."""
    waiting = [Pending(ready(write), queue.deadline()) for write in writes]
    leads = [queue.enter(each) for each in waiting]
    assert leads == [True] + [False] * (len(writes) - 1)
    for each in waiting:
        if queue._leader is each:
            queue.lead(each)
    return [outcome_of(each.outcome) for each in waiting]


@contextmanager
def control_statements() -> Iterator[list[str]]:
    """The BEGIN, COMMIT, SAVEPOINT and so on of all stores meanwhile."""
    statements: list[str] = []
    control = SQLiteChannel.control

    def listen(channel: SQLiteChannel, sql: str) -> None:
        statements.append(sql)
        control(channel, sql)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SQLiteChannel, "control", listen)
        yield statements


def assert_idle(store: Broker, path: Path) -> None:
    """Nobody leads or waits, no lock is held, neither of the queue nor of the database."""
    queue = queue_of(store)
    assert queue._state.acquire(timeout=PATIENCE)
    queue._state.release()
    assert queue._leader is None
    assert not queue._waiting
    assert not is_write_locked(path)


def interrupt_at(point: int, work: Callable[[], object]) -> Any:
    """The outcome of something that is interrupted at one of the points at which Python lets it.

    Those are the beginning of each function of the store's and the end of each call of one in C,
    counted from 1. It has its usual outcome if it comes to an end before.
    """
    points = iter(range(1, point))

    def look(frame: FrameType, event: str, _argument: object) -> None:
        is_ours = frame.f_globals.get("__name__", "").startswith("broker.")
        if is_ours and event in {"call", "c_return"} and next(points, None) is None:
            raise KeyboardInterrupt

    def watched() -> object:
        sys.setprofile(look)
        try:
            return work()
        finally:
            sys.setprofile(None)

    return outcome_of(watched)
