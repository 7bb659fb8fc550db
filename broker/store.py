"""The store: one object for a process that just wants the broker, safe from any thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from broker import opening
from broker.connections import Connections, connect
from broker.database_url import database_url
from broker.operations import Operations
from broker.options import Options
from broker.transaction import Read, Write, read_time
from broker.unit_of_work import UnitOfWork

T = TypeVar("T")
P = ParamSpec("P")


class Broker(Operations):
    """A store of its own connections; make one with `Broker.open`.

    Every operation happens as a whole or not at all, and is safe from any thread. A request must
    not be changed until its call has returned. After a fork the child goes on with connections of
    its own.

    On SQLite writes of this process queue for one connection; those that wait for one another share
    a transaction, each with its own result or error. Reads have a transaction each, side by side. A
    fork waits until no operation runs. On PostgreSQL operations run side by side, up to
    `Options.pool_size` of them, each write in a transaction of its own.
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

        A missing file and its folder, for their owner alone, or a missing schema of a PostgreSQL
        database, are made; the logger `broker` warns of a file that everybody may get at. With
        `migrate=False` nothing is made or migrated, and a schema that is not the newest, or that
        differs from the models in any fact, is refused. `shared` permits a new store in a database
        that an application has tables in.

        The schema is checked before anything is written, write-ahead logging switched on after
        that; a database that is refused keeps every byte. Raises SchemaError (SchemaDrift with
        `facts`), ConfigurationError, DatabaseBusy, DatabaseUnavailable.
        """
        options = options or Options()
        url, patience, schema = database_url(url), options.busy_timeout_ms, options.schema
        if migrate:
            opening.bring_up_to_date(url, busy_timeout_ms=patience, shared=shared, schema=schema)
        else:
            opening.require_current(url, busy_timeout_ms=patience, schema=schema)

        broker = cls(connect(url, options), options)
        try:
            broker._write(_advance_clock)
        except BaseException:
            broker.close()
            raise
        return broker

    def __init__(self, connections: Connections, options: Options) -> None:
        self.options = options
        self._connections = connections

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
        """Let go of all connections, once the writes that are running are done. Can be repeated.

        Writes that wait to be started are refused: they, and what is called afterwards, raise
        StoreClosed.
        """
        self._connections.close()

    @property
    def engine(self) -> Engine:
        """The engine of the store, for sessions of the application on the same database."""
        return self._connections.engine

    def unit_of_work(self, session: Session) -> UnitOfWork:
        """The operations in a session's transaction, with the options and the clock of this store.

        The session may be on `engine` (best as `engine.execution_options(**IMMEDIATE)`) or on an
        engine of the application's own, for the same database.
        """
        self._connections.require_open()
        return UnitOfWork(session, self.options, clock=self._connections.clock)

    def _read(self, make: Callable[P, Read[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._connections.read(make(*args, **kwargs))

    def _write(self, make: Callable[P, Write[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._connections.write(partial(make, *args, **kwargs))


def _advance_clock() -> Write[int]:
    return Write(lambda transaction: transaction.advance(*read_time(transaction)))
