"""How the tasks of an event loop write: prepared and led on one thread, told in bursts.

The loop waits for nothing: it puts requests down, and is called back once for all that came to an
end since. One thread prepares what was put down, a group at a time, and leads it through the queue
that the threads of the process share. A thread for each call, as executors have it, would halve the
rate.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar, cast

from broker.errors import StoreClosed
from broker.pending import Pending
from broker.transaction import Write
from broker.write_queue import MOST_IN_A_GROUP, WriteQueue

T = TypeVar("T")


class PendingTask(Pending[T]):
    """A write that a task awaits; `make` prepares it."""

    __slots__ = ("_writes", "future", "make")

    def __init__(self, writes: AsyncWrites, make: Callable[[], Write[T]], deadline: float) -> None:
        super().__init__(cast("Write[T]", None), deadline)
        self.make = make
        self.future: asyncio.Future[T] = writes.loop.create_future()
        self._writes = writes

    def expect_to_wait(self) -> None:
        """Nothing: no thread waits for it."""

    def wake(self) -> None:
        """Let it be led, or its task go on."""
        self._writes.wake(self)

    def tell(self) -> None:
        """On the loop: let the task have the outcome, if it still waits."""
        if self.future.done():
            return
        try:
            self.future.set_result(self.outcome())
        except BaseException as error:
            self.future.set_exception(error)


class AsyncWrites:
    """The writes of the tasks of one event loop."""

    def __init__(self, queue: WriteQueue, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._queue = queue
        self._state = threading.Lock()
        self._asked: deque[PendingTask[Any]] = deque()
        self._leader: PendingTask[Any] | None = None
        self._settled: list[PendingTask[Any]] = []
        self._is_serving = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="broker-writer")

    async def run(self, make: Callable[[], Write[T]]) -> T:
        """Do the write that `make` gives; see `WriteQueue.run`.

        If the task is cancelled, nothing is done, unless that was started already: then its
        repetition by message id or request id gets the recorded result.
        """
        pending = PendingTask(self, make, self._queue.deadline())
        with self._state:
            self._asked.append(pending)
            self._serve_soon()
        try:
            return await pending.future
        except asyncio.CancelledError:
            self._queue.withdraw(pending)
            raise

    def wake(self, pending: PendingTask[Any]) -> None:
        """Lead it on the thread; or, if it is settled, tell its task, and others with it."""
        with self._state:
            if not pending.is_settled:
                self._leader = pending
                self._serve_soon()
                return
            self._settled.append(pending)
            if len(self._settled) == 1:
                with suppress(RuntimeError):  # the loop is closed, and its tasks are gone
                    self.loop.call_soon_threadsafe(self._tell)

    def close(self) -> None:
        """Wait for the thread to end, once the queue is closed; not on the loop."""
        self._thread.shutdown()

    def _tell(self) -> None:
        with self._state:
            settled, self._settled = self._settled, []
        for each in settled:
            each.tell()

    # -------------------------------------------------------------------------------- on the thread

    def _serve_soon(self) -> None:
        if self._is_serving:
            return
        try:
            self._thread.submit(self._serve)
        except RuntimeError as error:  # it was shut down
            raise StoreClosed("this AsyncBroker was closed: open another one") from error
        self._is_serving = True

    def _serve(self) -> None:
        while True:
            with self._state:
                leader, self._leader = self._leader, None
                count = 0 if leader else min(len(self._asked), MOST_IN_A_GROUP)
                asked = [self._asked.popleft() for _ in range(count)]
                if leader is None and not asked:
                    self._is_serving = False
                    return
            leader = leader or self._enter(asked)
            if leader is not None:
                self._lead(leader)

    def _enter(self, asked: list[PendingTask[Any]]) -> PendingTask[Any] | None:
        """Put what was asked for into the queue; that which is to be led, if any."""
        leader = None
        for each in [each for each in asked if self._prepare(each)]:
            try:
                if self._queue.enter(each):
                    leader = each
                elif each.future.cancelled():
                    self._queue.withdraw(each)
            except Exception as error:
                self._fail(each, error)
        return leader

    def _prepare(self, pending: PendingTask[Any]) -> bool:
        if pending.future.cancelled():
            return False
        try:
            pending.write = pending.make()
        except Exception as error:
            self._fail(pending, error)
            return False
        return True

    def _lead(self, leader: PendingTask[Any]) -> None:
        if leader.future.cancelled():
            self._queue.abandon(leader)
            return
        try:
            self._queue.lead(leader)
        except BaseException as error:  # such as SystemExit, of a clock of the application's
            self._fail(leader, error)
        else:
            self.wake(leader)

    def _fail(self, pending: PendingTask[Any], error: BaseException) -> None:
        pending.fail(error, error.__cause__)
        self.wake(pending)
