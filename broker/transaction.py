"""What a capability may use of the transaction that is open."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, cast

from sqlalchemy import bindparam, insert, select, update

from broker.clock import MAX_SAFE_INTEGER, LogicalClock
from broker.errors import SchemaError
from broker.models import MetadataEntry
from broker.options import Options
from broker.statements import Channel, Row, Statement

T = TypeVar("T")

FLOOR_KEY = "logical_time_floor"

#: A scalar subquery for reading statements: the persisted clock floor, as text or null.
FLOOR = select(MetadataEntry.value).where(MetadataEntry.key == FLOOR_KEY).scalar_subquery()

_CANONICAL = re.compile(r"0|[1-9][0-9]*")


class Transaction:
    """One open transaction: its statements, its one clock reading, its savepoints.

    Whoever made it began the transaction and ends it; nothing here does.
    """

    __slots__ = ("_now", "channel", "clock", "options", "persisted_clock")

    def __init__(self, channel: Channel, clock: LogicalClock, options: Options) -> None:
        self.channel = channel
        self.clock = clock
        self.options = options
        self.persisted_clock = False
        self._now: int | None = None

    def advance(self, floor: str | None) -> int:
        """Broker time of this transaction, persisted; `floor` is the text stored until now."""
        now, known = self.observe(floor), parse_floor(floor)
        if floor is None or now > known:
            self._persist(now)
        self.persisted_clock = True
        return now

    def observe(self, floor: str | None) -> int:
        """Broker time of this transaction, advanced in memory only."""
        known = parse_floor(floor)
        if self._now is None or self._now < known:
            self._now = self.clock.read(known)
        return self._now

    def peek(self, floor: str | None) -> int:
        """Broker time, without advancing the clock."""
        return self.clock.peek(parse_floor(floor)) if self._now is None else self._now

    def _persist(self, now: int) -> None:
        if not self.channel.run(_RAISE_FLOOR, str(now)):
            self.channel.run(_FIRST_FLOOR, str(now))

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what happens inside when it raises; what happened before stays."""
        self.channel.control("SAVEPOINT broker_effects")
        try:
            yield
        except BaseException:
            # On a full disk, for one, SQLite has rolled everything back by itself already.
            with contextlib.suppress(Exception):
                self.channel.control("ROLLBACK TO SAVEPOINT broker_effects")
                self.channel.control("RELEASE SAVEPOINT broker_effects")
            raise
        self.channel.control("RELEASE SAVEPOINT broker_effects")


#: Something to do in a transaction that only reads.
Read: TypeAlias = Callable[[Transaction], T]


@dataclass(frozen=True, slots=True)
class Write(Generic[T]):
    """Something to do in a transaction that writes.

    `recover` looks for the result of an earlier call, as a tuple of one; where it finds it,
    nothing else happens. `apply` does the work, or raises a Refusal and leaves nothing but the
    clock.
    """

    apply: Callable[[Transaction], T]
    recover: Callable[[Transaction], tuple[T] | None] = lambda _transaction: None


def read_floor(transaction: Transaction) -> str | None:
    """The persisted clock floor, as text or None."""
    return cast("str | None", cast(Row, transaction.channel.one(_READ_FLOOR))[0])


def parse_floor(floor: str | None) -> int:
    """The clock floor that a stored text means, 0 for None; SchemaError unless canonical."""
    if floor is None:
        return 0
    if not _CANONICAL.fullmatch(floor) or len(floor) > 16 or int(floor) > MAX_SAFE_INTEGER:
        raise SchemaError(
            f"metadata.{FLOOR_KEY} is {floor!r}, not a canonical non-negative safe integer"
        )
    return int(floor)


_READ_FLOOR = Statement(select(FLOOR))

_RAISE_FLOOR = Statement(
    update(MetadataEntry).where(MetadataEntry.key == FLOOR_KEY).values(value=bindparam("now")),
    "now",
)

_FIRST_FLOOR = Statement(insert(MetadataEntry).values(key=FLOOR_KEY, value=bindparam("now")), "now")
