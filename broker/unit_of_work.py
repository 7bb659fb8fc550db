"""The unit of work: the store's operations in the application's own transaction."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, delete, false, inspect
from sqlalchemy.orm import Session

from broker.clock import LogicalClock
from broker.corruption import find_undecodable
from broker.engine import (
    in_transaction,
    refuse_autocommit_false,
    require_file_connection,
    translate,
)
from broker.errors import ConfigurationError
from broker.models import Base, MetadataEntry
from broker.operations import Operations
from broker.options import Options
from broker.schema import verify
from broker.statements import Channel, Statement, Undecodable
from broker.transaction import Read, Transaction, Write

T = TypeVar("T")


class UnitOfWork(Operations):
    """The store's operations as part of a `Session`'s transaction, whoever made its engine.

    Nothing here commits or rolls back: the caller's rows and the store's stand or fall together.
    A refused operation undoes its own effects only and leaves the transaction usable. Broker time
    is read once a transaction. Entities of `broker.models` that the session has loaded are
    expired by a write, so that they are read again.

    An operation that writes takes SQLite's write lock as it starts. In a transaction that was begun
    by BEGIN IMMEDIATE (`broker.IMMEDIATE`) it has it already. In one that has only read, it raises
    DatabaseBusy if somebody else has written since: roll back and run the whole unit again.

    An `AsyncSession` is served by `await session.run_sync(lambda s: UnitOfWork(s).commit(…))`.

    Operations raise ConfigurationError where the session's engine cannot keep the promises, and
    SchemaError where its database does not hold the store's schema.
    """

    def __init__(
        self, session: Session, options: Options | None = None, *, clock: LogicalClock | None = None
    ) -> None:
        if not isinstance(session, Session):
            raise ConfigurationError(
                f"UnitOfWork needs a Session, not {type(session).__name__}; an AsyncSession hands"
                " its own over: await session.run_sync(lambda s: UnitOfWork(s)…)"
            )
        self.session = session
        self.options = options or _DEFAULTS
        self._clock = clock

    def _read(self, read: Read[T]) -> T:
        def read_one_snapshot(transaction: Transaction) -> T:
            if in_transaction(transaction.channel.connection):
                return read(transaction)
            with transaction.savepoint():  # the driver has not begun yet, or commits by itself
                return read(transaction)

        return self._run(read_one_snapshot)

    def _write(self, write: Write[T]) -> T:
        def recover_or_apply(transaction: Transaction) -> T:
            self._require_begun(transaction.channel)
            _take_write_lock(transaction.channel)
            self._note_begun()
            try:
                found = write.recover(transaction)
                return found[0] if found is not None else write.apply(transaction)
            except Exception:
                self._refuse_to_go_on_without(transaction.channel)
                raise

        result = self._run(recover_or_apply)
        _expire_entities(self.session)
        return result

    def _run(self, work: Callable[[Transaction], T]) -> T:
        channel = None
        try:
            connection = self._connection()
            database = _database_of(connection)
            transaction = self._transaction(
                connection, self._clock or database.clock_for(self.options)
            )
            channel = transaction.channel
            return work(transaction)
        except Undecodable as error:
            assert channel is not None  # noqa: S101 - only a statement on it raises this
            raise find_undecodable(channel) from error
        except Exception as error:
            translated = translate(error)
            if translated is error:
                raise
            raise translated from error

    def _refuse_to_go_on_without(self, channel: Channel) -> None:
        # After a failed write SQLite may roll back everything by itself. What the caller did next
        # would be committed without what it did before: now it has to roll back first.
        if not in_transaction(channel.connection):
            self._connection().invalidate()

    def _require_begun(self, channel: Channel) -> None:
        """Refuse a savepoint that may be all there is of a transaction.

        A driver that begins by itself does so before the first INSERT, UPDATE or DELETE, and not
        before a SAVEPOINT: one that comes first is committed when it is released.
        """
        is_begun = self.session.info.get(_BEGUN) is self.session.get_transaction()
        begins_late = channel.connection.isolation_level is not None
        if begins_late and not is_begun and self.session.in_nested_transaction():
            raise ConfigurationError(
                "this engine's driver does not begin a transaction before a savepoint, whose release"
                " would then commit: call broker.configure_engine(engine) before its first connect,"
                " or let a UnitOfWork write before begin_nested()"
            )

    def _note_begun(self) -> None:
        if not self.session.in_nested_transaction():
            self.session.info[_BEGUN] = self.session.get_transaction()

    def _connection(self) -> Connection:
        return self.session.connection(bind_arguments={"mapper": inspect(MetadataEntry)})

    def _transaction(self, connection: Connection, clock: LogicalClock) -> Transaction:
        """The one that this session's transaction began with, so that its time stays the same."""
        root = self.session.get_transaction()
        remembered = self.session.info.get(_REMEMBERED)
        if remembered is not None and remembered[0] is root:
            transaction: Transaction = remembered[1]
            if (transaction.clock, transaction.options) == (clock, self.options):
                return transaction
        channel = Channel(connection.connection.dbapi_connection, connection.dialect.name)
        transaction = Transaction(channel, clock, self.options)
        self.session.info[_REMEMBERED] = (root, transaction)
        return transaction


