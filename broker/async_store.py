"""The store for an event loop: the same operations, to be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from broker import reads
from broker.async_writes import AsyncWrites
from broker.errors import ConfigurationError
from broker.operations import Operations
from broker.options import Options
from broker.store import Broker
from broker.transaction import Read, Write
from broker.unit_of_work import UnitOfWork

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

_READING_THREADS = 4


class _Awaited(Protocol[P, T_co]):
    """A method that gives a coroutine."""

    def __get__(
        self, instance: object, owner: type | None = None
    ) -> Callable[P, Coroutine[Any, Any, T_co]]: ...


def _awaited(operation: Callable[Concatenate[Any, P], T]) -> _Awaited[P, T]:
    """An operation as `AsyncBroker` has it.

    It is the same function: what an operation returns is whatever `_read` and `_write` do, and
    here those are coroutines.
    """
    return cast("_Awaited[P, T]", operation)


class AsyncBroker:
    """A store whose operations are awaited; make one with `await AsyncBroker.open(…)`.

    They are those of `Broker`, with the same contracts. Requests are prepared and run on threads of
    its own, so that the loop never waits; a request must not be changed until its call has ended.
    Writes that wait for one another share a transaction. A task that is cancelled leaves neither a
    lock nor a connection behind: what was not started is not done, and what was started gets its
    recorded result when it is repeated by its message id or request id.

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
        opening = partial(Broker.open, url, migrate=migrate, shared=shared, options=options)
        return cls(await asyncio.to_thread(opening))

    def __init__(self, broker: Broker) -> None:
        """Serve the running event loop from a store that is open, and that threads may use too."""
        self.options = broker.options
        self._broker = broker
        self._writes = AsyncWrites(broker._connections.writes, asyncio.get_running_loop())
        self._reading = ThreadPoolExecutor(_READING_THREADS, thread_name_prefix="broker-reader")

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
        """Let go of all connections, once the writes that are running are done. Can be repeated.

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
        return await loop.run_in_executor(
            self._reading, partial(self._broker._read, make, *args, **kwargs)
        )

    async def _write(self, make: Callable[P, Write[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        self._require_loop()
        return await self._writes.run(partial(make, *args, **kwargs))

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
    read_model_events = _awaited(Operations.read_model_events)
    read_model_sources = _awaited(Operations.read_model_sources)
    read_projection = _awaited(Operations.read_projection)
    list_pending_outbox = _awaited(Operations.list_pending_outbox)
    mark_outbox_delivered = _awaited(Operations.mark_outbox_delivered)
    table_names = _awaited(Operations.table_names)

    @property
    def journal_mode(self) -> Coroutine[Any, Any, str]:
        """How the database keeps its journal, to be awaited as everything else."""
        return self._read(reads.journal_mode)
