"""`broker demo`: the store at work on a real database, and proof of what it claims."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from broker.cli.console import WRONG, AsJson, errors_exit, say_json


def demo(
    db: Annotated[
        Path | None, typer.Option(help="Keep the database in this file, which must not exist yet.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Migrate a version-1 database, run 16 windows with 128 runs on it, and verify all of it.

    Exit code 0 if everything that is claimed was checked and holds, 1 if not, 2 if the database
    could not be made.
    """
    with tempfile.TemporaryDirectory(prefix="broker-demo-") as folder:
        path = db or Path(folder) / "demo.db"
        with errors_exit(as_json=as_json):
            passed = run(path, as_json=as_json)
    if not passed:
        raise typer.Exit(WRONG)


def run(path: Path, *, as_json: bool) -> bool:
    """Make a database at `path`, tell the story on it, report; whether every claim holds."""
    from broker.cli.demo.legacy import make
    from broker.cli.demo.report import Display
    from broker.cli.demo.scenario import Plan
    from broker.cli.demo.story import tell

    make(path)
    display = Display(silent=as_json)
    figures, checks = tell(path, Plan(), display)
    if as_json:
        say_json(figures.to_json(checks))
    else:
        display.close(figures, checks)
    return checks.passed