_DEFAULTS = Options()
_REMEMBERED = "broker_transaction"
_BEGUN = "broker_begun"
_CHECKED = "broker_checked"


# ------------------------------------------------------------------------- the session's database


class _Database:
    """A database whose schema was found to be the store's, and this process's clocks for it."""

    def __init__(self) -> None:
        self._clocks: dict[tuple[object, object], LogicalClock] = {}

    def clock_for(self, options: Options) -> LogicalClock:
        """The one clock for these sources of time."""
        sources = (options.wall_clock, options.monotonic_clock)
        return self._clocks.setdefault(sources, options.make_clock())


# A dialect lives as long as its engine, and all views of an engine share it.
_databases: weakref.WeakKeyDictionary[Any, _Database] = weakref.WeakKeyDictionary()

if hasattr(os, "register_at_fork"):  # a clock's lock may be held by a thread that the child lacks
    os.register_at_fork(after_in_child=_databases.clear)


def _database_of(connection: Connection) -> _Database:
    """What is known of the connection's database, after the checks that it did not have yet."""
    if _CHECKED not in connection.info:
        _check_connection(connection)
        connection.info[_CHECKED] = True
    database = _databases.get(connection.dialect)
    if database is None:
        verify(connection)
        database = _databases[connection.dialect] = _Database()
    return database


def _check_connection(connection: Connection) -> None:
    require_file_connection(connection)
    refuse_autocommit_false(connection.connection.dbapi_connection)

    # NORMAL (1) may forget acknowledged commits when the power fails; OFF and MEMORY may lose the
    # file when the process dies.
    synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
    journal_mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if synchronous < 2 or journal_mode in {"off", "memory"}:
        raise ConfigurationError(
            f"this engine has synchronous={synchronous} and journal_mode={journal_mode}, under which"
            " acknowledged commits can be lost: call broker.configure_engine(engine) before its"
            " first connect"
        )


def _take_write_lock(channel: Channel) -> None:
    """Write no row: from here on what is read is the latest, and nobody else can write."""
    channel.run(_WRITE_NOTHING)
    if not in_transaction(channel.connection):
        raise ConfigurationError(
            "this session's engine commits every statement by itself (AUTOCOMMIT): the store needs"
            " a transaction"
        )


_WRITE_NOTHING = Statement(delete(MetadataEntry).where(false()))


def _expire_entities(session: Session) -> None:
    for entity in session.identity_map.values():
        if isinstance(entity, Base) and not inspect(entity).modified:
            session.expire(entity)
