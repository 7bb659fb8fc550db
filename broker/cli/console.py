"""What the commands have in common: the database they are told, and how they say what came of it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.canonical import encode
from broker.errors import BrokerError
from broker.schema.printable import one_line, without_passwords

if TYPE_CHECKING:
    from rich.progress import Progress

WRONG = 1  # exit code: it was looked at, and something is wrong
CANNOT = 2  # exit code: it could not be done

DEFAULT_URL = "sqlite:///broker.db"

Url = Annotated[
    str, typer.Option(envvar="BROKER_DATABASE_URL", help="The database, as an SQLAlchemy URL.")
]
Schema = Annotated[
    str | None,
    typer.Option(
        "--schema",
        envvar="BROKER_DATABASE_SCHEMA",
        help="On PostgreSQL: the schema that holds the store.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]


def say_json(value: Mapping[str, Any]) -> None:
    """Print a value as one line of JSON."""
    print(encode(value).stored)


def say_error(message: str, *, kind: str = "error") -> None:
    """Print a message to stderr, in one line whatever it holds."""
    print(f"{kind}: {one_line(message)}", file=sys.stderr)


class Warnings(logging.Handler):
    """Prints what the library warns of to stderr."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning."""
        say_error(record.getMessage(), kind="warning")


@contextmanager
def errors_exit(*, as_json: bool = False) -> Iterator[None]:
    """Turn an error of the store into one line, or its JSON form on stdout, and exit code 2."""
    try:
        yield
    except BrokerError as error:
        if as_json:
            said = {"message": without_passwords(error.message)}
            say_json({"ok": False, "error": error.to_json() | said})
        else:
            say_error(error.message)
        raise typer.Exit(CANNOT) from error


def progress_bars() -> Progress:
    """Progress bars on stderr that go away when they are done; silent where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
