"""The command: measures, and prints a table or one JSON document."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import suite
from benchmarks.fidelity import Inconsistent
from benchmarks.measure import Figure, Unit
from benchmarks.optional import NotInstalled
from benchmarks.scale import FULL, QUICK, Scale

app = typer.Typer(add_completion=False)

_UNITS: dict[Unit, str] = {"us": "µs", "ms": "ms", "per_s": "/s", "mib": "MiB"}


@app.command()
def main(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rounds; under 45 s, on PostgreSQL a minute.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    postgresql: Annotated[
        bool, typer.Option("--postgresql", help="Measure the store on PostgreSQL only.")
    ] = False,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Measure and draw the plots only, into here.")
    ] = None,
) -> None:
    """Measure the store against plain sqlite3; without --quick, against its peers and on PostgreSQL too.

    The server is that of BROKER_TEST_POSTGRES_URL, whose role must be a superuser, or one of its own.

    Exit code 0 also when a target is missed, for machines are noisy; 1 when a check of consistency
    fails, for then the figures mean nothing.
    """
    started = time.monotonic()
    scale = QUICK if quick else FULL
    if plots is not None:
        _draw(scale, plots)
        return
    try:
        report = _run_on_postgresql(scale) if postgresql else _run(scale)
    except Inconsistent as fault:
        Console(stderr=True, highlight=False).print(
            f"[red]inconsistent:[/] {fault}", soft_wrap=True
        )
        raise typer.Exit(1) from fault
    seconds = time.monotonic() - started
    if as_json:
        form = {"quick": quick, "duration_s": round(seconds, 1), **report.to_json()}
        print(json.dumps(form, indent=2))
    else:
        _print(report, seconds)


def _draw(scale: Scale, results: Path) -> None:
    try:
        for path in suite.draw(scale, results):
            print(path)
    except NotInstalled as fault:
        Console(stderr=True, highlight=False).print(str(fault), soft_wrap=True)
        raise typer.Exit(1) from fault


def _run(scale: Scale) -> suite.Report:
    report = _with_progress(partial(suite.run, scale, with_peers=scale is FULL))
    return report.joined(_run_on_postgresql(scale)) if scale is FULL else report


def _run_on_postgresql(scale: Scale) -> suite.Report:
    return _with_progress(partial(suite.run_on_postgresql, scale))


def _with_progress(run: Callable[..., suite.Report]) -> suite.Report:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("", total=None)
        done = iter(range(1_000))

        def progress(step: str, steps: int) -> None:
            bar.update(task, description=step, total=steps, completed=next(done))

        return run(progress=progress)


def _print(report: suite.Report, seconds: float) -> None:
    console = Console(highlight=False)
    for title, figures in _tables(report.figures):
        console.print(_table(title, figures))
    for note in report.notes:
        console.print(note)
    for check in report.checks:
        console.print(f"checked: {check}")
    for figure in report.missed:
        console.print(f"[red]missed:[/] {figure.name}: {figure.ratio:.2f}, not {_target(figure)}")
    console.print(f"measured in {seconds:.0f} s; medians, of both sides in the same rounds")


def _tables(figures: list[Figure]) -> Iterator[tuple[str, list[Figure]]]:
    on_server = [figure for figure in figures if figure.name.startswith("pg_")]
    on_file = [figure for figure in figures if figure not in on_server]
    if on_file:
        yield "broker against plain sqlite3", on_file
    if on_server:
        yield "broker on PostgreSQL", on_server


def _table(title: str, figures: list[Figure]) -> Table:
    table = Table("scenario", title=title)
    for heading in ("broker", "floor or base", "ratio", "target", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for figure in figures:
        table.add_row(*_cells(figure))
    return table


def _cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.title,
        _amount(figure.measured, figure.unit),
        "" if figure.base is None else _amount(figure.base, figure.unit),
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        _target(figure),
        {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[figure.met],
    )


def _amount(value: float, unit: Unit) -> str:
    return f"{value:,.{0 if value >= 100 else 1}f} {_UNITS[unit]}"


def _target(figure: Figure) -> str:
    if figure.bound is None:
        return ""
    return f"{'≥' if figure.unit == 'per_s' else '≤'} {figure.bound}"


if __name__ == "__main__":
    app()
