"""How the rows of commits come into PostgreSQL: one statement for all tables, COPY for many events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from sqlalchemy import text

from broker.postgresql.channel import PipelineChannel
from broker.postgresql.sql import COPY_EVENTS, INSERTIONS, insert_into
from broker.statements import Channel, Row, Statement

#: More events than this are copied: it takes round trips of its own, and is faster then.
MOST_IN_A_STATEMENT = 100


class RowsByTable(NamedTuple):
    """What commits write: `(stream_id, revision, now, owner)` of streams, else whole rows."""

    new_streams: list[Row]
    moved_streams: list[Row]
    inbox: list[Row]
    events: list[Row]
    outbox: list[Row]
    projections: list[Row]


def write_rows(channel: Channel, rows: RowsByTable) -> None:
    """Put the rows of commits; a constraint objects to an id that was used before."""
    streams = [(stream, at, now, now, owner) for stream, at, now, owner in rows[0] + rows[1]]
    by_table = {"streams": streams, **rows._asdict()}
    if len(rows.events) <= MOST_IN_A_STATEMENT or not isinstance(channel, PipelineChannel):
        _insert(channel, by_table, INSERTIONS)
        return
    _insert(channel, by_table, ("streams", "inbox"))
    channel.copy(_COPY_EVENTS, rows.events)
    _insert(channel, by_table, ("outbox", "projections"))


def _insert(channel: Channel, rows: Mapping[str, Sequence[Row]], tables: Iterable[str]) -> None:
    present = tuple(table for table in tables if rows[table])
    if present:
        columns = [column for table in present for column in zip(*rows[table], strict=True)]
        channel.put(_insertion(*present), *map(array, columns))


@cache
def _insertion(*tables: str) -> Statement:
    sql, names = insert_into(*tables)
    return Statement(text(sql), *names)


def array(values: Iterable[str | int | None]) -> str:
    """The text of an array of the server's."""
    return f"{{{','.join(map(_element, values))}}}"


def _element(value: str | int | None) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return "NULL" if value is None else str(value)


_COPY_EVENTS = Statement(text(COPY_EVENTS))
