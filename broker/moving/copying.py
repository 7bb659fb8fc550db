"""The move itself, between two open transactions: everything is copied, then compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest

import orjson

from broker.errors import DatabaseError, SchemaError
from broker.moving.sides import Side
from broker.moving.tables import EPOCHS, FLOOR, REVISIONS, TABLES, Listing, Row

#: Called with what is being done, and with how many rows it is done and will be.
Progress = Callable[[str, int, int], None]

_REPORT_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class RowsReport:
    """How many rows both databases have, and the SHA-256 of them in the order of their key.

    What is hashed is a JSON array and a newline for each row: compact, in UTF-8, integers, strings
    and null, the columns in the order of the models. A lineage's ids begin with NUL.
    """

    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What a move has found to be the same in both databases.

    `tables` are the eight tables by name, `metadata` without the clock floor; `revisions` every
    stream's revision beside the number of its events, `epochs` every stream's largest epoch. The
    target's clock `floor` is at least the source's; `last_cursor` is the last event's, 0 for none.
    """

    tables: dict[str, RowsReport]
    revisions: RowsReport
    epochs: RowsReport
    floor: int
    last_cursor: int


def copy_and_verify(source: Side, target: Side, progress: Progress | None) -> MoveReport:
    """Copy every row into an empty store, and compare the two, all in the caller's transactions.

    Raises SchemaError for rows that cannot be moved, DatabaseError if the two are not the same.
    """
    _require_gapless(source)
    total = sum(_count(source, table) for table in TABLES)
    last_cursor = _last_cursor(source)

    counter = _Counter("copying", total, progress)
    target.run("DELETE FROM metadata WHERE key <> :floor", floor=FLOOR)  # its version is the same
    for table in TABLES:
        with source.reading(table) as rows:
            target.write(table, counter.through(rows))
    floor = _raise_floor(source, target)
    target.settle(last_cursor)
    return _verify(source, target, _Counter("verifying", total, progress), floor)


def _verify(source: Side, target: Side, counter: _Counter, floor: int) -> MoveReport:
    tables = {table.name: _same(source, target, table, counter) for table in TABLES}
    _require_gapless(target)
    stored = _floor(target)
    if stored != floor:
        raise DatabaseError(f"the clock floor in the target is {stored}, not {floor}")
    return MoveReport(
        tables=tables,
        revisions=_same(source, target, REVISIONS),
        epochs=_same(source, target, EPOCHS),
        floor=floor,
        last_cursor=_last_cursor(target),
    )


def _same(
    source: Side, target: Side, listing: Listing, counter: _Counter | None = None
) -> RowsReport:
    digest, rows = sha256(), 0
    with source.reading(listing) as theirs, target.reading(listing) as copies:
        for row, copy in zip_longest(counter.through(theirs) if counter else theirs, copies):
            if row != copy:
                raise _differs(listing, row, copy)
            digest.update(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            rows += 1
    return RowsReport(rows, digest.hexdigest())


def _differs(listing: Listing, row: Row | None, copy: Row | None) -> DatabaseError:
    there = row or copy
    what = "extra" if row is None else "missing" if copy is None else "another"
    return DatabaseError(
        f"{listing.name} in the target is not what the source has: {there and there[0]!r} is"
        f" {what}; nothing was stored",
        table=listing.name,
    )


def _require_gapless(side: Side) -> None:
    with side.reading(REVISIONS) as rows:
        for stream_id, revision, events, last in rows:
            if not revision == events == last:
                raise SchemaError(
                    f"in the {side.role}, stream {stream_id!r} is at revision {revision} but has"
                    f" {events} events, the last of revision {last}; nothing was moved",
                    table="streams",
                    row=stream_id,
                    column="revision",
                )


def _count(side: Side, table: Listing) -> int:
    where = f" WHERE key <> '{FLOOR}'" if table.name == "metadata" else ""
    ((number,),) = side.run(f"SELECT count(*) FROM {table.name}{where}")
    return int(number)


def _last_cursor(side: Side) -> int:
    ((last,),) = side.run("SELECT coalesce(max(rowid), 0) FROM events")
    return int(last)


def _floor(side: Side) -> int:
    rows = side.run("SELECT value FROM metadata WHERE key = :floor", floor=FLOOR)
    return int(rows[0][0]) if rows else 0


def _raise_floor(source: Side, target: Side) -> int:
    """Let the target's clock go on from the later of the two floors; none is one of 0."""
    floor = max(_floor(source), _floor(target))
    if floor:
        target.run(
            "INSERT INTO metadata (key, value) VALUES (:key, :value)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            key=FLOOR,
            value=str(floor),
        )
    return floor


class _Counter:
    """Counts rows on their way, and reports every thousandth and the last."""

    def __init__(self, doing: str, total: int, progress: Progress | None) -> None:
        self._doing, self._total, self._progress = doing, total, progress
        self._done = 0

    def through(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The same rows."""
        for row in rows:
            yield row
            self._done += 1
            if self._progress and (self._done % _REPORT_EVERY == 0 or self._done == self._total):
                self._progress(self._doing, self._done, self._total)
