"""`broker upgrade` and `broker check`: bring a database's schema up to date, and see that it is."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from sqlalchemy import URL, NullPool, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from broker import schema
from broker.cli.console import (
    DEFAULT_URL,
    WRONG,
    AsJson,
    Url,
    errors_exit,
    progress_bars,
    say_json,
)
from broker.engine import make_engine, require_file, translate
from broker.errors import ConfigurationError, DatabaseUnavailable
from broker.schema import StepReport


def upgrade(
    revision: Annotated[str, typer.Argument(help="The revision to go to.")] = "head",
    url: Url = DEFAULT_URL,
    shared: Annotated[
        bool, typer.Option("--shared", help="The database holds an application's tables as well.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the database's schema up to date, and say what each step changed.

    A missing file is made; a database that another program made, at schema version 1 to 3, is
    adopted. All steps are one transaction. Exit code 2 if the database was refused, and left as it
    was.
    """
    with errors_exit(as_json=as_json):
        reports = _upgrade(url, revision, shared=shared)
        reached = schema.current(url).revision
    if as_json:
        say_json({"ok": True, "revision": reached, "steps": [asdict(each) for each in reports]})
        return
    for report in reports:
        print(describe(report))
    print(f"{'' if reports else 'nothing to do: '}the database is at revision {reached}")


def _upgrade(url: str, revision: str, *, shared: bool) -> list[StepReport]:
    with progress_bars() as bars:
        task = bars.add_task("reading events", total=None)
        return schema.upgrade(
            url,
            revision,
            shared=shared,
            progress=lambda done, total: bars.update(task, completed=done, total=total),
        )


def describe(report: StepReport) -> str:
    """What a step did: a line with its title, and one for each thing that it changed."""
    changes = [f"       {what}: {number:,}" for what, number in report.changes.items()]
    return "\n".join([f"{report.revision}  {report.title}", *changes])


def check(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Report every fact in which the database's schema differs from the models, a line each.

    Exit code 0 if there is none, 1 if there is drift, 2 if the database could not be looked at.
    Nothing is created or changed.
    """
    with errors_exit(as_json=as_json):
        facts = drift_of(url)
    if as_json:
        say_json({"ok": not facts, "facts": facts})
    else:
        for fact in facts or ["no drift: the schema is what the models say"]:
            print(fact)
    if facts:
        raise typer.Exit(WRONG)


def drift_of(url: str | URL) -> list[str]:
    """The facts in which a database differs from the models; raises BrokerError if it cannot tell.

    Opens the file only if it is there, and leaves every byte of it as it is.
    """
    engine = make_engine(_only_look(url), wal=False, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            return schema.drift(connection)
    except SQLAlchemyError as error:
        if _needs_rollback(error):
            raise DatabaseUnavailable(
                "a process died in the middle of a transaction, and its journal has to be rolled"
                " back first: let any client write to the database, or run broker upgrade"
            ) from error
        raise translate(error) from error
    finally:
        engine.dispose()


def _needs_rollback(error: SQLAlchemyError) -> bool:
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_READONLY_ROLLBACK


def _only_look(given: str | URL) -> URL:
    """The URL to look at a database without a trace.

    Read-only, if a log or journal lies beside the file: whoever closes a log as the last one writes
    it into the database. Otherwise not, for a reader that may not write leaves an empty log behind.
    """
    try:
        url = make_url(given)
    except ArgumentError as error:
        raise ConfigurationError(
            f"{given!r} is not a database URL: write sqlite:///FILE"
        ) from error
    require_file(url)
    if (url.database or "").startswith("file:"):
        return url.update_query_dict({"uri": "true", "mode": "ro"})

    path = Path(url.database or "").absolute()
    if not path.is_file():
        raise DatabaseUnavailable(f"there is no database at {url.database}")
    in_use = any(Path(f"{path}{suffix}").exists() for suffix in ("-wal", "-journal"))
    query = {"uri": "true", "mode": "ro" if in_use else "rw"}
    return URL.create("sqlite", database=path.as_uri(), query=query)
