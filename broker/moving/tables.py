"""What is moved: the tables in the order of their references, and how their rows are listed.

A row is a tuple of text, integers and None, the same from either backend, and rows come in an order
that both agree on: ids by their bytes, events by their cursor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Integer

from broker.models import Base

Row = tuple[Any, ...]

TEXT = "text"
INTEGER = "int8"

FLOOR = "logical_time_floor"

#: Others refer to the tables that come first.
_ORDER = (
    "metadata",
    "actor_leases",
    "streams",
    "inbox",
    "mutation_receipts",
    "events",
    "outbox",
    "projections",
)


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows in the order of their key: `select` reads `columns`, which are of these `kinds`.

    `name` is the table's that they are of. The first column tells the rows apart, for people. `marked` are the positions of ids that may be
    a lineage's, and so begin with another character on either backend.
    """

    name: str
    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    select: str
    marked: tuple[int, ...] = ()


def _table(name: str) -> Listing:
    table = Base.metadata.tables[name]
    columns = tuple(column.name for column in table.columns)
    (key,) = ["rowid"] if "rowid" in columns else table.primary_key.columns.keys()
    # The floor is raised, not copied: the target may have a later one.
    where = f" WHERE key <> '{FLOOR}'" if name == "metadata" else ""
    marked = ("actor_id", "holder_id") if name == "actor_leases" else ()
    return Listing(
        name,
        columns,
        tuple(INTEGER if isinstance(each.type, Integer) else TEXT for each in table.columns),
        f"SELECT {', '.join(columns)} FROM {name}{where} ORDER BY {key}",
        tuple(columns.index(each) for each in marked),
    )


TABLES = tuple(_table(name) for name in _ORDER)

#: Every stream's epoch, which the next lease on it goes beyond.
EPOCHS = Listing(
    "actor_leases",
    ("stream_id", "epoch"),
    (TEXT, INTEGER),
    "SELECT stream_id, max(epoch) FROM actor_leases GROUP BY stream_id ORDER BY stream_id",
)

#: Every stream's revision, how many events it has, and the revision of the last.
REVISIONS = Listing(
    "streams",
    ("stream_id", "revision", "events", "last"),
    (TEXT, INTEGER, INTEGER, INTEGER),
    "SELECT s.stream_id, s.revision, coalesce(e.events, 0), coalesce(e.last, 0)"
    " FROM streams AS s LEFT JOIN"
    " (SELECT stream_id, count(*) AS events, max(revision) AS last FROM events GROUP BY stream_id)"
    " AS e ON e.stream_id = s.stream_id ORDER BY s.stream_id",
)
