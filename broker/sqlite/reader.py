"""The road by which a `Broker` reads: side by side, each read on a connection and snapshot of its own."""

from __future__ import annotations

import sqlite3
import threading
import time
from typing import TypeVar, cast

from sqlalchemy import Engine, PoolProxiedConnection, QueuePool
from sqlalchemy.exc import SQLAlchemyError

from broker import forking
from broker.clock import LogicalClock
from broker.options import Options
from broker.sqlite.channel import SQLiteChannel
from broker.sqlite.corruption import as_ours
from broker.statements import Undecodable
from broker.transaction import Read, Transaction

T = TypeVar("T")

_MOST_KEPT = 5  # as many as the pool would keep by itself


class Reader:
    """Runs reads side by side, each in a deferred transaction that is rolled back.

    Connections come from the pool, and some are kept for the next reads: to check one out and in
    takes half of the time of a short read. Those are detached, so that they count for nothing
    where sessions wait for a connection of the pool.
    """

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._options = options
        self._closed = False
        self._kept: list[PoolProxiedConnection] = []
        self.forget()

    def run(self, read: Read[T], clock: LogicalClock) -> T:
        """Do a read; raises an error of the driver or of the pool as one of ours."""
        self._enter()
        try:
            return self._run(read, clock)
        finally:
            self._leave()

    def close(self) -> None:
        """Close the connections that are kept; those of reads still running follow when they end."""
        self._closed = True
        self._keep_none()

    def pause(self, timeout: float) -> bool:
        """Let nobody in, and wait until no connection of the pool is in use, a session's included."""
        deadline = time.monotonic() + timeout
        with self._lock:
            self._is_paused = True
            self._changed.wait_for(lambda: not self._running, timeout)
        self._keep_none()
        pool = cast(QueuePool, self._engine.pool)
        while pool.checkedout() and time.monotonic() < deadline:
            time.sleep(0.001)
        return not pool.checkedout()

    def resume(self) -> None:
        """Go on after a `pause`, whether or not it succeeded."""
        with self._lock:
            self._is_paused = False
            self._changed.notify_all()

    def forget(self) -> None:
        """In the child of a fork: leave the parent's connections alone and start afresh."""
        forking.abandon(*self._kept)
        self._kept = []
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running = 0
        self._is_paused = False

    def _keep_none(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    def _enter(self) -> None:
        with self._lock:
            while self._is_paused:
                self._changed.wait()
            self._running += 1

    def _leave(self) -> None:
        with self._lock:
            self._running -= 1
            if self._is_paused:
                self._changed.notify_all()

    def _run(self, read: Read[T], clock: LogicalClock) -> T:
        channel = connection = None
        try:
            connection = self._take()
            channel = SQLiteChannel(connection.dbapi_connection)
            channel.control("BEGIN")  # one snapshot for all of its statements
            return read(Transaction(channel, clock, self._options))
        except (sqlite3.Error, SQLAlchemyError, Undecodable) as error:
            raise as_ours(error, channel) from error
        finally:
            if channel is not None:
                channel.close()
            if connection is not None:
                self._give_back(connection)

    def _take(self) -> PoolProxiedConnection:
        try:
            return self._kept.pop()
        except IndexError:
            return self._engine.raw_connection()

    def _give_back(self, connection: PoolProxiedConnection) -> None:
        try:
            connection.rollback()
            is_kept = self._keeps(connection)
        except sqlite3.Error:
            is_kept = False
        if not is_kept:
            if self._closed and not connection.is_detached:
                connection.detach()  # from a pool that nobody will close again
            connection.close()

    def _keeps(self, connection: PoolProxiedConnection) -> bool:
        with self._lock:
            if self._closed or self._is_paused or len(self._kept) >= _MOST_KEPT:
                return False
            if not connection.is_detached:
                connection.detach()
            self._kept.append(connection)
            return True
