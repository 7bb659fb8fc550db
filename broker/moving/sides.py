"""What a move needs of a database: a place to read a store from or to fill, and a side of the move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Transaction, text
from sqlalchemy.exc import SQLAlchemyError

from broker.errors import BrokerError, OutcomeUnknown, SchemaError
from broker.moving.tables import FLOOR, Listing, Row
from broker.schema import state, versions

T = TypeVar("T")


class Side(ABC):
    """One of the two databases of a move, in its one transaction; `role` is which one."""

    def __init__(self, connection: Connection, role: str) -> None:
        self.connection = connection
        self.role = role
        self.driver: Any = connection.connection.driver_connection

    @abstractmethod
    def reading(self, listing: Listing) -> AbstractContextManager[Iterator[Row]]:
        """The rows of a listing, one by one; nothing else may run on this side meanwhile."""

    @abstractmethod
    def write(self, table: Listing, rows: Iterable[Row]) -> None:
        """Store rows; raises SchemaError for one that this backend cannot hold."""

    @abstractmethod
    def settle(self, last_cursor: int) -> None:
        """Check all references now, and let the journal go on behind `last_cursor`."""

    @abstractmethod
    def translate(self, error: Exception) -> Exception:
        """One of our errors for one of the driver's; any other as it is."""

    def run(self, sql: str, **parameters: Any) -> list[Row]:
        """The rows, if there are any, that a statement with named parameters gives."""
        with self.errors():
            result = self.connection.execute(text(sql), parameters)
            return [tuple(row) for row in result] if result.returns_rows else []

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Let out errors of ours only, which say in which of the two databases it was."""
        try:
            yield
        except Exception as error:
            ours = self.translate(error)
            if ours is error or not isinstance(ours, BrokerError):
                raise
            raise type(ours)(f"in the {self.role}: {ours.message}", **ours.details) from error


class Place(Protocol):
    """Where a store is, or will be."""

    def read(self, work: Callable[[Side], T]) -> T:
        """What `work` makes of the store in one snapshot, which it leaves as it is."""

    def make_ready(self) -> None:
        """Make the store, or migrate it, unless there are rows in it: they raise SchemaError."""

    def fill(self, work: Callable[[Side], T]) -> T:
        """What `work` answers that fills the empty store, committed after it and only then.

        Nobody else writes to the store meanwhile. Raises SchemaError if it is not empty.
        """


def require_empty(connection: Connection) -> None:
    """Raise SchemaError if there is a row of a store, of whatever version, in a database."""
    version = state(connection).version
    for table in versions.TABLES.get(version, ()):
        fresh = f" WHERE key NOT IN ('schema_version', '{FLOOR}')" if table == "metadata" else ""
        found = connection.exec_driver_sql(f"SELECT 1 FROM {table}{fresh} LIMIT 1").fetchone()
        if found is not None:
            raise SchemaError(
                f"the target holds a store already: there are rows in {table}. A store is moved"
                " into an empty database only; it was left as it was",
                table=table,
            )


def commit(transaction: Transaction, translate: Callable[[BaseException], Exception]) -> None:
    """Commit the transaction that filled a target; `translate` is for errors of COMMIT."""
    try:
        transaction.commit()
    except SQLAlchemyError as error:
        ours = translate(error)
        if isinstance(ours, OutcomeUnknown):
            said = getattr(error, "orig", None) or error
            raise OutcomeUnknown(
                f"COMMIT failed ({said}), and the target is either complete or empty: move again,"
                " which is refused if it is complete"
            ) from error
        raise ours from error
