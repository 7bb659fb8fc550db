"""A transaction on PostgreSQL: others run at the same time, and the server tells the time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

from sqlalchemy import text

from broker.errors import ConfigurationError, Refusal
from broker.postgresql.sql import HORIZON
from broker.statements import Row, Statement, Violation
from broker.transaction import Savepoint, Spoilt, Transaction, parse_floor, put_floor

T = TypeVar("T")

_MOST_TRIES = 3

LINEAGE_MARK = "\x01"  # no text holds NUL here


class PostgresTransaction(Transaction):
    """As `Transaction`, at READ COMMITTED beside others.

    Time is read for each operation. The floor of the clock is raised by `finish`, which whoever made
    the transaction calls at the end of each operation.
    """

    __slots__ = ("_floor", "_mark")

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._floor: tuple[int, bool] | None = None
        self._mark: int | None = None

    def settled(self, work: Callable[[], T]) -> T:
        """As of `Transaction`. What may have been the state of before is looked at again:

        - A refusal: the look that led to it may have waited for a lock, and then shows the locked
          rows as they are now, and the rest as it was before; now that the locks are held, another
          look shows everything.
        - A violation: somebody has stored the same id meanwhile. Without savepoints the transaction
          is over then: it raises Spoilt, and whoever made it begins another.
        """
        is_refused = False
        for _ in range(_MOST_TRIES - 1):
            try:
                return work()
            except Refusal:
                if is_refused:
                    raise
                is_refused = True
            except Violation as error:
                if not self.has_savepoints:
                    raise Spoilt from error
        return work()

    def savepoint(self) -> AbstractContextManager[None]:
        """As of `Transaction`; without savepoints an error ends the transaction as a whole."""
        return _SettledSavepoint(self.channel) if self.has_savepoints else nullcontext()

    def cursors(self, found: Any, _count: int, _before: int) -> tuple[int, ...]:
        """The cursors that were drawn by the look; they need not be one after another."""
        if found is None:
            return ()
        mark, _, drawn = found.partition(":")
        self._mark = int(mark)
        return tuple(map(int, drawn.split(",")))

    @property
    def mark(self) -> int | None:
        """The number that this transaction's advisory lock names, once it has drawn cursors."""
        return self._mark

    def horizon(self) -> int:
        """As of `Transaction`. What is read up to it has to be read by a later statement.

        Raises ConfigurationError on a standby, which knows nothing of the transactions under way.
        """
        found = cast(Row, self.channel.one(_HORIZON))[0]
        if found is None:
            raise ConfigurationError(
                "this server is a standby, which does not know what is under way on its primary:"
                " read the journal and the read model there"
            )
        return cast(int, found)

    @property
    def lineage_mark(self) -> str:
        return LINEAGE_MARK

    def finish(self) -> None:
        """Raise the floor of the clock to the time that was used, as the last change of all."""
        floor, self._floor = self._floor, None
        if floor is not None:
            put_floor(self.channel, floor[0], is_first=floor[1])

    def peek(self, floor: str | None, server: int | None = None) -> int:
        return self.clock.peek(parse_floor(floor), server)

    def _read_clock(self, known: int, server: int | None) -> int:
        self._now = self.clock.read(known, server)
        return self._now

    def _persist(self, now: int, *, is_first: bool) -> None:
        self._floor = (now, is_first)


class _SettledSavepoint(Savepoint):
    """A savepoint that waits for what was put in it, so that its errors come before its end."""

    __slots__ = ()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            try:
                self._channel.settle()
            except BaseException as error:
                super().__exit__(type(error), error, None)
                raise
        super().__exit__(kind, *rest)


_HORIZON = Statement(text(HORIZON))
