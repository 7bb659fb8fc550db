"""From version 1 to the newest revision, a step at a time, noting what each step changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from broker import schema
from broker.cli.demo import legacy
from broker.cli.demo.claims import Checks, Claim
from broker.cli.demo.legacy import Legacy

#: The revisions, and the schema version at each.
REVISIONS = {"0001": 1, "0002": 2, "0003": 3, "0004": 3}


@dataclass(frozen=True, slots=True)
class MigratedStep:
    """A step: the counts that it reports, and what there is in the schema since."""

    revision: str
    title: str
    changes: dict[str, int]
    added: list[str]


def migrate(path: Path, old: Legacy, checks: Checks) -> Iterator[MigratedStep]:
    """Migrate the database, and check after each step where it stands and what it left alone."""
    url = legacy.sqlite_url(path)
    for revision, version in REVISIONS.items():
        before = _objects(path)
        reports = schema.upgrade(url, revision)
        reached = schema.current(url)
        checks.equal(
            Claim.STEPS, revision, (revision, version), (reached.revision, reached.version)
        )
        for table, rows in legacy.kept_rows(path).items():
            checks.equal(Claim.UNTOUCHED, f"{table} at {revision}", old.rows[table], rows)
        # A database that is at version 1 already has nothing done to it by the first revision.
        title = reports[0].title if reports else "adopted: it is at version 1 already"
        changes = reports[0].changes if reports else {}
        yield MigratedStep(revision, title, changes, sorted(_objects(path) - before))
    _check_owners(path, old, checks)


def _check_owners(path: Path, old: Legacy, checks: Checks) -> None:
    with closing(sqlite3.connect(path)) as database:
        owners = dict(database.execute("SELECT stream_id, workspace_id FROM streams"))
    for stream_id in old.revisions:
        checks.equal(Claim.OWNERS, stream_id, old.owners.get(stream_id), owners.get(stream_id))


def _objects(path: Path) -> set[str]:
    """The tables, indexes and triggers of a database, and the columns of version 1's tables."""
    with closing(sqlite3.connect(path)) as database:
        found = {f"{kind} {name}" for kind, name in database.execute(_OBJECTS)}
        return found | {f"column {table}.{column}" for table, column in database.execute(_COLUMNS)}


_OBJECTS = "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
_COLUMNS = """SELECT t.name, c.name FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c
WHERE t.name IN ('actor_leases', 'streams', 'inbox', 'events', 'outbox', 'projections')"""
