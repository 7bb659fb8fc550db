"""The command `python -m tests.proof`: a subcommand a proof.

Annotations are not postponed here: those of a subcommand name its proof.
"""

import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tests.places import Databases
from tests.postgres_server import running
from tests.proof.proofs import PROOFS
from tests.proof.report import Proof, Report
from tests.proof.task import Backend, Task


def make_app(proofs: Iterable[Proof]) -> typer.Typer:
    """A command with a subcommand for each proof, which exits with 1 if a promise was broken."""
    app = typer.Typer(
        help="Try what the store promises.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(lambda: None)  # or an app of one proof would have no subcommand
    for proof in proofs:
        app.command(proof.name, help=proof.shows)(_command(proof))
    return app


def _command(proof: Proof) -> Callable[..., None]:
    def command(
        runs: Annotated[int, typer.Option(min=1, help=f"How many {proof.unit}.")] = proof.runs,
        seed: Annotated[
            int | None, typer.Option(min=0, help="Drawn at random unless given.")
        ] = None,
        backend: Annotated[Backend, typer.Option()] = "sqlite",
    ) -> None:
        carry_out(proof, runs, seed, backend)

    return command


def carry_out(proof: Proof, runs: int, seed: int | None, backend: Backend) -> None:
    """Try a proof and print what it saw; raises typer.Exit(1) if a promise was broken."""
    if backend not in proof.backends:
        raise typer.BadParameter(f"{proof.name} is about {' and '.join(proof.backends)} alone")
    seed = secrets.randbelow(2**31) if seed is None else seed
    with _task(runs, seed, backend, proof.server) as task:
        report = proof.try_it(task)
    _show(proof, task, report)
    if report.violations:
        raise typer.Exit(1)


@contextmanager
def _task(runs: int, seed: int, backend: Backend, settings: Mapping[str, str]) -> Iterator[Task]:
    with tempfile.TemporaryDirectory(prefix="broker-proof-") as folder:
        if backend == "sqlite":
            yield Task(runs, seed, Path(folder))
            return
        with running(**settings) as server, closing(Databases(server.url)) as databases:
            yield Task(runs, seed, Path(folder), databases)


def _show(proof: Proof, task: Task, report: Report) -> None:
    """Print what a proof saw, the line of counts last."""
    for each in report.left_out:
        typer.echo(f"left out: {each}")
    for violation in report.violations:
        typer.echo(f"violation: {violation.what}")
        typer.echo(
            f"  again: python -m tests.proof {proof.name} --runs 1 --seed {violation.seed} "
            f"--backend {task.backend}"
        )
    typer.echo(f"{proof.name} on {task.backend}, seed {task.seed}")
    typer.echo(report.line(proof.name, proof.unit, task.runs))


def main() -> None:
    """Run the command."""
    make_app(PROOFS)(prog_name="python -m tests.proof")


if __name__ == "__main__":
    main()
