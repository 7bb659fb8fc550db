"""The road by which a `Broker` reads: a connection of the pool for each call, one snapshot a call."""

from __future__ import annotations

import sqlite3
import threading
import time
from typing import TypeVar, cast

from sqlalchemy import Engine, PoolProxiedConnection, QueuePool
from sqlalchemy.exc import SQLAlchemyError

from broker.clock import LogicalClock
from broker.corruption import as_ours
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
        self._state = threading.Condition()
        self._running = 0
        self._is_paused = False

    def run(self, read: Read[T], clock: LogicalClock) -> T:
        """Do a read; raises an error of the driver or of the pool as one of ours."""
        self._enter()
        try:
            return self._run(read, clock)
        finally:
            self._leave()

    def close(self) -> None:
        """Let the connections of reads that are still running be closed when they end."""
        self._closed = True

    def pause(self, timeout: float) -> bool:
        """Let nobody in, and wait until no connection of the pool is in use, a session's included."""
        deadline = time.monotonic() + timeout
        with self._state:
            self._is_paused = True
            self._state.wait_for(lambda: not self._running, timeout)
        pool = cast(QueuePool, self._engine.pool)
        while pool.checkedout() and time.monotonic() < deadline:
            time.sleep(0.001)
        return not pool.checkedout()

    def resume(self) -> None:
        """Go on after a `pause`, whether or not it succeeded."""
        with self._state:
            self._is_paused = False
            self._state.notify_all()

    def forget(self) -> None:
        """In the child of a fork: start afresh."""
        self._state = threading.Condition()
        self._running = 0
        self._is_paused = False

    def _enter(self) -> None:
        with self._state:
            self._state.wait_for(lambda: not self._is_paused)
            self._running += 1

    def _leave(self) -> None:
        with self._state:
            self._running -= 1
            self._state.notify_all()

    def _run(self, read: Read[T], clock: LogicalClock) -> T:
        channel = connection = None
        try:
            connection = self._engine.raw_connection()
            channel = Channel(connection.dbapi_connection, self._engine.dialect.name)
            channel.control("BEGIN")  # one snapshot for all of its statements
            return read(Transaction(channel, clock, self._options))
        except (sqlite3.Error, SQLAlchemyError, Undecodable) as error:
            raise as_ours(error, channel) from error
        finally:
            if channel is not None:
                channel.close()
            if connection is not None:
                self._give_back(connection)

    def _give_back(self, connection: PoolProxiedConnection) -> None:
        if self._closed:
            connection.invalidate()
        else:
            connection.close()  # which rolls back
