"""All connections of one store on PostgreSQL: operations side by side, each on one of its own."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from sqlalchemy import URL, PoolProxiedConnection
from sqlalchemy.exc import SQLAlchemyError

from broker import forking
from broker.errors import OutcomeUnknown, Refusal, StoreClosed
from broker.options import Options
from broker.postgresql.async_writes import ThreadedWrites
from broker.postgresql.channel import PipelineChannel
from broker.postgresql.engine import (
    DEADLOCK_DETECTED,
    SERIALIZATION_FAILURE,
    is_lost,
    make_engine,
    set_up,
    sqlstate,
    translate,
    translate_commit,
)
from broker.postgresql.transaction import PostgresTransaction
from broker.statements import Violation
from broker.transaction import Read, Spoilt, Write

T = TypeVar("T")

#: How often a transaction is begun that the server has ended for the sake of others.
MOST_TRIES = 10

_AGAIN = {SERIALIZATION_FAILURE, DEADLOCK_DETECTED}
_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.2

_PREPARED = "broker_prepared"


class PostgresConnections:
    """A pool and the two roads on it; safe from any thread.

    A write is a transaction at READ COMMITTED, of two round trips if it meets nobody. The server may
    end it for the sake of others (a deadlock, a serialization failure): then it is done again as a
    whole, up to `MOST_TRIES` times. So it is where the connection is lost before COMMIT was sent.
    """

    def __init__(self, url: URL, options: Options) -> None:
        self.engine = make_engine(
            url,
            busy_timeout_ms=options.busy_timeout_ms,
            pool_size=options.pool_size,
            transaction_pooler=options.transaction_pooler,
        )
        if options.schema is not None:
            self.engine = self.engine.execution_options(schema_translate_map={None: options.schema})
        self.clock = options.make_server_clock()
        self._options = options
        self._begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        self._closed = False
        self._state = threading.Condition()
        self._writing: set[int] = set()  # threads
        forking.watch(self)

    def read(self, read: Read[T]) -> T:
        """Do a read; each of its statements sees what is committed when it starts.

        What a later one sees is never older, and what is read is never changed: so no snapshot of
        all of them is needed. Where the connection is lost, it is done on another.
        """
        self.require_open()
        lost = 0
        while True:
            try:
                return self._reading(read)
            except Exception as error:
                lost += 1
                if not is_lost(error) or lost > self._options.pool_size:
                    _raise_ours(error)

    def write(self, make: Callable[[], Write[T]]) -> T:
        """Do the write that `make` gives and commit it; its result, or its error.

        Raises DatabaseBusy where a lock or a connection was not to be had within the busy timeout;
        nothing was stored then. OutcomeUnknown where the connection was lost during COMMIT.
        """
        try:
            self._start()
            return self._write(make())
        finally:
            self._end()

    def async_writes(self, loop: asyncio.AbstractEventLoop) -> ThreadedWrites:
        """How the tasks of an event loop write: on threads."""
        return ThreadedWrites(self.write, self._options, loop)

    def close(self) -> None:
        """Wait for the writes that are running, and let go of everything. Can be repeated.

        Connections that are in use elsewhere follow when they are given back.
        """
        with self._state:
            self._closed = True
            self._state.wait_for(lambda: self._writing <= {threading.get_ident()})
        self.engine.dispose()

    def require_open(self) -> None:
        """Raise StoreClosed after `close`."""
        if self._closed:
            raise StoreClosed("this Broker was closed: open another one")

    # ------------------------------------------------------------------------ see `broker.forking`

    def pause(self) -> bool:
        """Before a fork: nothing, for the child gets sockets that it will not touch."""
        return True

    def resume(self) -> None:
        """After a fork, in the parent: nothing."""

    def start_afresh(self, *, was_paused: bool) -> None:  # noqa: ARG002  # nothing to pause
        """After a fork, in the child: leave the parent's connections alone."""
        self.engine.dispose(close=False)
        self._state, self._writing = threading.Condition(), set()
        self.clock = self._options.make_server_clock()

    # ------------------------------------------------------------------------------------- the work

    def _start(self) -> None:
        with self._state:
            self.require_open()
            self._writing.add(threading.get_ident())

    def _end(self) -> None:
        with self._state:
            self._writing.discard(threading.get_ident())
            self._state.notify_all()

    def _write(self, write: Write[T]) -> T:
        """Do a write, again where that is right."""
        has_savepoints, lost, ended = False, 0, 0
        while True:
            try:
                return self._try(write, has_savepoints=has_savepoints)
            except (Violation, Spoilt) as error:
                if has_savepoints:
                    _raise_ours(error)
                has_savepoints = True
            except Exception as error:
                if is_lost(error) and lost <= self._options.pool_size:
                    lost += 1  # every connection of the pool may be
                elif sqlstate(error) in _AGAIN and ended < MOST_TRIES:
                    ended += 1
                    _pause(ended)
                else:
                    _raise_ours(error)

    def _reading(self, read: Read[T]) -> T:
        with self._channel() as channel:
            return read(PostgresTransaction(channel, self.clock, self._options))

    def _try(self, write: Write[T], *, has_savepoints: bool) -> T:
        with self._channel() as channel:
            channel.control(self._begin)
            if self._options.transaction_pooler:
                channel.control(set_up(self._options.busy_timeout_ms))
            transaction = PostgresTransaction(
                channel, self.clock, self._options, has_savepoints=has_savepoints
            )
            refusal: Refusal | None = None
            try:
                outcome = write.apply(transaction)
            except Refusal as refused:  # which leaves nothing but the clock
                refusal = refused
            transaction.finish()
            _commit(channel)
        if refusal is None:
            return outcome
        try:
            raise refusal
        finally:
            del refusal  # which its own traceback would keep alive

    @contextmanager
    def _channel(self) -> Iterator[PipelineChannel]:
        """A connection of the pool, given back without a transaction; let go of if that fails."""
        connection = self._connect()
        try:
            self.require_open()  # which it may be no longer, after a wait for the connection
            prepared = connection.info.setdefault(_PREPARED, {})
            channel = PipelineChannel(
                connection.dbapi_connection,
                self._options.schema,
                None if self._options.transaction_pooler else prepared,
            )
            try:
                yield channel
            except Exception as error:
                self._recover(channel, error)
                raise
            with suppress(Exception):  # what was done is done
                channel.close()
        finally:
            if self._closed or not _is_idle(connection):
                _let_go(connection)
            connection.close()

    def _connect(self) -> PoolProxiedConnection:
        """A connection of the pool; an error is one of ours, not that of a connection lost."""
        try:
            return self.engine.raw_connection()
        except Exception as error:
            _raise_ours(error)

    def _recover(self, channel: PipelineChannel, error: Exception) -> None:
        """After an error: end the transaction, if there is still a connection."""
        if is_lost(error):
            return
        with suppress(Exception):
            channel.control("ROLLBACK")
            channel.settle()
            channel.close()


