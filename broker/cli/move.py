"""`broker move`: a store from one database to another, of either backend."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from broker.cli.console import AsJson, Schema, errors_exit, progress_bars, say_json
from broker.moving import MoveReport
from broker.moving import move as move_store


def move(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The store, as an SQLAlchemy URL.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where it goes: an empty database.")],
    schema: Schema = None,
    as_json: AsJson = False,
) -> None:
    """Copy a store into an empty database, SQLite or PostgreSQL, and verify it before it counts.

    Everything is copied and compared in one transaction: what fails leaves the target empty, and
    the source is left as it is in any case. Stop its writers first: what they commit while it is
    read is not moved. Exit code 2 if the store was not moved.
    """
    with errors_exit(as_json=as_json):
        report = _move(source, target, schema)
    if as_json:
        say_json({"ok": True, **asdict(report)})
        return
    for name, table in report.tables.items():
        print(f"{name:<18}{table.rows:>14,}  {table.sha256}")
    print(f"streams whose revision is the number of their events: {report.revisions.rows:,}")
    print(f"streams whose epoch was kept: {report.epochs.rows:,}")
    print(f"clock floor: {report.floor}; last cursor: {report.last_cursor}")
    print("moved: both databases hold the same rows")


def _move(source: str, target: str, schema: str | None) -> MoveReport:
    with progress_bars() as bars:
        task = bars.add_task("looking", total=None)
        return move_store(
            source,
            target,
            schema=schema,
            progress=lambda doing, done, total: bars.update(
                task, description=f"{doing} rows", completed=done, total=total
            ),
        )
