"""How the tasks of an event loop write to PostgreSQL: on threads, as many as there are connections."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import Any, TypeVar, cast

from broker.errors import DatabaseBusy, StoreClosed
from broker.options import Options
from broker.threads import Threads, without_stop_iteration
from broker.transaction import Write

T = TypeVar("T")


class ThreadedWrites:
    """The writes of one event loop's tasks, each on a thread and a connection of its own.

    A task that is cancelled before its write has started leaves nothing done. Tasks that wait for a
    thread wait no longer than the busy timeout, and at most `queue_capacity` of them.
    """

    def __init__(
        self,
        write: Callable[[Callable[[], Write[Any]]], Any],
        options: Options,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.loop = loop
        self._write = write
        self._patience = options.busy_timeout_ms / 1_000
        self._capacity = options.queue_capacity
        self._size = options.pool_size
        self._threads = Threads(options.pool_size, thread_name_prefix="broker-writer")
        self._state = threading.Lock()
        self._unfinished = 0  # those that run, and those that wait for a thread
        self._is_closed = False

    async def run(self, make: Callable[[], Write[T]]) -> T:
        """Do the write that `make` gives and commit it; its own result or error."""
        patience = self._patience if self._enter() else math.inf
        future = self._threads.submit(self._run, make, monotonic() + patience)
        future.add_done_callback(self._leave)
        try:
            return await asyncio.wrap_future(future, loop=self.loop)
        finally:
            del future  # it holds the error, whose traceback holds this frame

    def close(self) -> None:
        """Wait for the writes that are running; those that wait are refused. Not on the loop."""
        self._is_closed = True
        self._threads.shutdown()

    def _enter(self) -> bool:
        """Count one more, and say whether it has to wait for others; DatabaseBusy if too many do."""
        with self._state:
            waiting = self._unfinished - self._size
            if waiting >= self._capacity:
                raise DatabaseBusy(
                    f"{waiting} writes wait already, which is the queue_capacity;"
                    " nothing was stored, try again"
                )
            self._unfinished += 1
            return waiting >= 0

    def _leave(self, _future: Future[Any]) -> None:
        with self._state:
            self._unfinished -= 1

    def _run(self, make: Callable[[], Write[T]], deadline: float) -> T:
        if self._is_closed:
            raise StoreClosed("this AsyncBroker was closed while the write waited: it was not done")
        if monotonic() > deadline:
            raise DatabaseBusy(
                "other writes of this process took longer than the busy timeout; nothing was"
                " stored, try again"
            )
        return cast(T, without_stop_iteration(partial(self._write, make)))
