"""A session's transaction on PostgreSQL, which the operations of a unit of work join."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy import exc as sa_exc
from sqlalchemy.orm import SessionTransaction

from broker.clock import LogicalClock
from broker.errors import ConfigurationError
from broker.options import Options
from broker.postgresql.channel import CursorChannel
from broker.postgresql.engine import translate
from broker.postgresql.transaction import PostgresTransaction
from broker.transaction import Read, Transaction, Write

__all__ = ["check_connection", "join", "looking_at", "make_clock", "schema_of", "translate"]

T = TypeVar("T")

# What is acknowledged has to survive; how long to wait for locks is the application's affair.
_SET_UP = """
SELECT current_setting('transaction_isolation') FROM (
  SELECT CASE current_setting('synchronous_commit') WHEN 'off'
  THEN set_config('synchronous_commit', 'on', true) END OFFSET 0
) AS done
"""

_DRIVERS = {"psycopg", "psycopg_async"}


def check_connection(connection: Connection) -> None:
    """Raise ConfigurationError where an application's connection cannot keep the promises."""
    if connection.dialect.driver not in _DRIVERS:
        raise ConfigurationError(
            f"the driver {connection.dialect.driver} is not supported: write"
            " postgresql+psycopg://HOST/NAME"
        )
    _refuse_autocommit(_driver_of(connection.connection.dbapi_connection))


def schema_of(connection: Connection, options: Options) -> str | None:
    """The schema that holds the store: the options' own, or the one that the engine maps to."""
    if options.schema is not None:
        return options.schema
    mapped = connection.get_execution_options().get("schema_translate_map") or {}
    return cast("str | None", mapped.get(None))


@contextmanager
def looking_at(connection: Connection, schema: str | None) -> Iterator[None]:
    """A block in which names without a schema mean those of the store's; leaves nothing behind."""
    connection.exec_driver_sql("SAVEPOINT broker_look")
    if schema is not None:
        quoted = connection.dialect.identifier_preparer.quote_schema(schema)
        connection.exec_driver_sql(f"SET LOCAL search_path TO {quoted}")
    try:
        yield
    except BaseException:
        with suppress(sa_exc.SQLAlchemyError):  # that a lost connection is lost, which is known
            _forget_look(connection)
        raise
    _forget_look(connection)


def _forget_look(connection: Connection) -> None:
    connection.exec_driver_sql("ROLLBACK TO SAVEPOINT broker_look")
    connection.exec_driver_sql("RELEASE SAVEPOINT broker_look")


def join(
    root: SessionTransaction | None,
    connection: Connection,
    clock: LogicalClock,
    options: Options,
) -> PostgresJoined:
    """Join a session's transaction."""
    channel = CursorChannel(connection.connection.dbapi_connection, schema_of(connection, options))
    return PostgresJoined(root, connection, PostgresTransaction(channel, clock, options))


def make_clock(options: Options) -> LogicalClock:
    """A clock for a database of a server."""
    return options.make_server_clock()


@dataclass(slots=True)
class PostgresJoined:
    """What a session's `info` keeps of its transaction `root`."""

    root: SessionTransaction | None
    connection: Connection
    transaction: Transaction
    is_checked: bool = False

    def read(self, read: Read[T]) -> T:
        """Do a read, each of whose statements sees what is committed when it starts.

        With the snapshot of another isolation it would miss events: those that were not committed
        at that time, before the cursor of one that was.
        """
        self._check_transaction()
        return read(self.transaction)

    def write(self, write: Write[T]) -> T:
        """Do a write, which locks what it judges until the session's transaction ends."""
        self._check_transaction()
        transaction = cast(PostgresTransaction, self.transaction)
        try:
            return write.apply(transaction)
        finally:
            if self._is_usable():
                transaction.finish()

    def ours(self, error: Exception) -> Exception:
        """The error to raise, `from error`."""
        if isinstance(error, sa_exc.MissingGreenlet):
            return ConfigurationError(
                "an async session must be used through run_sync:"
                " await session.run_sync(lambda s: UnitOfWork(s)…)"
            )
        if self._driver().closed and not self.connection.invalidated:
            self.connection.invalidate()  # so that the caller can roll back, and the pool has others
        return translate(error)

    def _check_transaction(self) -> None:
        """Once a transaction: that it is one, and READ COMMITTED."""
        if self.is_checked:
            return
        _refuse_autocommit(self._driver())
        level = self.connection.exec_driver_sql(_SET_UP).scalar_one()
        if level != "read committed":
            raise ConfigurationError(
                f"this session's transaction is at {level.upper()}, where a look that waits for a"
                " lock sees what was there before: the store needs READ COMMITTED, by"
                ' execution_options(isolation_level="READ COMMITTED")'
            )
        self.is_checked = True

    def _driver(self) -> Any:
        return _driver_of(self.transaction.channel.connection)

    def _is_usable(self) -> bool:
        """Whether the server still takes statements in this transaction."""
        from psycopg import pq

        return bool(self._driver().pgconn.transaction_status == pq.TransactionStatus.INTRANS)


def _driver_of(connection: Any) -> Any:
    """The driver's own connection, which an async engine wraps."""
    return getattr(connection, "driver_connection", connection)


def _refuse_autocommit(driver: Any) -> None:
    if driver.autocommit:
        raise ConfigurationError(
            "this session's engine commits every statement by itself (AUTOCOMMIT): the store"
            " needs a transaction"
        )
