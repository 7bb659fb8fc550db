"""URLs, options and arguments of the command that are nearly right."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import strategies as st
from sqlalchemy import URL

from broker import Broker, Options
from broker.cli import main
from broker.database_url import database_url, is_postgresql
from broker.errors import BrokerError, ConfigurationError
from broker.sqlite.database_file import file_of
from tests.proof.fuzz.bench import Bench
from tests.proof.fuzz.checks import Broken, require, require_error
from tests.proof.fuzz.values import hostile, texts

# ----------------------------------------------------------------------------------------- options


class Choice(NamedTuple):
    """Values for some options, by name."""

    values: dict[str, Any]


options: st.SearchStrategy[Choice] = st.dictionaries(
    st.sampled_from([each.name for each in fields(Options)]),
    hostile | texts | st.integers() | st.just(len),
    min_size=1,
    max_size=3,
).map(Choice)


def choosing(_bench: Bench, chosen: Choice) -> bool:
    """Options: taken, or ConfigurationError."""
    try:
        Options(**chosen.values)
    except ConfigurationError as error:
        require_error(error)
        return False
    return True


# -------------------------------------------------------------------------------------------- URLs

_PARTS = (
    "sqlite",
    "sqlite+aiosqlite",
    "postgresql",
    "postgresql+psycopg",
    "mysql",
    "://",
    ":///",
    "/",
    ":",
    "@",
    "?",
    "&",
    "=",
    "%",
    "%00",
    "%2e%2e",
    "[::1",
    "]",
    "file:",
    ":memory:",
    "x.db",
    "folder/x.db",
    "user:secret@",
    "127.0.0.1:1",
    "127.0.0.1:99999999",
    "127.0.0.1:x",
    "uri=true",
    "uri",
    "mode=memory",
    "mode=ro",
    "vfs=none",
    "timeout=x",
    "isolation_level=EXCLUSIVE",
    "detect_types=x",
    "factory=x",
    "cached_statements=-1",
    "check_same_thread=0",
    "connect_timeout=x",
    "sslmode=x",
    "options=-c x=y",
    "\0",
    "\ud800",
    " ",
    "'",
    '"',
    "\n",
)
_WHOLE = (
    "sqlite:///x.db",
    "sqlite:///file:x.db?mode=rwc&uri=true",
    "sqlite:///x.db?timeout=5",
    "postgresql+psycopg://user:secret@127.0.0.1:1/x",
)

urls: st.SearchStrategy[str] = st.one_of(
    st.lists(st.sampled_from(_PARTS), max_size=7).map("".join),
    st.tuples(
        st.sampled_from(_WHOLE), st.lists(st.sampled_from(_PARTS), min_size=1, max_size=4)
    ).map(lambda both: both[0] + "".join(both[1])),
    texts,
)


def url(bench: Bench, text: str) -> bool:
    """A URL: ConfigurationError, or it is opened or not, in our folder or on this machine alone."""
    try:
        found = database_url(text)
    except ConfigurationError as error:
        require_secrecy(text, error)
        return False
    with inside(bench.folder):
        if not _stays_here(found, bench.folder):
            return True
        for migrate in (True, False):
            try:
                Broker.open(text, migrate=migrate, options=_IMPATIENT).close()
            except BrokerError as error:
                require_secrecy(text, error)
    return True


def require_secrecy(text: str, error: BrokerError) -> None:
    """An error shows no password; a file of SQLite's has none, and its options are shown."""
    is_secret = not text.startswith("sqlite")
    require(not is_secret or "secret" not in str(error.to_json()), "an error shows a password")
    require_error(error)


_IMPATIENT = Options(busy_timeout_ms=200)


def _stays_here(found: URL, folder: Path) -> bool:
    """Whether it can be opened without harm: nothing is made or asked for elsewhere."""
    if is_postgresql(found):
        elsewhere = found.query.keys() & {"host", "hostaddr", "port", "service", "passfile"}
        return found.host == "127.0.0.1" and found.port == 1 and not elsewhere
    with suppress(OSError, ValueError):
        return file_of(found).resolve().is_relative_to(folder.resolve())
    return False


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """A block in which names of files are of this folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


# ----------------------------------------------------------------------------- the command's words


class Words(NamedTuple):
    """Arguments of the command, and what is in its environment."""

    arguments: tuple[str, ...]
    environment: dict[str, str]


_NAMES = ("upgrade", "check", "apply", "schemas", "move")
_WORDS = (
    *_NAMES,
    "--url",
    "--schema",
    "--json",
    "--shared",
    "--help",
    "--version",
    "--",
    "-",
    "--url=sqlite:///x.db",
    "--schema=",
    "head",
    "base",
    "0002",
    "+1",
    "-1",
    "+99999999999999999999",
    "head-1",
    "0001:0002",
    "''",
    "",
    "\udcff",  # a byte that is not UTF-8, as Python has it
    "é" * 300,
    "a\nb",
    "./x.db",
    "/dev/null",
)
_FOR_ENVIRONMENT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9
)


def _can_be_said(word: str) -> bool:
    """Whether the system can hand a process such an argument."""
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


words: st.SearchStrategy[Words] = st.builds(
    Words,
    st.tuples(
        st.sampled_from(_NAMES),
        st.lists(st.sampled_from(_WORDS) | (texts | urls).filter(_can_be_said), max_size=4),
    ).map(lambda both: (both[0], *both[1])),
    st.dictionaries(
        st.sampled_from(["BROKER_DATABASE_URL", "BROKER_DATABASE_SCHEMA"]),
        _FOR_ENVIRONMENT,
        max_size=2,
    ),
)


def command(bench: Bench, said: Words) -> bool:
    """The command: an exit code of 0, 1 or 2, and for 2 a line that says why."""
    if not _is_harmless(said, bench.folder):
        return False
    code, output, errors = run(said, bench.folder)
    require(code in (0, 1, 2), f"exit code {code}")
    require("Traceback" not in output + errors, "a traceback")
    require(code != 2 or bool(output + errors), "exit code 2, and nobody is told why")
    return code == 0


def _is_harmless(said: Words, folder: Path) -> bool:
    """Whether no word of it is a database or a file elsewhere."""
    with inside(folder):
        for word in (*said.arguments, *said.environment.values()):
            for text in (word, word.removeprefix("--url=")):
                try:
                    found = database_url(text)
                except BrokerError:
                    continue
                if not _stays_here(found, folder):
                    return False
    return True


def run(said: Words, folder: Path) -> tuple[int, str, str]:
    """The command in this process: its exit code and what it printed, on stdout and on stderr."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    errors = io.StringIO()
    with (
        inside(folder),
        patch.dict(os.environ, said.environment),
        patch("sys.stdin", io.TextIOWrapper(io.BytesIO())),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main(said.arguments)
        except SystemExit as ended:
            code = ended.code
        except Exception as error:
            raise Broken(f"a bare {type(error).__name__}: {error}") from error
        else:
            raise Broken("the command did not end")
    require(isinstance(code, int), f"exit code {code!r}")
    assert isinstance(code, int)
    written = out.buffer
    assert isinstance(written, io.BytesIO)
    return code, written.getvalue().decode(), errors.getvalue()
