"""The store for an event loop: the same operations, to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from broker import reads, walks
from broker.errors import ConfigurationError
from broker.operations import Operations
from broker.options import Options
from broker.store import Broker
from broker.threads import Threads, without_stop_iteration
from broker.transaction import Read, Write
from broker.unit_of_work import UnitOfWork
from broker.walks import E, Walk

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

_READING_THREADS = 4


class _Method(Protocol[P, T_co]):
    """What a class has so that its instances have a method."""

    def __get__(self, instance: object, owner: type | None = None) -> Callable[P, T_co]: ...


# An operation as `AsyncBroker` has it is the same function: it returns whatever `_read`, `_write`
# and `_walk` return, and here those are coroutines and asynchronous iterators.


def _awaited(operation: Callable[Concatenate[Any, P], T]) -> _Method[P, Coroutine[Any, Any, T]]:
    return cast("_Method[P, Coroutine[Any, Any, T]]", operation)


def _walked(operation: Callable[Concatenate[Any, P], Iterator[T]]) -> _Method[P, AsyncIterator[T]]:
    return cast("_Method[P, AsyncIterator[T]]", operation)


class AsyncBroker:
    """A store whose operations are awaited; make one with `await AsyncBroker.open(…)`.

    They are those of `Broker`, with the same contracts; a walk is an asynchronous iterator.
    Requests are prepared and run on threads of its own, so that the loop never waits; one must not
    be changed until its call has ended. Writes that wait for one another share a transaction. A
    task that is cancelled leaves neither a lock nor a connection behind: what was not started is
    not done, and what was started gets its recorded result when it is repeated by its message id
    or request id.

    It belongs to the event loop in which it was made.
    """

    @classmethod
    async def open(
        cls,
        url: str | URL,
        *,
        migrate: bool = True,
        shared: bool = False,
        options: Options | None = None,
    ) -> Self:
        """Open a database, and bring its schema up to date; as `Broker.open`."""
        thread = Threads(1, thread_name_prefix="broker-opener")
        opening = thread.submit(Broker.open, url, migrate=migrate, shared=shared, options=options)
        try:
            return cls(await asyncio.wrap_future(opening))
        except asyncio.CancelledError:
            thread.submit(_close, opening)  # when it is done
            raise
        finally:
            thread.shutdown(wait=False)

    def __init__(self, broker: Broker) -> None:
        """Serve the running event loop from a store that is open, and that threads may use too."""
        self.options = broker.options
        self._broker = broker
        self._writes = broker._connections.async_writes(asyncio.get_running_loop())
        self._reading = Threads(_READING_THREADS, thread_name_prefix="broker-reader")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of all connections, once what is running is done. Can be repeated.

        Those that wait to be started are refused: they, and what is called afterwards, raise
        StoreClosed.
        """
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._broker.close()
        self._writes.close()
        self._reading.shutdown()

    @property
    def engine(self) -> Engine:
        """The engine of the store, as `Broker.engine`."""
        return self._broker.engine

    def unit_of_work(self, session: Session) -> UnitOfWork:
        """As `Broker.unit_of_work`; from an AsyncSession by its `run_sync`."""
        return self._broker.unit_of_work(session)

    async def _read(self, make: Callable[P, Read[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = self._require_loop()
        reading = partial(self._broker._read, make, *args, **kwargs)
        return await loop.run_in_executor(self._reading, partial(without_stop_iteration, reading))

    async def _write(self, make: Callable[P, Write[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        self._require_loop()
        return await self._writes.run(partial(make, *args, **kwargs))

    def _walk(
        self, make: Callable[P, Walk[E]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[E]:
        walk = make(*args, **kwargs)  # a request of three fields at most, checked at once
        return walks.each_async(self._read, walk)

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        """The running loop. Raises StoreClosed; ConfigurationError in another than its own."""
        self._broker._connections.require_open()
        loop = asyncio.get_running_loop()
        if loop is not self._writes.loop:
            raise ConfigurationError(
                "this AsyncBroker was made in another event loop: open one in each loop"
            )
        return loop

    # ------------------------------------------------------------------------------- operations

    acquire_lease = _awaited(Operations.acquire_lease)
    heartbeat_lease = _awaited(Operations.heartbeat_lease)
    compare_and_swap_lease = _awaited(Operations.compare_and_swap_lease)
    takeover_lease = _awaited(Operations.takeover_lease)
    release_lease = _awaited(Operations.release_lease)
    get_lease = _awaited(Operations.get_lease)
    commit = _awaited(Operations.commit)
    get_stream_revision = _awaited(Operations.get_stream_revision)
    read_events = _awaited(Operations.read_events)
    read_authorized_events = _awaited(Operations.read_authorized_events)
    read_authorized_events_page = _awaited(Operations.read_authorized_events_page)
    list_streams = _awaited(Operations.list_streams)
    read_journal = _awaited(Operations.read_journal)
    read_model_events = _awaited(Operations.read_model_events)
    walk_events = _walked(Operations.walk_events)
    walk_journal = _walked(Operations.walk_journal)
    walk_read_model_events = _walked(Operations.walk_read_model_events)
    read_model_sources = _awaited(Operations.read_model_sources)
    read_projection = _awaited(Operations.read_projection)
    list_pending_outbox = _awaited(Operations.list_pending_outbox)
    mark_outbox_delivered = _awaited(Operations.mark_outbox_delivered)
    table_names = _awaited(Operations.table_names)

    @property
    def journal_mode(self) -> Coroutine[Any, Any, str]:
        """How the database keeps its journal, to be awaited as everything else."""
        return self._read(reads.journal_mode)


def _close(opening: Future[Broker]) -> None:
    """Close a store that nobody waits for any more, if it was opened."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
