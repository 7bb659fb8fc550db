"""`broker upgrade` and `broker check`: bring a database's schema up to date, and see that it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from sqlalchemy import URL

from broker import opening, schema
from broker.cli.console import (
    DEFAULT_URL,
    WRONG,
    AsJson,
    Schema,
    Url,
    errors_exit,
    progress_bars,
    say_json,
)
from broker.database_url import database_url
from broker.schema import StepReport
from broker.schema.printable import printable


def upgrade(
    revision: Annotated[str, typer.Argument(help="The revision to go to.")] = "head",
    url: Url = DEFAULT_URL,
    namespace: Schema = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="The database holds an application's tables as well.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the database's schema up to date, and say what each step changed.

    A missing file or schema is made; a database that another program made, at schema version 1 to 3, is
    adopted. All steps are one transaction. Exit code 2 if the database was refused, and left as it
    was.
    """
    with errors_exit(as_json=as_json):
        database, namespace = database_url(url), namespace or None
        reports = _upgrade(database, revision, namespace, shared=shared)
        state = _find(database, namespace, shared=shared)
    reached = state.revision if state else None  # "base" asks for nothing, not even for a file
    if as_json:
        say_json({"ok": True, "revision": reached, "steps": [asdict(each) for each in reports]})
        return
    for report in reports:
        print(describe(report))
    place = "empty" if reached is None else f"at revision {reached}"
    print(f"{'' if reports else 'nothing to do: '}the database is {place}")


def _find(url: URL, namespace: str | None, *, shared: bool) -> schema.State | None:
    return opening.find(
        url, shared=shared, busy_timeout_ms=schema.LOCK_TIMEOUT_MS, schema=namespace
    )


def _upgrade(url: URL, revision: str, namespace: str | None, *, shared: bool) -> list[StepReport]:
    # A migration writes whatever log it finds into the file, which may have to be left alone.
    _find(url, namespace, shared=shared)
    with progress_bars() as bars:
        task = bars.add_task("reading events", total=None)
        return schema.upgrade(
            url,
            revision,
            schema=namespace,
            shared=shared,
            progress=lambda done, total: bars.update(task, completed=done, total=total),
        )


def describe(report: StepReport) -> str:
    """What a step did: a line with its title, and one for each thing that it changed."""
    changes = [f"       {what}: {number:,}" for what, number in report.changes.items()]
    return "\n".join([f"{report.revision}  {report.title}", *changes])


def check(url: Url = DEFAULT_URL, namespace: Schema = None, as_json: AsJson = False) -> None:
    """Report every fact in which the database's schema differs from the models, a line each.

    Exit code 0 if there is none, 1 if there is drift, 2 if the database could not be looked at.
    Nothing is created or changed.
    """
    with errors_exit(as_json=as_json):
        facts = drift_of(url, namespace or None)
    if as_json:
        say_json({"ok": not facts, "facts": facts})
    else:
        for fact in facts or ["no drift: the schema is what the models say"]:
            print(printable(fact))
    if facts:
        raise typer.Exit(WRONG)


def drift_of(url: str | URL, namespace: str | None = None) -> list[str]:
    """The facts in which a database differs from the models; raises BrokerError if it cannot tell.

    Opens the file only if it is there, and leaves every byte of it as it is.
    """
    return opening.look(database_url(url), schema.drift, schema=namespace)
