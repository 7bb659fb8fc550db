"""The `broker` command: migrate, check, serve JSON lines, print the schemas, and show it all at work.

Exit codes are the same everywhere: 0 done, 1 looked and found something wrong, 2 could not be done,
said in one line on stderr. Importing `broker` does not import this, and the commands import what is
heavy (Alembic, Rich's displays) when they run.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

import broker
from broker.cli.apply import apply
from broker.cli.console import CANNOT, WRONG, Warnings, say_error
from broker.cli.demo import demo
from broker.cli.migrations import check, upgrade
from broker.cli.move import move
from broker.cli.schemas import schemas

app = typer.Typer(
    name="broker",
    add_completion=False,
    rich_markup_mode="markdown",  # paragraphs of docstrings are filled to the width
    pretty_exceptions_enable=False,  # its boxes would show local variables, nonces among them
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"broker {broker.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Leases with fencing epochs, and fenced, idempotent commits, on your own database."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(CANNOT)


for _command in (demo, upgrade, check, apply, schemas, move):
    app.command()(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with these arguments, by default the process's own, and exit."""
    _open_standard_streams()
    log, warnings = logging.getLogger("broker"), Warnings()
    log.addHandler(warnings)
    try:
        sys.exit(_flushed(_run(arguments)))
    finally:
        log.removeHandler(warnings)


def _open_standard_streams() -> None:
    """Give a process that was started without them an empty input and an output that is lost."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(arguments, prog_name="broker", standalone_mode=False)
    except TyperException as error:
        say_error(error.format_message())
        return CANNOT
    except SystemExit:  # so Typer ends when whoever reads stdout has gone
        return WRONG
    except OSError as error:
        say_error(str(error))
        return CANNOT
    return int(code or 0)


def _flushed(code: int) -> int:
    """Send off what was printed, here and not at the interpreter's end, where nobody could catch it.

    A reader who has gone (`broker schemas | head`) is no fault of ours, and worth no message.
    """
    stdout = sys.__stdout__  # Typer may have replaced the other one
    try:
        if stdout is not None:
            stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            return WRONG
        if code != CANNOT:  # else it was said already, when it was met first
            say_error(str(error))
        return CANNOT
    return code
