"""The unit of work: the store's operations in the application's own transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from sqlalchemy import Connection, delete, event, false, inspect
from sqlalchemy.orm import Session, SessionTransaction

from broker.clock import LogicalClock
from broker.errors import ConfigurationError
from broker.models import Base, MetadataEntry
from broker.operations import Operations
from broker.options import Options
from broker.session_database import clock_for, require_fit
from broker.sqlite.corruption import as_ours
from broker.sqlite.engine import BEGINS, in_transaction
from broker.statements import Channel, Statement
from broker.transaction import Read, Transaction, Write

T = TypeVar("T")
P = ParamSpec("P")


class UnitOfWork(Operations):
    """The store's operations as part of a `Session`'s transaction, whoever made its engine.

    Nothing here commits or rolls back: the caller's rows and the store's stand or fall together.
    A refused operation undoes its own effects only and leaves the transaction usable. Broker time
    is read once a transaction. Entities of `broker.models` that the session has loaded are
    expired by a write, and by a rollback to a savepoint, so that they are read again.

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
                f"UnitOfWork needs a Session, not {type(session).__name__}: a scoped_session is"
                " called for its own, and an AsyncSession hands its own over in"
                " await session.run_sync(lambda s: UnitOfWork(s)…)"
            )
        self.session = session
        self.options = options or _DEFAULTS
        self._clock = clock

    def _read(self, make: Callable[P, Read[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        read = make(*args, **kwargs)

        def read_one_snapshot(joined: _Joined) -> T:
            transaction = joined.transaction
            if in_transaction(transaction.channel.connection):
                return read(transaction)
            with transaction.savepoint():  # the driver has not begun yet, or commits by itself
                return read(transaction)

        return self._run(read_one_snapshot)

    def _write(self, make: Callable[P, Write[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        write = make(*args, **kwargs)

        def apply(joined: _Joined) -> T:
            joined.begin_write()
            try:
                return write.apply(joined.transaction)
            except Exception:
                joined.invalidate_if_rolled_back()
                raise

        result = self._run(apply)
        _expire_entities(self.session)
        return result

    def _run(self, work: Callable[[_Joined], T]) -> T:
        channel = None
        try:
            joined = self._join()
            channel = joined.transaction.channel
            return work(joined)
        except Exception as error:
            ours = as_ours(error, channel)
            if ours is error:
                raise
            raise ours from error

    def _join(self) -> _Joined:
        """The session's transaction, with its time if that was read already."""
        connection = self.session.connection(bind_arguments={"mapper": inspect(MetadataEntry)})
        require_fit(connection)
        clock = self._clock or clock_for(connection, self.options)
        root = self.session.get_transaction()
        joined: _Joined | None = self.session.info.get(_JOINED)
        if joined is None:
            event.listen(self.session, "after_soft_rollback", _forget_what_was_undone)
        if joined is None or joined.root is not root or joined.connection is not connection:
            channel = Channel(connection.connection.dbapi_connection, connection.dialect.name)
            transaction = Transaction(channel, clock, self.options)
            joined = self.session.info[_JOINED] = _Joined(root, connection, transaction)
        joined.transaction = joined.transaction.seen_by(clock, self.options)
        return joined


_DEFAULTS = Options()
_JOINED = "broker_joined"


@dataclass(slots=True)
class _Joined:
    """What a session's `info` keeps of its transaction `root`."""

    root: SessionTransaction | None
    connection: Connection
    transaction: Transaction
    has_begun: bool = False

    def begin_write(self) -> None:
        """Take the write lock: from here on what is read is the latest, and nobody else can write.

        Refuses a savepoint that may be all there is of a transaction. A driver that begins by
        itself does so before the first INSERT, UPDATE or DELETE, and not before a SAVEPOINT: one
        that comes first is committed when it is released.
        """
        is_nested = self.connection.in_nested_transaction()
        if is_nested and not self.has_begun and BEGINS not in self.connection.info:
            raise ConfigurationError(
                "this engine's driver does not begin a transaction before a savepoint, whose release"
                " would then commit: call broker.configure_engine(engine) before its first connect,"
                " or let a UnitOfWork write before begin_nested()"
            )
        self.transaction.channel.run(_WRITE_NOTHING)
        if not in_transaction(self.transaction.channel.connection):
            raise ConfigurationError(
                "this session's engine commits every statement by itself (AUTOCOMMIT): the store"
                " needs a transaction"
            )
        self.has_begun = self.has_begun or not is_nested

    def invalidate_if_rolled_back(self) -> None:
        """Let the caller roll back first, if SQLite has by itself, as it may after a failed write.

        What the caller did next would be committed without what it did before.
        """
        if not in_transaction(self.transaction.channel.connection):
            self.connection.invalidate()


_WRITE_NOTHING = Statement(delete(MetadataEntry).where(false()))


def _forget_what_was_undone(session: Session, _previous: SessionTransaction) -> None:
    # SQLAlchemy expires what it flushed in a savepoint itself, and does not know of our writes.
    _expire_entities(session)


def _expire_entities(session: Session) -> None:
    for entity in session.identity_map.values():
        if isinstance(entity, Base) and not inspect(entity).modified:
            session.expire(entity)
