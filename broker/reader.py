"""The road by which a `Broker` reads: a connection of the pool for each call, one snapshot a call."""

from __future__ import annotations

import sqlite3
import threading
import time
from typing import TypeVar, cast

from sqlalchemy import Engine, QueuePool
from sqlalchemy.exc import SQLAlchemyError

from broker.clock import LogicalClock
from broker.corruption import find_undecodable
from broker.engine import translate
from broker.options import Options
from broker.statements import Channel, Undecodable
from broker.transaction import Read, Transaction

T = TypeVar("T")


class Reader:
    """Runs reads side by side, each in a deferred transaction that is rolled back."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._options = options
        self._closed = False
        self._gate = threading.Lock()  # whoever reads passes it; a fork shuts it
        self._gate_is_shut = False

    def run(self, read: Read[T], clock: LogicalClock) -> T:
        """Do a read; raises an error of the driver or of the pool as one of ours."""
        try:
            return self._run(read, clock)
        except (sqlite3.Error, SQLAlchemyError) as error:
            raise translate(error) from error

    def close(self) -> None:
        """Let the connections of reads that are still running be closed when they end."""
        self._closed = True

    def pause(self, timeout: float) -> bool:
        """Let nobody in, and wait until no connection of the pool is in use."""
        deadline = time.monotonic() + timeout
        self._gate_is_shut = self._gate.acquire(timeout=timeout)
        pool = cast(QueuePool, self._engine.pool)
        while pool.checkedout() and time.monotonic() < deadline:
            time.sleep(0.001)
        return self._gate_is_shut and not pool.checkedout()

    def resume(self) -> None:
        """Go on after a `pause`, whether or not it succeeded."""
        if self._gate_is_shut:
            self._gate_is_shut = False
            self._gate.release()

    def forget(self) -> None:
        """In the child of a fork: start afresh."""
        self._gate = threading.Lock()
        self._gate_is_shut = False

    def _run(self, read: Read[T], clock: LogicalClock) -> T:
        with self._gate:
            connection = self._engine.raw_connection()
        channel = None
        try:
            channel = Channel(connection.dbapi_connection, self._engine.dialect.name)
            channel.control("BEGIN")  # one snapshot for all of its statements
            return read(Transaction(channel, clock, self._options))
        except Undecodable as error:
            assert channel is not None  # noqa: S101 - only a statement on it raises this
            raise find_undecodable(channel) from error
        finally:
            if channel is not None:
                channel.close()
            if self._closed:
                connection.invalidate()
            else:
                connection.close()  # which rolls back
