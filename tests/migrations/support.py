"""Databases for the migration tests: as other programs leave them, and looked at with plain sqlite3."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import chdir, closing, contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from alembic.config import CommandLine, Config
from sqlalchemy import Connection, NullPool

from broker.sqlite.engine import make_engine

ROOT = Path(__file__).parent.parent.parent
VECTORS = [
    json.loads(line)
    for line in (ROOT / "tests" / "vectors" / "migrations.jsonl").read_text().splitlines()
]
SCRIPTS: dict[str, str] = {case["name"]: case["script"] for case in VECTORS}

Rows = list[tuple[Any, ...]]


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def run_sql(path: Path, script: str) -> Path:
    """Run a script with a client that knows nothing of us: plain sqlite3, its own defaults."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def rows(path: Path, query: str) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def schema_of(path: Path) -> Rows:
    return rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")


def contents(path: Path) -> dict[str, Rows]:
    """Every row of every table, with its rowid."""
    tables = rows(path, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return {name: rows(path, f'SELECT rowid, * FROM "{name}" ORDER BY rowid') for (name,) in tables}


@contextmanager
def looking(path: Path) -> Iterator[Connection]:
    """A connection of the store's own kind that leaves the journal mode alone."""
    engine = make_engine(url(path), wal=False, poolclass=NullPool)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def payload(stream: str, sequence: int, workspace: str) -> str:
    """A runtime event's payload, as JSON text."""
    actor = {
        "version": 2,
        "revision": 1,
        "workspaceId": workspace,
        "actorKind": "root",
        "actorId": stream,
        "generation": 1,
    }
    event = {
        "version": 2,
        "revision": 1,
        "streamId": stream,
        "sequence": sequence,
        "actor": actor,
        "producerEpoch": 1,
        "occurredAt": sequence,
        "kind": "domain.event",
        "eventType": "schedule.created",
        "eventId": f"domain-{stream}-{sequence}",
    }
    return json.dumps(event)


def add_events(path: Path, stream: str, payloads: Sequence[str | bytes]) -> None:
    """Append events to a stream of a version 1 or 2 database, as its own program would."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "INSERT INTO streams VALUES (?, 0, 1, 1) ON CONFLICT DO NOTHING", (stream,)
        )
        connection.execute(
            "INSERT INTO inbox VALUES (?, 'h', ?, 0, '{}', 1) ON CONFLICT DO NOTHING",
            (f"m-{stream}", stream),
        )
        connection.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, 'domain.event', CAST(? AS TEXT), 1, 1, NULL, NULL, NULL)",
            [
                (f"{stream}-{place}", f"m-{stream}", stream, place, text)
                for place, text in enumerate(payloads, 1)
            ],
        )
        connection.execute(
            "UPDATE streams SET revision = ? WHERE stream_id = ?", (len(payloads), stream)
        )


def version_1(path: Path) -> Path:
    """A version 1 database with something in every table."""
    run_sql(path, SCRIPTS["v1-empty"])
    add_events(path, "alpha", [payload("alpha", n, "w1") for n in range(1, 4)])
    add_events(path, "beta", ['{"kind": "note"}', payload("beta", 2, "w2")])
    add_events(path, "gamma", ['"nobody\'s"'])
    return run_sql(
        path,
        """
        INSERT INTO actor_leases VALUES ('alpha', 'host', 3, 'n1', 1, 2, 900);
        INSERT INTO actor_leases VALUES ('b\u00e9ta', 'host', 7, 'n2', 1, 2, 3);
        INSERT INTO outbox VALUES ('o1', 'm-alpha', 'alpha-1', 'd', '{}', 5, 5, NULL, 0);
        INSERT INTO outbox VALUES ('o2', 'm-beta', NULL, 'd', '{}', 5, 5, 9, 2);
        INSERT INTO projections VALUES ('p1', 'alpha', 3, '{"n": 1}', 6);
        """,
    )


def version_2(path: Path) -> Path:
    """A version 2 database in which two actors hold leases on one stream."""
    return run_sql(path, SCRIPTS["v2-duplicate-leases-collapse"])


class _CommandLine(CommandLine):
    """The command line, whose default output is the one that was there when it was imported."""

    def run_cmd(self, config: Config, options: Namespace) -> None:
        config.stdout = sys.stdout
        super().run_cmd(config, options)


def run_alembic(
    *arguments: str, cwd: Path = ROOT, database: str | None = None
) -> subprocess.CompletedProcess[str]:
    """The `alembic` command in this process; `database` is what BROKER_DATABASE_URL says.

    Starting an interpreter takes ten times as long as what the command does.
    """
    code: object = 0
    output, errors = StringIO(), StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        chdir(cwd),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        patch.delenv("BROKER_DATABASE_URL", raising=False)
        if database is not None:
            patch.setenv("BROKER_DATABASE_URL", database)
        try:
            _CommandLine("alembic").main(arguments)
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def run_alembic_process(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The real `alembic` command."""
    command = [sys.executable, "-m", "alembic", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def on(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_alembic("-x", f"url={url(path)}", *arguments)


def assert_one_line(answer: subprocess.CompletedProcess[str], code: int, text: str) -> None:
    assert answer.returncode == code
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert text in line
