"""What a capability may use of the transaction that is open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from sqlalchemy import BigInteger, bindparam, insert, literal_column, select, update

from broker.clock import MAX_SAFE_INTEGER, LogicalClock
from broker.errors import DatabaseError, Refusal
from broker.models import MetadataEntry
from broker.options import Options
from broker.postgresql.sql import RAISE_FLOOR, SERVER_TIME
from broker.schema.validate import canonical_integer
from broker.statements import Channel, Row, Spelled, Statement

T = TypeVar("T")

FLOOR_KEY = "logical_time_floor"
_FLOOR_NAME = f"metadata.{FLOOR_KEY}"

#: A scalar subquery for reading statements: the persisted clock floor, as text or null.
FLOOR = (
    select(MetadataEntry.value)
    .where(MetadataEntry.key == literal_column(f"'{FLOOR_KEY}'"))
    .scalar_subquery()
)


#: What tells the time, in this order, for reading statements: `advance`, `observe`, `peek` take it.
TIME = (FLOOR, Spelled(BigInteger(), on_sqlite="NULL", on_postgresql=SERVER_TIME))

#: What a reading statement joins, so that it has one row whether or not anything is found.
ONE_ROW = select(literal_column("1").label("one")).subquery("one_row")


class Transaction:
    """One transaction: its statements, its one clock reading, its savepoints.

    Whoever made it begins the transaction and ends it; nothing here does. Without savepoints
    whoever made it is ready to roll all of it back and do it again with them: see `Spoilt`.
    """

    __slots__ = ("_now", "_persisted", "channel", "clock", "has_savepoints", "options")

    def __init__(
        self,
        channel: Channel,
        clock: LogicalClock,
        options: Options,
        *,
        has_savepoints: bool = True,
    ) -> None:
        self.channel = channel
        self.clock = clock
        self.options = options
        self.has_savepoints = has_savepoints
        self._now: int | None = None
        self._persisted: str | None = None

    def seen_by(self, clock: LogicalClock, options: Options) -> Transaction:
        """This transaction with other options: its time stays, if it came from such a clock."""
        if clock is self.clock and options is self.options:
            return self
        other = type(self)(self.channel, clock, options)
        if clock.sources == self.clock.sources:
            other._now = self._now
        return other

    def advance(self, floor: str | None, server: int | None = None) -> int:
        """Broker time of this transaction, persisted.

        `floor` is the text stored until now, `server` what the server's clock says.
        """
        if floor is not None and floor == self._persisted:
            return cast(int, self._now)
        known = parse_floor(floor)
        now = self._read_clock(known, server)
        if now > known or floor is None:
            self._persist(now, is_first=floor is None)
        return now

    def observe(self, floor: str | None, server: int | None = None) -> int:
        """Broker time of this transaction, advanced in memory only."""
        return self._read_clock(parse_floor(floor), server)

    def peek(self, floor: str | None, server: int | None = None) -> int:
        """Broker time, without advancing the clock."""
        return self.clock.peek(parse_floor(floor), server) if self._now is None else self._now

    def settled(self, work: Callable[[], T]) -> T:
        """What `work` comes to, which looks, judges, and writes in a block of `savepoint`.

        Where others write at the same time, it is done again if what it saw may have been the state
        of before: so it has to be of no effect when it raises.
        """
        return work()

    def cursors(self, found: Any, count: int, before: int) -> tuple[int, ...]:
        """The cursors of the next `count` events; `found` is what the look found out about them.

        `before` are those of events that are not written yet.
        """
        # Nobody else can write meanwhile, and events are never deleted: the next ones are known.
        last = (found or 0) + before
        if last + count > MAX_SAFE_INTEGER:
            raise DatabaseError(
                "the cursors of the journal are used up: another writer took the last"
            )
        return tuple(range(last + 1, last + count + 1))

    @property
    def mark(self) -> int | None:
        """What a look for a commit has to know of the earlier ones of this transaction."""
        return None

    def horizon(self) -> int:
        """The largest cursor up to which no event is missing, and none will come."""
        return MAX_SAFE_INTEGER

    @property
    def lineage_mark(self) -> str:
        """The character with which ids begin that no caller can give."""
        return "\0"

    def savepoint(self) -> AbstractContextManager[None]:
        """A block whose effects are undone when it raises; what happened before stays.

        Without savepoints it raises Spoilt instead, from what was raised.
        """
        return Savepoint(self.channel) if self.has_savepoints else _NO_SAVEPOINT

    def _read_clock(self, known: int, server: int | None) -> int:
        if self._now is None or self._now < known:
            self._now = self.clock.read(known, server)
        return self._now

    def _persist(self, now: int, *, is_first: bool) -> None:
        put_floor(self.channel, now, is_first=is_first)
        self._persisted = str(now)


class Savepoint:
    """A savepoint as a context manager; a generator would take twice as long."""

    __slots__ = ("_channel", "_control")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._control = channel.control

    def __enter__(self) -> None:
        self._control("SAVEPOINT broker_effects")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._control("RELEASE SAVEPOINT broker_effects")
            return
        # On a full disk, for one, SQLite has rolled everything back by itself already.
        try:
            self._control("ROLLBACK TO SAVEPOINT broker_effects")
            self._control("RELEASE SAVEPOINT broker_effects")
        except Exception:
            with contextlib.suppress(Exception):  # nothing half done may be left to be committed
                self._control("ROLLBACK")


class Spoilt(Exception):
    """A block failed in a transaction without savepoints: its effects are undone with all others.

    A savepoint costs a third of a commit's time in the database, for SQLite copies every page that
    is changed within one. So a first try goes without, and only what fails is done again with them.
    """


class _NoSavepoint:
    """The block of a first try."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: type[BaseException] | None, error: object, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, Spoilt):  # of a block within
            raise Spoilt from error


