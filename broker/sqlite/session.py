"""A session's transaction on SQLite, which the operations of a unit of work join."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, delete, false
from sqlalchemy.orm import SessionTransaction

from broker.clock import LogicalClock
from broker.errors import ConfigurationError
from broker.models import MetadataEntry
from broker.options import Options
from broker.sqlite.channel import SQLiteChannel
from broker.sqlite.corruption import as_ours
from broker.sqlite.database_file import require_file_connection
from broker.sqlite.engine import (
    BEGINS,
    in_transaction,
    look_whether_read_only,
    refuse_autocommit_false,
    translate,
)
from broker.statements import Statement
from broker.transaction import Read, Transaction, Write

__all__ = ["check_connection", "join", "looking_at", "make_clock", "schema_of", "translate"]

T = TypeVar("T")


def join(
    root: SessionTransaction | None,
    connection: Connection,
    clock: LogicalClock,
    options: Options,
) -> SQLiteJoined:
    """Join a session's transaction."""
    channel = SQLiteChannel(connection.connection.dbapi_connection)
    return SQLiteJoined(root, connection, Transaction(channel, clock, options))


def make_clock(options: Options) -> LogicalClock:
    """A clock for a database file."""
    return options.make_clock()


def schema_of(_connection: Connection, _options: Options) -> str | None:
    """A file has no schemas."""
    return None


def looking_at(_connection: Connection, _schema: str | None) -> AbstractContextManager[None]:
    """A block for looking at the store."""
    return nullcontext()


@dataclass(slots=True)
class SQLiteJoined:
    """What a session's `info` keeps of its transaction `root`."""

    root: SessionTransaction | None
    connection: Connection
    transaction: Transaction
    has_begun: bool = False

    def read(self, read: Read[T]) -> T:
        """Do a read, all of whose statements see one snapshot."""
        if in_transaction(self.transaction.channel.connection):
            return read(self.transaction)
        with self.transaction.savepoint():  # the driver has not begun yet, or commits by itself
            return read(self.transaction)

    def write(self, write: Write[T]) -> T:
        """Do a write, under the write lock."""
        self._begin_write()
        try:
            return write.apply(self.transaction)
        except Exception:
            self._invalidate_if_rolled_back()
            raise

    def ours(self, error: Exception) -> Exception:
        """The error to raise, `from error`; a connection that can only read is let go of."""
        look_whether_read_only(self.connection, error)
        return as_ours(error, self.transaction.channel)

    def _begin_write(self) -> None:
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
        self.transaction.channel.put(_WRITE_NOTHING)
        if not in_transaction(self.transaction.channel.connection):
            raise ConfigurationError(
                "this session's engine commits every statement by itself (AUTOCOMMIT): the store"
                " needs a transaction"
            )
        self.has_begun = self.has_begun or not is_nested

    def _invalidate_if_rolled_back(self) -> None:
        """Let the caller roll back first, if SQLite has by itself, as it may after a failed write.

        What the caller did next would be committed without what it did before.
        """
        if not in_transaction(self.transaction.channel.connection):
            self.connection.invalidate()


_WRITE_NOTHING = Statement(delete(MetadataEntry).where(false()))


def check_connection(connection: Connection) -> None:
    """Raise ConfigurationError where an application's connection cannot keep the promises."""
    require_file_connection(connection)
    refuse_autocommit_false(connection.connection.dbapi_connection)

    # Checked before anything else is read: without it an older SQLite reads nothing at all.
    if not connection.exec_driver_sql("PRAGMA trusted_schema").scalar_one():
        raise ConfigurationError(
            "this engine has PRAGMA trusted_schema=OFF, under which SQLite cannot use the store's"
            " index on JSON: leave it ON"
        )

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
