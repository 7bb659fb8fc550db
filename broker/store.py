"""The store: one object for a process that just wants the broker, safe from any thread."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import URL, Connection, Engine, NullPool, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import Session

from broker import reads, schema
from broker.corruption import find_undecodable
from broker.engine import make_engine, require_file, translate
from broker.errors import (
    BrokerError,
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
    one connection, reads have theirs side by side. After a fork the child goes on with connections
    of its own.
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

    @property
    def journal_mode(self) -> str:
        """The database's journal mode, which is "wal"."""
        return self._read(reads.journal_mode)

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
            connection = self.engine.raw_connection()
            try:
                channel = Channel(connection.dbapi_connection, self.engine.dialect.name)
                channel.control("BEGIN")  # one snapshot for all of its statements
                return read(Transaction(channel, self._clock, self.options))
            except Undecodable as error:
                assert channel is not None  # noqa: S101 - only a statement on it raises this
                raise find_undecodable(channel) from error
            finally:
                connection.close()  # which rolls back
        except BrokerError:
            raise
        except Exception as error:
            raise translate(error) from error

    def _write(self, write: Write[T]) -> T:
        self._require_open()
        return self._writer.run(write, self._clock)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosed("this Broker was closed: open another one")

    def _after_fork(self) -> None:
        self.engine.dispose(close=False)
        self._writer.forget()
        self._clock = self.options.make_clock()  # the lock of the other may be held for ever


_open_stores: weakref.WeakSet[Broker] = weakref.WeakSet()


def _leave_connections_to_parent() -> None:
    for store in list(_open_stores):
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_connections_to_parent)


# ---------------------------------------------------------------------------------------- opening


def _file_url(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigurationError(f"{url!r} is not a database URL: write sqlite:///FILE") from error
    require_file(parsed)
    return parsed.set(drivername="sqlite")  # an application may name an async driver


def _path(url: URL) -> Path | None:
    """Where the file is; None for an SQLite URI, which only SQLite can read."""
    name = url.database or ""
    return None if name.startswith("file:") else Path(name)


def _make_folder(url: URL) -> None:
    path = _path(url)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(f"the folder of {path} cannot be made: {error}") from error


def _bring_up_to_date(url: URL, options: Options, *, shared: bool) -> None:
    if not _look(url, options, lambda connection: schema.state(connection, shared=shared).at_head):
        schema.upgrade(url, shared=shared)


def _require_current(url: URL, options: Options) -> None:
    path = _path(url)
    if path is not None and not path.is_file():
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
