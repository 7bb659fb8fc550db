"""What a unit of work asks of the backend of its session."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.orm import SessionTransaction

from broker.clock import LogicalClock
from broker.database_url import POSTGRESQL, SQLITE
from broker.errors import BrokerError, ConfigurationError
from broker.options import Options
from broker.postgresql import session as postgresql_session
from broker.sqlite import session as sqlite_session
from broker.transaction import Read, Transaction, Write

T = TypeVar("T")


class Joined(Protocol):
    """A session's transaction `root` on a connection, which the store's operations have joined."""

    root: SessionTransaction | None
    connection: Connection
    transaction: Transaction

    def read(self, read: Read[T]) -> T:
        """Do a read in it."""
        ...

    def write(self, write: Write[T]) -> T:
        """Do a write in it; a refused one undoes its own effects only."""
        ...

    def ours(self, error: Exception) -> Exception:
        """The error to raise, `from error`."""
        ...


class SessionBackend(Protocol):
    """The module of a backend for sessions."""

    def check_connection(self, connection: Connection) -> None:
        """Raise ConfigurationError where an application's connection cannot keep the promises."""
        ...

    def join(
        self,
        root: SessionTransaction | None,
        connection: Connection,
        clock: LogicalClock,
        options: Options,
    ) -> Joined:
        """Join a session's transaction."""
        ...

    def translate(self, error: Exception) -> Exception:
        """The error to raise for one of the driver, a pool or SQLAlchemy."""
        ...

    def schema_of(self, connection: Connection, options: Options) -> str | None:
        """The schema that holds the store, None for the connection's own."""
        ...

    def looking_at(
        self, connection: Connection, schema: str | None
    ) -> AbstractContextManager[None]:
        """A block in which names without a schema mean the store's."""
        ...

    def make_clock(self, options: Options) -> LogicalClock:
        """A clock for a database of this backend."""
        ...


def backend_of(connection: Connection) -> SessionBackend:
    """The backend of a session's connection; raises ConfigurationError if there is none."""
    return _backend(connection.dialect.name)


def translate(error: Exception) -> Exception:
    """As `SessionBackend.translate`, for a session that has not come to a connection."""
    for backend in _BACKENDS.values():
        ours = backend.translate(error)
        if isinstance(ours, BrokerError):
            return ours
    return error


_BACKENDS: dict[str | None, SessionBackend] = {
    SQLITE: sqlite_session,
    POSTGRESQL: postgresql_session,
}


def _backend(dialect: str | None) -> SessionBackend:
    if dialect not in _BACKENDS:
        raise ConfigurationError(
            f"{dialect} is not supported: use sqlite:///FILE or postgresql+psycopg://HOST/NAME"
        )
    return _BACKENDS[dialect]