_NO_SAVEPOINT = _NoSavepoint()


#: Something to do in a transaction that only reads.
Read: TypeAlias = Callable[[Transaction], T]


def _nothing(_transaction: Transaction) -> None:
    return None


class Batch(NamedTuple, Generic[T]):
    """How a write is done together with others of its kind, in a transaction without savepoints.

    `apply_all` takes the `subject` of each, in their order, and answers the outcome of each as if
    they had been done one by one. Whatever it raises means that they must be.
    """

    apply_all: Callable[[Transaction, Sequence[Any]], Sequence[T | Refusal]]
    subject: Any


class Write(NamedTuple, Generic[T]):
    """Something to do in a transaction that writes.

    `apply` does the work, or raises a Refusal and leaves nothing but the clock; where an earlier
    call has done it already, it answers as that did and leaves the clock alone. `recover` only
    looks for such an answer, as a tuple of one, and needs no write lock. `weight` is about how many
    characters are stored. `batch` is another way to do it, for many at once.
    """

    apply: Callable[[Transaction], T]
    recover: Callable[[Transaction], tuple[T] | None] = _nothing
    weight: int = 0
    batch: Batch[T] | None = None


def read_time(transaction: Transaction) -> tuple[str | None, int | None]:
    """What tells the time, see `TIME`."""
    floor, server = cast(Row, transaction.channel.one(_READ_TIME))
    return floor, server


def put_floor(channel: Channel, now: int, *, is_first: bool) -> None:
    """Persist a reading of the clock; `is_first` if there is no floor yet."""
    channel.put(_FIRST_FLOOR if is_first else _RAISE_FLOOR, str(now))


def parse_floor(floor: str | None) -> int:
    """The clock floor that a stored text means, 0 for None; SchemaError unless canonical."""
    return 0 if floor is None else canonical_integer(floor, _FLOOR_NAME)


_READ_TIME = Statement(select(*TIME))

_RAISE_FLOOR = Statement(
    update(MetadataEntry)
    .where(MetadataEntry.key == literal_column(f"'{FLOOR_KEY}'"))
    .values(value=bindparam("now")),
    "now",
    on_postgresql=RAISE_FLOOR,
)

_FIRST_FLOOR = Statement(
    insert(MetadataEntry).values(key=FLOOR_KEY, value=bindparam("now")),
    "now",
    on_postgresql=(
        f"INSERT INTO {{schema}}metadata (key, value) VALUES ('{FLOOR_KEY}', :now)"
        " ON CONFLICT (key) DO NOTHING"
    ),
)
