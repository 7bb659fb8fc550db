"""Looking at a store on a server, in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Connection

from broker.schema.postgresql.transactions import transaction

T = TypeVar("T")


def look(
    url: URL,
    schema: str | None,
    see: Callable[[Connection], T],
    *,
    busy_timeout_ms: int,
    roll_back: bool,  # noqa: ARG001  # nothing is left behind that would have to be
) -> T:
    """What `see` makes of a schema that exists, as of one moment; nothing of it is kept."""
    with transaction(
        url, schema, writes=False, makes=False, busy_timeout_ms=busy_timeout_ms
    ) as connection:
        seen = see(connection)
        connection.rollback()
        return seen
