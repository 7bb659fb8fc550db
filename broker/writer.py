"""The one road by which a `Broker` writes: one connection, one caller at a time.

SQLite lets one writer in. Waiting for it inside the process ends as soon as the other is done, while
SQLite's own busy handler sleeps and looks again.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, TypeVar

from sqlalchemy import Engine

from broker.clock import LogicalClock
from broker.corruption import as_ours
from broker.engine import in_transaction, translate_commit
from broker.errors import CorruptRow, DatabaseBusy, Refusal, StoreClosed
from broker.options import Options
from broker.statements import Channel
from broker.transaction import Transaction, Write

T = TypeVar("T")

# Connections that a fork has left in the child: to close one there would harm the parent's.
_abandoned: list[Any] = []


class Writer:
    """Runs writes, each in a transaction of its own, on a connection that it keeps."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._options = options
        self._turn = threading.Lock()
        self._closed = self._is_paused = False
        self._connection: Any = None
        self._channel: Channel | None = None

    def run(self, write: Write[T], clock: LogicalClock) -> T:
        """Do a write and commit it, or look its result up.

        A refusal commits the clock and nothing else. Any other error undoes everything. Raises
        DatabaseBusy when other threads or processes do not let it in within the busy timeout, and
        OutcomeUnknown when COMMIT itself leaves its outcome open.
        """
        if not self._turn.acquire(timeout=self._options.busy_timeout_ms / 1000):
            raise DatabaseBusy("other threads kept the store busy; nothing was stored, try again")
        try:
            if self._closed:
                raise StoreClosed("this Broker was closed: open another one")
            return self._run(write, clock)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Wait for the write that is running, and give the connection back."""
        with self._turn:
            self._closed = True
            self._disconnect()

    def pause(self, timeout: float) -> bool:
        """Wait for the write that is running, give the connection back, and let nobody in."""
        self._is_paused = self._turn.acquire(timeout=timeout)
        if self._is_paused:
            self._disconnect()
        return self._is_paused

    def resume(self) -> None:
        """Go on after a `pause`, whether or not it succeeded."""
        if self._is_paused:
            self._is_paused = False
            self._turn.release()

    def forget(self) -> None:
        """In the child of a fork: leave the parent's connection alone and start afresh."""
        _abandoned.append((self._connection, self._channel))
        self._connection = self._channel = None
        self._turn = threading.Lock()
        self._is_paused = False

    def _run(self, write: Write[T], clock: LogicalClock) -> T:
        try:
            channel = self._channel or self._connect()
        except Exception as error:
            self._undo(error)
            raise
        transaction = Transaction(channel, clock, self._options)
        try:
            found = write.recover(transaction)  # before BEGIN, so that it waits for no other writer
            if found is not None:
                return found[0]
            channel.control("BEGIN IMMEDIATE")
            result = write.apply(transaction)
            _commit(channel)
        except Refusal:
            self._keep_clock(transaction)
            raise
        except BaseException as error:
            self._undo(error)
            raise
        return result

    def _keep_clock(self, transaction: Transaction) -> None:
        """End the transaction of a refused operation, if it had come so far as to have one."""
        if not in_transaction(transaction.channel.connection):
            return
        try:
            if transaction.persisted_clock:
                _commit(transaction.channel)
            else:
                transaction.channel.control("ROLLBACK")
        except BaseException as error:
            self._undo(error)
            raise

    def _undo(self, error: BaseException) -> None:
        """Roll back, drop a connection that may be broken, and raise a driver's error as ours."""
        channel = self._channel
        if channel is not None and in_transaction(channel.connection):
            with contextlib.suppress(Exception):
                channel.control("ROLLBACK")

        translated = as_ours(error, channel) if isinstance(error, Exception) else error
        if not isinstance(translated, DatabaseBusy | CorruptRow):
            self._disconnect()
        if translated is not error:
            raise translated from error

    def _connect(self) -> Channel:
        self._connection = self._engine.raw_connection()
        self._channel = Channel(self._connection.dbapi_connection, self._engine.dialect.name)
        return self._channel

    def _disconnect(self) -> None:
        connection, channel = self._connection, self._channel
        self._connection = self._channel = None
        if channel is not None:  # a cursor that a traceback keeps alive would keep the file open
            with contextlib.suppress(Exception):
                channel.close()
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.invalidate()


def _commit(channel: Channel) -> None:
    try:
        channel.control("COMMIT")
    except Exception as error:
        raise translate_commit(error) from error
