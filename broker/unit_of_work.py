"""The unit of work: the store's operations in the application's own transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sqlalchemy import event, inspect
from sqlalchemy.orm import Session, SessionTransaction

from broker.clock import LogicalClock
from broker.errors import ConfigurationError
from broker.joined import Joined, backend_of, translate
from broker.models import Base, MetadataEntry
from broker.operations import Operations
from broker.options import Options
from broker.session_database import clock_for, require_fit
from broker.transaction import Read, Write

T = TypeVar("T")
P = ParamSpec("P")


class UnitOfWork(Operations):
    """The store's operations as part of a `Session`'s transaction, whoever made its engine.

    Nothing here commits or rolls back: the caller's rows and the store's stand or fall together.
    A refused operation undoes its own effects only and leaves the transaction usable. Entities of `broker.models` that the session has loaded are
    expired by a write, and by a rollback to a savepoint, so that they are read again.

    On SQLite an operation that writes takes the write lock as it starts. In a transaction that was
    begun by BEGIN IMMEDIATE (`broker.IMMEDIATE`) it has it already. In one that has only read, it
    raises DatabaseBusy if somebody else has written since: roll back and run the whole unit again.
    Broker time is read once a transaction.

    On PostgreSQL it locks the leases and the stream that it judges until the transaction ends, and
    reads broker time for each operation. The transaction has to be READ COMMITTED. It may be the
    victim of a deadlock with others that lock in another order: DatabaseBusy says so, and the whole
    unit is to be run again.

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
        return self._run(lambda joined: joined.read(read))

    def _write(self, make: Callable[P, Write[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        write = make(*args, **kwargs)
        result = self._run(lambda joined: joined.write(write))
        _expire_entities(self.session)
        return result

    def _run(self, work: Callable[[Joined], T]) -> T:
        joined: Joined | None = None
        try:
            joined = self._join()
            return work(joined)
        except Exception as error:
            ours = translate(error) if joined is None else joined.ours(error)
            if ours is error:
                raise
            raise ours from error

    def _join(self) -> Joined:
        """The session's transaction, with its time if that was read already."""
        connection = self.session.connection(bind_arguments={"mapper": inspect(MetadataEntry)})
        backend = backend_of(connection)
        require_fit(connection, self.options)
        clock = self._clock or clock_for(connection, self.options)
        root = self.session.get_transaction()
        known: dict[str | None, Joined] | None = self.session.info.get(_JOINED)
        if known is None:
            known = self.session.info[_JOINED] = {}
            event.listen(self.session, "after_soft_rollback", _forget_what_was_undone)
        schema = backend.schema_of(connection, self.options)
        joined = known.get(schema)
        if joined is None or joined.root is not root or joined.connection is not connection:
            joined = known[schema] = backend.join(root, connection, clock, self.options)
        joined.transaction = joined.transaction.seen_by(clock, self.options)
        return joined


_DEFAULTS = Options()
_JOINED = "broker_joined"


def _forget_what_was_undone(session: Session, _previous: SessionTransaction) -> None:
    # SQLAlchemy expires what it flushed in a savepoint itself, and does not know of our writes.
    _expire_entities(session)


def _expire_entities(session: Session) -> None:
    for entity in session.identity_map.values():
        if isinstance(entity, Base) and not inspect(entity).modified:
            session.expire(entity)
