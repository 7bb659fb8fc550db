"""The command `python -m tests.proof`: a subcommand a proof."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.places import Databases
from tests.postgres_server import running
from tests.proof.proofs import PROOFS
from tests.proof.report import Proof, Report
from tests.proof.task import Backend, Task

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@contextmanager
def _task(runs: int, seed: int, backend: Backend) -> Iterator[Task]:
    with tempfile.TemporaryDirectory(prefix="broker-proof-") as folder:
        if backend == "sqlite":
            yield Task(runs, seed, Path(folder))
        else:
            with running() as server, closing(Databases(server.url)) as databases:
                yield Task(runs, seed, Path(folder), databases)


def show(proof: Proof, task: Task, report: Report) -> bool:
    """Print what a proof saw, the line of counts last; did every promise hold?"""
    for each in report.left_out:
        typer.echo(f"left out: {each}")
    for violation in report.violations:
        command = f"python -m tests.proof {proof.name} --runs 1 --seed {violation.seed} --backend {task.backend}"
        typer.echo(f"violation: {violation.what}\n  again: {command}")
    typer.echo(f"{proof.name} on {task.backend}, seed {task.seed}")
    typer.echo(report.line(proof.name, proof.unit, task.runs))
    return not report.violations


def _command(proof: Proof) -> None:
    def command(
        runs: Annotated[int, typer.Option(min=1, help=f"How many {proof.unit}.")] = proof.runs,
        seed: Annotated[
            int | None, typer.Option(min=0, help="One drawn at random, unless given.")
        ] = None,
        backend: Annotated[Backend, typer.Option()] = "sqlite",
    ) -> None:
        if backend not in proof.backends:
            raise typer.BadParameter(f"{proof.name} is about {' and '.join(proof.backends)} alone")
        with _task(runs, secrets.randbelow(2**31) if seed is None else seed, backend) as task:
            if not show(proof, task, proof.try_it(task)):
                raise typer.Exit(1)

    app.command(proof.name, help=proof.shows)(command)


for _each in PROOFS:
    _command(_each)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command."""
    return app(args=arguments, prog_name="python -m tests.proof")


if __name__ == "__main__":
    main()
