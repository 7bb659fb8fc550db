"""What a `Broker` asks of its connections, whatever is at their other end."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import URL, Engine

from broker.clock import LogicalClock
from broker.database_url import is_postgresql
from broker.options import Options
from broker.postgresql.connections import PostgresConnections
from broker.sqlite.connections import SQLiteConnections
from broker.transaction import Read, Write

T = TypeVar("T")


class AsyncWrites(Protocol):
    """The writes of one event loop's tasks."""

    loop: AbstractEventLoop

    async def run(self, make: Callable[[], Write[T]]) -> T:
        """As `Connections.write`; a task that is cancelled before its write started did nothing."""
        ...

    def close(self) -> None:
        """Wait for what is running, once the connections are closed; not on the loop."""
        ...


class Connections(Protocol):
    """All connections of one store; safe from any thread."""

    engine: Engine
    clock: LogicalClock

    def read(self, read: Read[T]) -> T:
        """Do a read; raises an error of the driver or of the pool as one of ours."""
        ...

    def write(self, make: Callable[[], Write[T]]) -> T:
        """Do the write that `make` gives and commit it; its result, or its error."""
        ...

    def async_writes(self, loop: AbstractEventLoop) -> AsyncWrites:
        """How the tasks of an event loop write."""
        ...

    def close(self) -> None:
        """Let go of everything, once what is running is done. Can be repeated."""
        ...

    def require_open(self) -> None:
        """Raise StoreClosed after `close`, ConfigurationError where a fork has spoilt it."""
        ...


def connect(url: URL, options: Options) -> Connections:
    """The connections to a database that was found to be fit."""
    if is_postgresql(url):
        return PostgresConnections(url, options)
    return SQLiteConnections(url, options)