def _commit(channel: PipelineChannel) -> None:
    channel.require_connection()  # what is lost before COMMIT is sent was not done for certain
    channel.control("COMMIT")
    try:
        channel.settle()
    except Violation:
        raise
    except Exception as error:
        ours = translate_commit(error)
        if isinstance(ours, OutcomeUnknown):
            raise ours from error
        raise


def _raise_ours(error: Exception) -> NoReturn:
    ours = translate(error)
    try:
        if ours is error:
            raise error
        raise ours from error
    finally:
        del error, ours  # which their own tracebacks would keep alive


def _pause(number: int) -> None:
    """Let the others go on, for longer each time, and not at the same time as others do."""
    longest = min(_FIRST_PAUSE_S * 2**number, _LONGEST_PAUSE_S)
    time.sleep(random.uniform(0, longest))  # noqa: S311  # not for secrets


def _is_idle(connection: PoolProxiedConnection) -> bool:
    from psycopg import pq

    driver: Any = connection.dbapi_connection
    status = driver.pgconn.transaction_status, driver.pgconn.pipeline_status
    return bool(status == (pq.TransactionStatus.IDLE, pq.PipelineStatus.OFF))


def _let_go(connection: PoolProxiedConnection) -> None:
    with suppress(SQLAlchemyError):
        connection.invalidate()
