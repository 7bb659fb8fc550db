"""The one road by which a `Broker` writes: one connection, one caller at a time.

SQLite lets one writer in. Waiting for it inside the process, in a queue, is fair and cheap, while
its own busy handler sleeps and leaves the order to chance.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, TypeVar

from sqlalchemy import Engine

from broker.clock import LogicalClock
from broker.corruption import find_undecodable
from broker.engine import in_transaction, translate, translate_commit
from broker.errors import DatabaseBusy, Refusal
from broker.options import Options
from broker.statements import Channel, Undecodable
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
            return self._run(write, clock)
        finally:
            self._turn.release()

    def close(self) -> None:
        """Wait for the write that is running, and give the connection back."""
        with self._turn:
            self._disconnect()

    def forget(self) -> None:
        """In the child of a fork: leave the parent's connection alone and start afresh."""
        _abandoned.append((self._connection, self._channel))
        self._connection = self._channel = None
        self._turn = threading.Lock()

    def _run(self, write: Write[T], clock: LogicalClock) -> T:
        try:
            channel = self._channel or self._connect()
            transaction = Transaction(channel, clock, self._options)
            found = write.recover(transaction)  # by itself, so that it waits for no other writer
            if found is not None:
                return found[0]
            channel.control("BEGIN IMMEDIATE")
            result = write.apply(transaction)
            self._commit(channel)
        except Refusal:
            self._keep_clock(transaction)
            raise
        except BaseException as error:
            raise self._undo(error) from error
        return result

    def _commit(self, channel: Channel) -> None:
        try:
            channel.control("COMMIT")
        except Exception as error:
            raise translate_commit(error) from error

    def _keep_clock(self, transaction: Transaction) -> None:
        channel = transaction.channel
        if not in_transaction(channel.connection):
            return
        try:
            channel.control("COMMIT" if transaction.persisted_clock else "ROLLBACK")
        except Exception as error:
            raise self._undo(translate_commit(error)) from error

    def _undo(self, error: BaseException) -> BaseException:
        """Roll back, drop a connection that may be broken, and say what to raise."""
        if isinstance(error, Undecodable) and self._channel is not None:
            error = find_undecodable(self._channel)
        if self._channel is not None and in_transaction(self._channel.connection):
            with contextlib.suppress(Exception):
                self._channel.control("ROLLBACK")
        if not isinstance(error, Exception):
            return error
        if not isinstance(error, DatabaseBusy | Refusal):
            self._disconnect()
        return translate(error)

    def _connect(self) -> Channel:
        self._connection = self._engine.raw_connection()
        self._channel = Channel(self._connection.dbapi_connection, self._engine.dialect.name)
        return self._channel

    def _disconnect(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.invalidate()
