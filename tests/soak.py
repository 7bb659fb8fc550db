"""The soak by itself, with what it has measured: `python -m tests.soak --minutes 30 --plots FOLDER`.

The same as `python -m tests.proof soak`, which prints the counts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.optional import NotInstalled, require_installed
from tests.proof.__main__ import carry_out
from tests.proof.soak import PROOF
from tests.proof.soak.flatness import Verdict
from tests.proof.soak.plots import draw
from tests.proof.soak.verdicts import soak
from tests.proof.soak.watch import Seen
from tests.proof.task import Backend

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(help=PROOF.shows)
def main(
    minutes: Annotated[
        int, typer.Option("--minutes", "--runs", min=1, help="How long.")
    ] = PROOF.runs,
    seed: Annotated[int | None, typer.Option(min=0, help="Drawn at random unless given.")] = None,
    backend: Annotated[Backend, typer.Option()] = "sqlite",
    plots: Annotated[Path | None, typer.Option(help="Draw what was measured into here.")] = None,
) -> None:
    """Load a store, and print what became of each series; exits with 1 if one is not flat."""
    if plots is not None:
        try:
            require_installed("matplotlib")
        except NotInstalled as fault:
            raise typer.BadParameter(str(fault)) from fault
    show = partial(_show, path=plots and plots / f"soak-{backend}.svg")
    carry_out(replace(PROOF, try_it=partial(soak, show=show)), minutes, seed, backend)


def _show(seen: Seen, verdicts: Sequence[Verdict], path: Path | None) -> None:
    for verdict in sorted(verdicts, key=lambda each: each.name):
        typer.echo(str(verdict))
    if path is not None:
        draw(seen.series, path)
        typer.echo(str(path))


if __name__ == "__main__":
    app(prog_name="python -m tests.soak")
