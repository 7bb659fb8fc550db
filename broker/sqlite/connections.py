"""All connections of one store: the reader's and the writer's, their clock, their end, and forks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL

from broker import forking
from broker.errors import ConfigurationError, StoreClosed
from broker.options import Options
from broker.sqlite.async_writes import QueuedWrites
from broker.sqlite.engine import make_engine
from broker.sqlite.reader import Reader
from broker.sqlite.same_file import SameFile
from broker.sqlite.write_queue import WriteQueue
from broker.sqlite.writer import Writer
from broker.transaction import Read, Write

T = TypeVar("T")


class SQLiteConnections:
    """An engine and the two roads on it; safe from any thread."""

    def __init__(self, url: URL, options: Options) -> None:
        same_file = SameFile(url)
        self.engine = make_engine(
            url, busy_timeout_ms=options.busy_timeout_ms, before_connect=same_file.require
        )
        same_file.watch(self.engine)
        self.clock = options.make_clock()
        self._options = options
        self._reader = Reader(self.engine, options)
        self.writes = WriteQueue(Writer(self.engine, options, same_file), options, self.clock)
        self._closed = False
        self._was_forked_in_use = False
        forking.watch(self)

    def read(self, read: Read[T]) -> T:
        """Do a read; see `Reader.run`."""
        self.require_open()
        return self._reader.run(read, self.clock)

    def write(self, make: Callable[[], Write[T]]) -> T:
        """Do the write that `make` gives; see `WriteQueue.run`."""
        self.require_open()
        return self.writes.run(make)

    def async_writes(self, loop: asyncio.AbstractEventLoop) -> QueuedWrites:
        """How the tasks of an event loop write: through the queue of all threads."""
        return QueuedWrites(self.writes, loop)

    def close(self) -> None:
        """Wait for the writes that are running, and let go of everything. Can be repeated."""
        self._closed = True
        self._reader.close()
        self.writes.close()
        self.engine.dispose()

    def require_open(self) -> None:
        """Raise StoreClosed after `close`, ConfigurationError where a fork has spoilt it."""
        if self._closed:
            raise StoreClosed("this Broker was closed: open another one")
        if self._was_forked_in_use:
            raise ConfigurationError(
                "this process was forked while the store was in use, so that this child cannot use"
                " it safely: fork when no operation runs and no session on its engine is open"
            )

    # ------------------------------------------------------------------------ see `broker.forking`

    def pause(self) -> bool:
        """Before a fork: wait for what is under way, let nothing start, close all connections."""
        patience = self._options.busy_timeout_ms / 1000
        deadline = time.monotonic() + patience
        writer_is_quiet = self.writes.pause(patience)
        reader_is_quiet = self._reader.pause(max(0, deadline - time.monotonic()))
        self.engine.dispose()
        return writer_is_quiet and reader_is_quiet

    def resume(self) -> None:
        """After a fork, in the parent: go on, whether or not it was paused."""
        self._reader.resume()
        self.writes.resume()

    def start_afresh(self, *, was_paused: bool) -> None:
        """After a fork, in the child: forget the parent's connections, clock and locks."""
        self.engine.dispose(close=False)
        self.clock = self._options.make_clock()
        self._reader.forget()
        self.writes.start_afresh(self.clock)
        self._was_forked_in_use = self._was_forked_in_use or not was_paused
