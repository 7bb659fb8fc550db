"""How the tasks of an event loop write: prepared and led on one thread, told in bursts.

The loop waits for nothing: it puts requests down, and is called back once for all that came to an
end since. One thread prepares what was put down, a group at a time, and leads it through the queue
that the threads of the process share. A thread for each call, as executors have it, would halve the
rate.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, TypeVar

from broker.errors import StoreClosed
from broker.sqlite.pending import Pending
from broker.sqlite.write_queue import MOST_IN_A_GROUP, WriteQueue, kept_busy
from broker.threads import Threads
from broker.transaction import Write

T = TypeVar("T")

# While requests are prepared, the loop can run only when the interpreter is given up, which
# otherwise happens every 5 ms. A pause that is shorter than it takes to wake up would not do.
_AT_A_STRETCH = 8
_A_MOMENT = 0.000_001


class PendingTask(Pending[T]):
    """A write that a task awaits.

    The task waits for `future`, which says only that there is an outcome; to cancel it is to give
    the write up.
    """

    __slots__ = ("_writes", "future")

    def __init__(self, writes: QueuedWrites, make: Callable[[], Write[T]], deadline: float) -> None:
        super().__init__(make, deadline)
        self.future: asyncio.Future[None] = writes.loop.create_future()
        self._writes = writes

    @property
    def is_wanted(self) -> bool:
        """Whether the task was not cancelled."""
        return not self.future.cancelled()

    def expect_to_wait(self) -> None:
        """Nothing: no thread waits for it."""

    def wake(self) -> None:
        """Let it be led, or its task go on."""
        self._writes.wake(self)

    def tell(self) -> None:
        """On the loop: let the task go on, if it still waits."""
        if not self.future.done():
            self.future.set_result(None)


class QueuedWrites:
    """The writes of the tasks of one event loop."""

    def __init__(self, queue: WriteQueue, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._queue = queue
        self._state = threading.Lock()
        self._asked: OrderedDict[PendingTask[Any], None] = OrderedDict()
        self._leader: PendingTask[Any] | None = None
        self._settled: list[PendingTask[Any]] = []
        self._is_serving = False
        self._last_led = 0.0
        self._thread = Threads(1, thread_name_prefix="broker-writer")

    async def run(self, make: Callable[[], Write[T]]) -> T:
        """Do the write that `make` gives; see `WriteQueue.run`.

        If the task is cancelled, nothing is done, unless that was started already: then its
        repetition by message id or request id gets the recorded result.
        """
        pending = PendingTask(self, make, self._queue.deadline())
        with self._state:
            self._queue.require_room(beside=len(self._asked))
            self._serve_soon()
            self._asked[pending] = None
        try:
            await pending.future
        except asyncio.CancelledError:
            with self._state:
                self._asked.pop(pending, None)
            raise
        return pending.outcome()

    def wake(self, pending: PendingTask[Any]) -> None:
        """Lead it on the thread; or, if it is settled, tell its task, and others with it."""
        with self._state:
            if pending.is_settled:
                self._settled.append(pending)
                if len(self._settled) == 1:
                    with suppress(RuntimeError):  # the loop is closed, and its tasks are gone
                        self.loop.call_soon_threadsafe(self._tell)
                return
            self._leader = pending
            try:
                self._serve_soon()
            except StoreClosed:  # the interpreter is about to end, and others wait behind it
                self._is_serving = True
            else:
                return
        self._serve()

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
        if not self._is_serving:
            self._thread.submit(self._serve)
            self._is_serving = True

    def _serve(self) -> None:
        while True:
            with self._state:
                leader, self._leader = self._leader, None
                count = 0 if leader else min(len(self._asked), MOST_IN_A_GROUP)
                asked = [self._asked.popitem(last=False)[0] for _ in range(count)]
                if leader is None and not asked:
                    self._is_serving = False
                    return
            leader = leader or self._enter(asked)
            if leader is not None:
                self._lead(leader)

    def _enter(self, asked: list[PendingTask[Any]]) -> PendingTask[Any] | None:
        """Put what was asked for into the queue; that which is to be led, if any."""
        ready = []
        for number, each in enumerate(asked, start=1):
            if self._prepare(each):
                ready.append(each)
            if number % _AT_A_STRETCH == 0:
                sleep(_A_MOMENT)

        leader = None
        for each in ready:
            try:
                if self._queue.enter(each):
                    leader = each
            except Exception as error:
                self._fail(each, error)
        return leader

    def _prepare(self, pending: PendingTask[Any]) -> bool:
        """Make the write of what was asked for; whether that can be done, and in time."""
        if pending.deadline < self._last_led:
            self._fail(pending, kept_busy())
            return False
        try:
            if pending.prepare():
                return True
        except BaseException as error:  # KeyboardInterrupt, of a mapping of the application's
            pending.fail(error, error.__cause__)
        self.wake(pending)
        return False

    def _lead(self, leader: PendingTask[Any]) -> None:
        try:
            self._queue.lead(leader)
        except BaseException as error:  # such as SystemExit, of a clock of the application's
            self._fail(leader, error)
        else:
            self.wake(leader)
        self._last_led = monotonic()

    def _fail(self, pending: PendingTask[Any], error: BaseException) -> None:
        pending.fail(error, error.__cause__)
        self.wake(pending)
