"""The schema of the database: what it is, whether it is right, and how it gets there.

Alembic is imported by `upgrade` and `downgrade` only: opening a database that is up to date does
without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import URL, Engine

from broker.schema.drift import drift
from broker.schema.sharing import autogenerate_options
from broker.schema.state import State, state, verify
from broker.schema.steps import LOCK_TIMEOUT_MS, Progress, StepReport

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = [
    "LOCK_TIMEOUT_MS",
    "Progress",
    "State",
    "StepReport",
    "autogenerate_options",
    "check_config",
    "current",
    "downgrade",
    "drift",
    "state",
    "upgrade",
    "verify",
]


def upgrade(
    target: str | URL | Engine,
    revision: str = "head",
    *,
    schema: str | None = None,
    shared: bool = False,
    busy_timeout_ms: int = LOCK_TIMEOUT_MS,
    progress: Progress | None = None,
) -> list[StepReport]:
    """Bring a database to `revision`, and say what each step did; [] if there was nothing to do.

    Uses a connection of its own, takes the lock before the first look, does everything in one
    transaction and commits it; an error undoes all of it. A missing file is made, and its folder.
    Databases that another program made, at schema version 1 to 3 and without a version table, are
    adopted. The journal mode is left alone.

    `schema` is for PostgreSQL: the schema that holds the store, made if it is missing; without it
    the first one of the connection's search path. A database there is made by its owner, never here.

    `revision` is "head", "base", an id such as "0002", or a number of steps: "+1" from where the
    database stands, "0001+1" or "head-1" from a named revision. "base" asks for nothing, so that a
    missing file stays missing; a revision that is none is refused before anything is opened or made.

    `shared` permits a database that holds an application's tables and not yet ours.
    `busy_timeout_ms` is how long to wait for the lock, so it should be longer than a migration takes:
    then of several processes that start at once every one succeeds. `progress(done, total)` is
    called while events are read.

    Raises SchemaError for a database that cannot be migrated, DatabaseBusy, DatabaseUnavailable,
    ConfigurationError for a URL or revision that is none, or for a `Connection`, whose owner could
    roll the migration back.
    """
    from broker.schema import migrate

    return migrate.upgrade(
        target,
        revision,
        schema=schema,
        shared=shared,
        busy_timeout_ms=busy_timeout_ms,
        progress=progress,
    )


def downgrade(
    target: str | URL | Engine,
    revision: str,
    *,
    schema: str | None = None,
    lose_data: bool = False,
    busy_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> list[StepReport]:
    """Take a database back to an older `revision`, or to "base", which drops the store's tables.

    Transaction, revisions (with "-1" instead of "+1") and errors are as for `upgrade`, but the file
    has to exist. What the older schemas on the way cannot hold is counted, over all steps, and any
    of it raises SchemaError with the counts in `lost`, unless `lose_data` says that it may go.
    """
    from broker.schema import migrate

    return migrate.downgrade(
        target, revision, schema=schema, lose_data=lose_data, busy_timeout_ms=busy_timeout_ms
    )


def current(target: str | URL | Engine, *, schema: str | None = None) -> State:
    """Where a database stands. Reads only, in a transaction of its own.

    Raises SchemaError for a database that is not one of ours, DatabaseUnavailable if there is none:
    it is not made.
    """
    from broker.schema import migrate

    url = migrate.database_url(target)
    with migrate.transaction(
        url, schema, writes=False, busy_timeout_ms=LOCK_TIMEOUT_MS
    ) as connection:
        return state(connection)


def check_config(target: str | URL | Engine, *, schema: str | None = None) -> Config:
    """A configuration for `alembic.command.check`, which raises for drift what Alembic raises."""
    from broker.schema import migrate

    return migrate.alembic_config(migrate.Call(migrate.database_url(target), "check", schema))
