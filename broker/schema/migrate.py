"""Running Alembic: from the command line, from a program, from a checkout or an installed wheel.

All of them meet in `broker.schema.environment`, which uses `transaction` below: a connection of its
own, with the lock held before the first look, and one transaction for everything. So of several
processes that upgrade at once one does the work and the others find it done, and whatever fails
leaves the database as it was.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine

from broker import database_url as urls
from broker.errors import ConfigurationError
from broker.schema.backends import transactions_of
from broker.schema.steps import LOCK_TIMEOUT_MS, Progress, Run, StepReport

Target = str | URL | Engine

_ATTRIBUTE = "broker_call"

# Alembic keeps the environment that is running in globals of its module.
_one_at_a_time = threading.Lock()


@dataclass(slots=True)
class Call:
    """What is asked of the environment: an Alembic command, a database, and how to treat it.

    `command` is None for an Alembic command that a program runs with a configuration of its own.
    `revisions` are the ones that the command was given, as they were given.
    """

    url: URL
    command: str | None
    schema: str | None = None
    revisions: tuple[str, ...] = ()
    shared: bool = False
    busy_timeout_ms: int = LOCK_TIMEOUT_MS
    run: Run = field(default_factory=Run)


def upgrade(
    target: Target,
    revision: str = "head",
    *,
    schema: str | None = None,
    shared: bool = False,
    busy_timeout_ms: int = LOCK_TIMEOUT_MS,
    progress: Progress | None = None,
) -> list[StepReport]:
    """See `broker.schema.upgrade`."""
    run = Run(progress=progress)
    url = database_url(target)
    call = Call(url, "upgrade", schema, (revision,), shared, busy_timeout_ms, run)
    return _run(command.upgrade, call, revision)


def downgrade(
    target: Target,
    revision: str,
    *,
    schema: str | None = None,
    lose_data: bool = False,
    busy_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> list[StepReport]:
    """See `broker.schema.downgrade`."""
    run = Run(lose_data=lose_data)
    url = database_url(target)
    call = Call(url, "downgrade", schema, (revision,), False, busy_timeout_ms, run)
    return _run(command.downgrade, call, revision)


def alembic_config(call: Call) -> Config:
    """A configuration for Alembic's own commands, without any file and without logging."""
    config = Config(stdout=sys.stdout, attributes={_ATTRIBUTE: call})
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def call_of(config: Config) -> Call | None:
    """What `alembic_config` was given; None for a configuration that was made elsewhere."""
    call: Call | None = config.attributes.get(_ATTRIBUTE)
    return call


def script_location() -> Path:
    """The folder of env.py and the revisions: inside an installed package, or beside a checkout's."""
    package = Path(__file__).resolve().parent.parent
    places = [package / "_alembic", package.parent / "alembic"]
    for place in places:
        if (place / "env.py").is_file():
            return place
    raise ConfigurationError(
        f"the migration scripts are missing: neither {places[0]} nor {places[1]} has an env.py"
    )


def database_url(target: Target | None) -> URL:
    """The URL for this module's own connections.

    Raises ConfigurationError for what is none, or not that of a database where a store can be;
    never with the URL itself, for there may be a password in it.
    """
    if isinstance(target, Connection):
        raise ConfigurationError(
            "migrations use a connection of their own, which takes the lock before the first look"
            " and commits: give the URL, or the engine, instead of a connection"
        )
    if isinstance(target, Engine):
        target = target.url
    return urls.database_url(target or "")


def transaction(
    url: URL,
    schema: str | None = None,
    *,
    writes: bool,
    makes: bool = False,
    busy_timeout_ms: int,
) -> AbstractContextManager[Connection]:
    """A connection of its own in one transaction, committed at the end and undone by any error.

    With `writes` it holds the lock of writers, or of migrations, from the start. With `makes` a
    missing file is made, and its folder, or a missing `schema`; without, it has to exist.

    Raises DatabaseBusy if the lock was not to be had in `busy_timeout_ms`, DatabaseUnavailable, or
    whatever the block raises, an error of the driver as one of ours.
    """
    return transactions_of(url).transaction(
        url, schema, writes=writes, makes=makes, busy_timeout_ms=busy_timeout_ms
    )


def _run(run_command: Callable[..., Any], call: Call, revision: str) -> list[StepReport]:
    config = alembic_config(call)
    with _one_at_a_time:
        try:
            run_command(config, revision)
        except CommandError as error:
            raise ConfigurationError(f"Alembic refused: {error}") from error
    return call.run.reports
