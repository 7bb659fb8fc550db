"""Opening a database: looked at before anything is decided about it, then migrated or refused.

Everywhere here `schema` is the one that holds the store on PostgreSQL, None for the connection's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import URL, Connection

from broker.errors import SchemaDrift
from broker.options import BUSY_TIMEOUT_MS
from broker.schema import LOCK_TIMEOUT_MS, State, drift, state, upgrade, verify
from broker.schema.backends import facts_of, looker_of, transactions_of
from broker.schema.intruders import refuse_intruders

T = TypeVar("T")


def bring_up_to_date(
    url: URL, *, busy_timeout_ms: int, shared: bool, schema: str | None = None
) -> None:
    """Make the file and its folder, or the schema, if missing, and migrate it if it is not at head.

    Raises SchemaError for a database that must be left alone, and leaves it as it was.
    """
    found = find(
        url, shared=shared, busy_timeout_ms=busy_timeout_ms, schema=schema, to_be_used=True
    )
    if found is None or not found.at_head:
        timeout_ms = max(busy_timeout_ms, LOCK_TIMEOUT_MS)
        upgrade(url, schema=schema, shared=shared, busy_timeout_ms=timeout_ms)


def require_current(url: URL, *, busy_timeout_ms: int, schema: str | None = None) -> None:
    """Raise SchemaError unless the database is at head and has not drifted; makes nothing.

    On PostgreSQL the drift is found out by a role that may make a schema; another has the checks of
    every opening, which are `schema.verify`'s.
    """

    def facts_in(connection: Connection) -> list[str]:
        verify(connection)
        if facts_of(connection).can_be_told(connection):
            return drift(connection)
        refuse_intruders(connection)
        return []

    facts = look(url, facts_in, busy_timeout_ms=busy_timeout_ms, roll_back=True, schema=schema)
    if facts:
        raise SchemaDrift(
            f"the schema differs from the models in {len(facts)} facts, first: {facts[0]}",
            facts=facts,
        )


def find(
    url: URL,
    *,
    shared: bool = False,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    schema: str | None = None,
    to_be_used: bool = False,
) -> State | None:
    """Where a database stands that is about to be opened or migrated; None if there is none.

    One `to_be_used` as a store is refused with intruders on its tables, which a migration keeps.
    Raises SchemaError for one that must be left alone, and leaves it as it was, but for a journal
    that has to be rolled back: see `look`.
    """
    if not transactions_of(url).exists(url, schema):
        return None

    def state_of(connection: Connection) -> State:
        found = state(connection, shared=shared)
        if to_be_used:
            refuse_intruders(connection)
        return found

    return look(url, state_of, busy_timeout_ms=busy_timeout_ms, roll_back=True, schema=schema)


def look(
    url: URL,
    see: Callable[[Connection], T],
    *,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    roll_back: bool = False,
    schema: str | None = None,
) -> T:
    """What `see` makes of a database that exists; of a file every byte and the log stay as they are.

    If a process died in the middle of a transaction that was not logged ahead, nobody can read an
    SQLite file before its journal is rolled back: done with `roll_back`, else DatabaseUnavailable.

    Raises DatabaseUnavailable, DatabaseBusy, or whatever `see` raises.
    """
    return looker_of(url).look(
        url, schema, see, busy_timeout_ms=busy_timeout_ms, roll_back=roll_back
    )
