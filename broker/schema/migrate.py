"""Running Alembic: from the command line, from a program, from a checkout or an installed wheel.

All of them meet in `broker.schema.environment`, which uses `transaction` below: a connection of its
own, with the write lock held before the first look, and one transaction for everything. So of
several processes that upgrade at once one does the work and the others find it done, and whatever
fails leaves the database as it was.

Write-ahead logging is not switched on here: a file that is refused keeps every byte.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, NullPool
from sqlalchemy.exc import SQLAlchemyError

from broker.errors import ConfigurationError, DatabaseUnavailable
from broker.schema.steps import LOCK_TIMEOUT_MS, Progress, Run, StepReport
from broker.sqlite.database_file import file_exists, file_of, file_url
from broker.sqlite.engine import IMMEDIATE, make_engine, translate, translate_commit

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
    revisions: tuple[str, ...] = ()
    shared: bool = False
    busy_timeout_ms: int = LOCK_TIMEOUT_MS
    run: Run = field(default_factory=Run)


def upgrade(
    target: Target,
    revision: str = "head",
    *,
    shared: bool = False,
    busy_timeout_ms: int = LOCK_TIMEOUT_MS,
    progress: Progress | None = None,
) -> list[StepReport]:
    """See `broker.schema.upgrade`."""
    run = Run(progress=progress)
    url = database_url(target)
    call = Call(url, "upgrade", (revision,), shared, busy_timeout_ms, run)
    return _run(command.upgrade, call, revision)


def downgrade(
    target: Target,
    revision: str,
    *,
    lose_data: bool = False,
    busy_timeout_ms: int = LOCK_TIMEOUT_MS,
) -> list[StepReport]:
    """See `broker.schema.downgrade`."""
    run = Run(lose_data=lose_data)
    url = database_url(target)
    call = Call(url, "downgrade", (revision,), False, busy_timeout_ms, run)
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

    Raises ConfigurationError for what is none, or not that of a file; never with the URL itself,
    for there may be a password in it.
    """
    if isinstance(target, Connection):
        raise ConfigurationError(
            "migrations use a connection of their own, which takes the lock before the first look"
            " and commits: give the URL, or the engine, instead of a connection"
        )
    if isinstance(target, Engine):
        target = target.url
    return file_url(target or "")


@contextmanager
def transaction(
    url: URL, *, writes: bool, makes: bool = False, busy_timeout_ms: int
) -> Iterator[Connection]:
    """A connection of its own in one transaction, committed at the end and undone by any error.

    With `writes` it holds the write lock from the start. With `makes` a missing file is made, and
    its folder; without, the file has to exist. Foreign keys are off, as tables that others refer to
    are dropped and made again; see `environment`.

    Raises DatabaseBusy if the lock was not to be had in `busy_timeout_ms`, DatabaseUnavailable, or
    whatever the block raises, an error of the driver as one of ours.
    """
    if makes:
        _make_folder(file_of(url))
    elif not file_exists(url):  # merely to connect would make an empty one
        raise DatabaseUnavailable(f"there is no database at {file_of(url)}")
    engine = make_engine(
        url,
        busy_timeout_ms=busy_timeout_ms,
        wal=False,
        foreign_keys=False,
        poolclass=NullPool,
    )
    try:
        with engine.connect().execution_options(**IMMEDIATE if writes else {}) as connection:
            begun = connection.begin()
            yield connection
            if begun.is_active:  # else the block has rolled back
                _commit(begun.commit)
    except (SQLAlchemyError, sqlite3.Error) as error:  # the latter from the engine's own BEGIN
        raise translate(error) from error
    finally:
        engine.dispose()


def _commit(commit: Callable[[], None]) -> None:
    try:
        commit()
    except SQLAlchemyError as error:
        raise translate_commit(error) from error


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(f"the folder of {path} cannot be made: {error}") from error


def _run(run_command: Callable[..., Any], call: Call, revision: str) -> list[StepReport]:
    config = alembic_config(call)
    with _one_at_a_time:
        try:
            run_command(config, revision)
        except CommandError as error:
            raise ConfigurationError(f"Alembic refused: {error}") from error
    return call.run.reports
