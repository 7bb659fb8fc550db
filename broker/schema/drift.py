"""The complete drift check: every schema fact of a live database against the models.

Alembic's own comparison sees neither triggers, STRICT, nor the text of a check or predicate. Here
both sides are read the same way: the live database, and a fresh one that is made from the models. On
SQLite that is in memory; on PostgreSQL a schema of its own, which is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection

from broker.schema import versions
from broker.schema.backends import facts_of
from broker.schema.facts import ORDER, TABLE, Aspects, Facts, Thing


def drift(connection: Connection) -> list[str]:
    """Every fact in which the live schema differs from the models, a line each; [] if none does.

    Reads only, in the caller's transaction: tables, columns and their order, STRICT, checks by
    meaning, defaults, keys with deferral, indexes, triggers, encoding, versions. An application's
    own tables are not looked at; what hangs on ours is. On PostgreSQL it takes a role that may make
    a schema, in a savepoint that is rolled back. Raises ConfigurationError for any other backend.
    """
    facts = facts_of(connection)
    return sorted(_differences(facts.live_facts(connection), facts.expected_facts(connection)))


def _differences(have: Facts, want: Facts) -> Iterator[str]:
    tables = {thing.subject for thing in have if thing.kind == TABLE}
    for thing in have.keys() | want.keys():
        table = thing.subject.partition(".")[0]
        if table in versions.TABLE_NAMES and table not in tables and thing.kind != TABLE:
            continue  # that the table is missing says it all
        if thing not in have:
            yield f"{thing.subject}: {thing.kind} is missing"
        elif thing not in want:
            yield f"{thing.subject}: {thing.kind} is not one of ours"
        else:
            yield from _aspects(thing, have[thing], want[thing])


def _aspects(thing: Thing, have: Aspects, want: Aspects) -> Iterator[str]:
    name = "" if thing.kind in {TABLE, "column", "encoding", "version"} else f"{thing.kind}, "
    for aspect in want.keys() & have.keys():  # a view in the place of a table has but a type
        if have[aspect] != want[aspect] and not (aspect == ORDER and _other_columns(have, want)):
            yield f"{thing.subject}: {name}{aspect} is {have[aspect]} instead of {want[aspect]}"


def _other_columns(have: Aspects, want: Aspects) -> bool:
    """Whether columns are missing or extra, which has lines of its own and says more than order."""
    return set(have[ORDER].split(", ")) != set(want[ORDER].split(", "))
