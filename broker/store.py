"""The store: one object for a process that just wants the broker, safe from any thread."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, cast
from urllib.parse import unquote

from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import Session

from broker import schema
from broker.corruption import find_undecodable
from broker.engine import make_engine, require_file, translate
from broker.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    SchemaDrift,
    StoreClosed,
)
from broker.operations import Operations
from broker.options import Options
from broker.statements import Channel, Undecodable
from broker.transaction import Read, Transaction, Write, read_floor
from broker.unit_of_work import UnitOfWork
from broker.writer import Writer

T = TypeVar("T")


class Broker(Operations):
    """A store of its own connections; make one with `Broker.open`.

    Every operation is one transaction, and safe from any thread. Writes of this process queue for
    one connection, reads have theirs side by side. A fork waits until no operation runs; after it
    the child goes on with connections of its own.
    """

    @classmethod
    def open(
        cls,
        url: str | URL,
        *,
        migrate: bool = True,
        shared: bool = False,
        options: Options | None = None,
    ) -> Self:
        """Open a database, and bring its schema up to date.

        A missing file, and its folder, are made. With `migrate=False` nothing is made or migrated,
        and a schema that is not the newest, or that differs from the models in any fact, is
        refused. `shared` permits a new store in a database that an application has tables in.

        The schema is checked before anything is written, write-ahead logging switched on after
        that; a database that is refused keeps every byte. Raises SchemaError (SchemaDrift with
        `facts`), ConfigurationError, DatabaseBusy, DatabaseUnavailable.
        """
        options = options or Options()
        url = _file_url(url)
        if migrate:
            _make_folder(url)
            _bring_up_to_date(url, options, shared=shared)
        else:
            _require_current(url, options)

        broker = cls(make_engine(url, busy_timeout_ms=options.busy_timeout_ms), options)
        try:
            broker._write(Write(lambda transaction: transaction.advance(read_floor(transaction))))
        except BaseException:
            broker.close()
            raise
        return broker

    def __init__(self, engine: Engine, options: Options) -> None:
        self.engine = engine
        self.options = options
        self._clock = options.make_clock()
        self._writer = Writer(engine, options)
        self._closed = False
        self._gate = threading.Lock()  # those who read pass it, and a fork shuts it
        self._gate_is_shut = self._writer_is_paused = self._is_quiet = False
        self._is_forked_amid = False
        with _forking:
            _open_stores.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all connections, once the write that is running is done. Can be repeated.

        What is called afterwards raises StoreClosed.
        """
        self._closed = True
        self._writer.close()
        self.engine.dispose()

    def unit_of_work(self, session: Session) -> UnitOfWork:
        """The operations in a session's transaction, with the options and the clock of this store.

        The session may be on `engine` (best as `engine.execution_options(**IMMEDIATE)`) or on an
        engine of the application's own, for the same database.
        """
        self._require_open()
        return UnitOfWork(session, self.options, clock=self._clock)

    def _read(self, read: Read[T]) -> T:
        self._require_open()
        channel = None
        try:
            with self._gate:
                connection = self.engine.raw_connection()
            try:
                channel = Channel(connection.dbapi_connection, self.engine.dialect.name)
                channel.control("BEGIN")  # one snapshot for all of its statements
                return read(Transaction(channel, self._clock, self.options))
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
        except (sqlite3.Error, SQLAlchemyError) as error:
            raise translate(error) from error

    def _write(self, write: Write[T]) -> T:
        self._require_open()
        return self._writer.run(write, self._clock)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed("this Broker was closed: open another one")
        if self._is_forked_amid:
            raise ConfigurationError(
                "this process was forked while the store was in use, so that this child cannot use"
                " it safely: fork when no operation runs and no session on its engine is open"
            )

    def _before_fork(self) -> None:
        """Wait until nothing is going on, and close every connection.

        SQLite keeps book of a process's locks in memory, which a fork copies, while the locks
        themselves stay with the parent. A child would believe that it holds them, and the parent
        would remove the log under its feet.
        """
        patience = self.options.busy_timeout_ms / 1000
        deadline = time.monotonic() + patience
        self._gate_is_shut = self._gate.acquire(timeout=patience)
        self._writer_is_paused = self._writer.pause(max(0, deadline - time.monotonic()))
        pool = cast(QueuePool, self.engine.pool)
        while pool.checkedout() and time.monotonic() < deadline:
            time.sleep(0.001)
        self._is_quiet = self._gate_is_shut and self._writer_is_paused and not pool.checkedout()
        self.engine.dispose()

    def _after_fork_in_parent(self) -> None:
        if self._writer_is_paused:
            self._writer.resume()
        if self._gate_is_shut:
            self._gate.release()

    def _after_fork(self) -> None:
        self.engine.dispose(close=False)
        self._writer.forget()
        self._gate = threading.Lock()
        self._is_forked_amid = self._is_forked_amid or not self._is_quiet
        self._clock = self.options.make_clock()  # the lock of the other may be held for ever


_open_stores: weakref.WeakSet[Broker] = weakref.WeakSet()
_paused: list[Broker] = []  # while a fork is under way
_forking = threading.RLock()


def _before_fork() -> None:
    _forking.acquire()
    _paused[:] = _open_stores
    for store in _paused:
        store._before_fork()


def _after_fork_in_parent() -> None:
    for store in _paused:
        store._after_fork_in_parent()
    _paused.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    for store in _paused:
        store._after_fork()
    _paused.clear()
    _forking = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


# ---------------------------------------------------------------------------------------- opening


def _file_url(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        # Not shown, for there may be a password in it.
        raise ConfigurationError("this is not a database URL: write sqlite:///FILE") from error
    require_file(parsed)
    return parsed.set(drivername="sqlite")  # an application may name an async driver


def _path(url: URL) -> Path:
    """Where the file is."""
    name = url.database or ""
    if name.startswith("file:") and "uri" in url.query:
        name = unquote(name.removeprefix("file:").split("?")[0])
    return Path(name)


def _make_folder(url: URL) -> None:
    path = _path(url)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(f"the folder of {path} cannot be made: {error}") from error


def _bring_up_to_date(url: URL, options: Options, *, shared: bool) -> None:
    if not _look(url, options, lambda connection: schema.state(connection, shared=shared).at_head):
        schema.upgrade(url, shared=shared)


def _require_current(url: URL, options: Options) -> None:
    path = _path(url)
    if not path.is_file():
        raise DatabaseUnavailable(f"there is no database {path}")

    def facts_of(connection: Connection) -> list[str]:
        schema.verify(connection)
        return schema.drift(connection)

    facts = _look(url, options, facts_of)
    if facts:
        raise SchemaDrift(
            f"the schema differs from the models in {len(facts)} facts, first: {facts[0]}",
            facts=facts,
        )


def _look(url: URL, options: Options, look: Callable[[Connection], T]) -> T:
    """Look at a database before anything is decided about it, its journal mode included."""
    engine = make_engine(
        url, busy_timeout_ms=options.busy_timeout_ms, wal=False, poolclass=NullPool
    )
    try:
        with engine.connect() as connection:
            return look(connection)
    except SQLAlchemyError as error:
        raise translate(error) from error
    finally:
        engine.dispose()
