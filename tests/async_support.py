"""What tests of the async store need: a loop that must not complain, a write that is held up."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import pytest
from sqlalchemy import QueuePool

from broker import AsyncBroker
from broker.messages import Lease
from broker.postgresql.async_writes import ThreadedWrites
from broker.sqlite.async_writes import QueuedWrites
from broker.sqlite.pending import Pending
from broker.transaction import Read, Transaction
from tests import support
from tests.places import Place, url_of
from tests.sqlite_support import connections_of, writes_of
from tests.support import TTL_MS, ManualClock, acquire

T = TypeVar("T")


def on_a_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run something to its end on a loop of its own, which must have nothing to complain of.

    Asyncio's debug mode objects to calls from the wrong thread.
    """
    complaints: list[Any] = []

    async def run() -> T:
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: complaints.append(context)
        )
        return await work()

    try:
        return asyncio.run(run(), debug=True)
    finally:
        gc.collect()  # which is when asyncio notices an error that nobody asked for
        assert complaints == []


def with_store(
    place: Place, clock: ManualClock, work: Callable[[AsyncBroker], Awaitable[T]], **options: Any
) -> T:
    """Do something with a store on the test's clock."""

    async def run() -> T:
        async with await AsyncBroker.open(url_of(place), options=clock.options(**options)) as store:
            return await work(store)

    return on_a_loop(run)


def acquiring(
    store: AsyncBroker, actor: str = "actor", request_id: str | None = None
) -> Coroutine[Any, Any, Lease]:
    """A lease on the actor's own stream, to be awaited."""
    request = {"actorId": actor, "holderId": "holder", "ttlMs": TTL_MS}
    return store.acquire_lease(request, request_id=request_id)


async def operate(store: AsyncBroker, name: str, request: Any) -> Any:
    """Do an operation by its name; a walk is walked to its end."""
    answer = support.operate(store, name, request)
    if isinstance(answer, AsyncIterator):
        return [each async for each in answer]
    return await answer


class Gate:
    """A nonce that holds up the first write that asks for one, until it is opened."""

    def __init__(self) -> None:
        self._inside, self._open = threading.Event(), threading.Event()
        self._count = 0

    def nonce(self) -> str:
        """To be given to the store as `nonce`."""
        self._count += 1
        if self._count == 1:
            self._inside.set()
            assert self._open.wait(60)
        return f"nonce-{self._count}"

    async def reached(self) -> None:
        """Wait until a write is held up, in the middle of its transaction."""
        assert await asyncio.to_thread(self._inside.wait, 60)

    def open(self) -> None:
        """Let it go on."""
        self._open.set()


async def entered(store: AsyncBroker) -> None:
    """Wait until what was asked for so far is in the queue, while somebody else leads.

    On PostgreSQL there is no queue.
    """
    if isinstance(store._writes, QueuedWrites):
        await asyncio.wrap_future(store._writes._thread.submit(int))


def is_idle(store: AsyncBroker) -> bool:
    """Whether nothing waits, leads, or keeps a connection but the writer its own."""
    pool = cast(QueuePool, store.engine.pool)
    if isinstance(store._writes, ThreadedWrites):
        return pool.checkedout() == 0
    queue, writes = connections_of(store._broker).writes, writes_of(store)
    with queue._state, writes._state:
        nobody_waits = not queue._waiting and not queue._is_led and not writes._asked
        return nobody_waits and not writes._is_serving and pool.checkedout() <= 1


async def become_idle(store: AsyncBroker) -> None:
    """Wait until the thread that leads has ended what it does; the store must be idle then."""
    await entered(store)
    assert is_idle(store)


@contextmanager
def kept_busy(store: AsyncBroker) -> Iterator[None]:
    """The thread that prepares and leads does something else meanwhile."""
    go_on = threading.Event()
    writes_of(store)._thread.submit(go_on.wait, 60)
    yield
    go_on.set()


def announce_waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set when the next thread enters the queue and has to wait."""
    waits = threading.Event()
    expect = Pending.expect_to_wait

    def announce(pending: Pending[Any]) -> None:
        expect(pending)
        waits.set()

    monkeypatch.setattr(Pending, "expect_to_wait", announce)
    return waits


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they are."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)


async def led_by_a_thread(store: AsyncBroker, gate: Gate) -> asyncio.Future[Any]:
    """A thread leads the queue, and is held up."""
    leading = asyncio.ensure_future(asyncio.to_thread(acquire, store._broker, "thread", "thread"))
    await gate.reached()
    return leading


class SlowRead:
    """A read that is held up in the middle of its transaction until it is let go on."""

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()

    def make(self) -> Read[int]:
        """To be given to `_read`."""

        def read(_transaction: Transaction) -> int:
            self.inside.set()
            assert self.go_on.wait(60)
            return 1

        return read


def join_threads(name: str) -> None:
    """Wait for the threads of this name to end."""
    for thread in threading.enumerate():
        if thread.name.startswith(name):
            thread.join(60)
