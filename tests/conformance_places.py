"""Where recorded cases are run: a database laid out by a script, and what is in it afterwards.

The scripts and the dumps were recorded on SQLite. On PostgreSQL a script is laid out as the same
rows at the same version, and a dump is compared without what only SQLite has.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from broker import schema
from tests.places import Place, PostgresPlace, client, contents, raw
from tests.postgres_server import URL_VARIABLE, running

Case = dict[str, Any]

TABLES = (
    "metadata",
    "actor_leases",
    "streams",
    "inbox",
    "mutation_receipts",
    "events",
    "outbox",
    "projections",
)
# How the ids begin that no client can have: PostgreSQL's texts hold no NUL.
NOBODY, NOBODY_ON_POSTGRES = "\0runtime-broker-", "\1runtime-broker-"


class NotApplicable(Exception):
    """A case that cannot be on PostgreSQL: of text with NUL, or of a schema only SQLite can have."""


@contextmanager
def server_url() -> Iterator[str]:
    """A PostgreSQL server: the one that is told, or one of our own meanwhile."""
    if URL_VARIABLE in os.environ:
        yield os.environ[URL_VARIABLE]
    else:
        with running() as server:
            yield server.url


# ----------------------------------------------------------------------------------------- dumping


def dump(place: Place, cursors: Cursors | None = None) -> Case:
    """The eight tables of a database, and the user version of a file, as they are recorded."""
    with client(place) as other:
        tables: Case = {table: _dumped(other.execute(f"SELECT * FROM {table}")) for table in TABLES}
        if not isinstance(place, PostgresPlace):
            tables["user_version"] = other.execute("PRAGMA user_version").fetchone()[0]
    if cursors is not None:
        for row in tables["inbox"]:
            row["result_json"] = json.dumps(cursors.ranked_commit(json.loads(row["result_json"])))
    return tables


def _dumped(cursor: Any) -> list[Case]:
    names = [column[0] for column in cursor.description]
    found = [dict(zip(names, map(_as_recorded, row), strict=True)) for row in cursor.fetchall()]
    for row in found:
        row.pop("rowid", None)  # which SQLite does not show either
    return sorted(found, key=lambda row: str(next(iter(row.values()))).encode())


def _as_recorded(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(NOBODY_ON_POSTGRES):
        return NOBODY + value.removeprefix(NOBODY_ON_POSTGRES)
    return value


class Cursors:
    """Cursors by their rank in the journal, as they are recorded.

    PostgreSQL's have gaps where commits were refused or rolled back. They are told in the order in
    which they are given, so one that is new must be the greatest.
    """

    def __init__(self) -> None:
        self._given: list[int] = []

    def ranked(self, answer: Case) -> Case:
        """An answer with ranks for cursors."""
        result = answer.get("result")
        if isinstance(result, dict) and "eventCursors" in result:
            return {"result": self.ranked_commit(result)}
        if isinstance(result, list):
            return {"result": [self._ranked_event(each) for each in result]}
        return answer

    def ranked_commit(self, result: Any) -> Any:
        """A commit's result with ranks for cursors."""
        return result | {"eventCursors": [self._rank(each) for each in result["eventCursors"]]}

    def _ranked_event(self, found: Any) -> Any:
        if isinstance(found, dict) and "cursor" in found:
            return found | {"cursor": self._rank(found["cursor"])}
        return found

    def _rank(self, cursor: int) -> int:
        if not self._given or cursor > self._given[-1]:
            self._given.append(cursor)
        return self._given.index(cursor) + 1

    def asked(self, step: Case) -> Case:
        """A step that asks for what comes after the cursor of a rank."""
        rank = step.get("afterCursor")
        if isinstance(rank, int) and 0 < rank <= len(self._given):
            return step | {"afterCursor": self._given[rank - 1]}
        return step


def expected_dump(recorded: Case, place: Place) -> Case:
    """What of a recorded dump is to be at a place."""
    if not isinstance(place, PostgresPlace):
        return recorded
    expected = {name: rows for name, rows in recorded.items() if name != "user_version"}
    for row in (row for rows in expected.values() for row in rows):
        for value in row.values():
            _as_on_postgres(value)
    return expected


def image(place: Place) -> object:
    """All that a refused opening must leave as it was: of a file every byte."""
    return contents(place) if isinstance(place, PostgresPlace) else place.read_bytes()


# -------------------------------------------------------------------------------------- laying out


def lay_out(script: str, place: Place) -> object:
    """Make the database of a script at an empty place; its image."""
    if isinstance(place, PostgresPlace):
        _copy(script, place)
    else:
        with raw(place) as file:
            file.executescript(script)
    return image(place)


def _copy(script: str, place: PostgresPlace) -> None:
    with closing(sqlite3.connect(":memory:")) as recorded:
        recorded.executescript(script)
        version = _version(recorded)
        schema.upgrade(place.url, REVISIONS[version])
        with client(place) as other:
            other.execute("SET session_replication_role = replica")  # no keys are checked, as there
            for table in TABLES:
                _copy_table(recorded, other, table)
            other.execute(
                "SELECT setval(pg_get_serial_sequence('events', 'rowid'), max(rowid)) FROM events"
            )


def _copy_table(recorded: sqlite3.Connection, other: Any, table: str) -> None:
    names = [row[1] for row in recorded.execute(f"PRAGMA table_info({table})")]
    if not names:
        return
    if table == "events":
        names.append("rowid")
    columns = ", ".join(names)
    other.execute(f"DELETE FROM {table}")
    for row in recorded.execute(f"SELECT {columns} FROM {table}"):
        other.execute(
            f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE"
            f" VALUES ({', '.join('?' * len(row))})",
            [_as_on_postgres(value) for value in row],
        )


def _as_on_postgres(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(NOBODY):
        value = NOBODY_ON_POSTGRES + value.removeprefix(NOBODY)
    if isinstance(value, str) and "\0" in value:
        raise NotApplicable("text with NUL")
    return value


# -------------------------------------------------------------------------------------- versions

REVISIONS = {1: "0001", 2: "0002", 3: "0003"}
RECORDED = Path(__file__).parent / "vectors" / "migrations.jsonl"
SOUND = ("v1-empty", "v2-unique-leases-survive", "v3-as-it-is")


def _version(recorded: sqlite3.Connection) -> int:
    """The version of the reference's whose schema this is, to the letter."""
    found = _schema(recorded)
    for version, sound in _sound_schemas().items():
        if found == sound:
            return version
    raise NotApplicable("a schema that is no version of the reference's")


def _schema(recorded: sqlite3.Connection) -> list[object]:
    """What makes a version, but for the row that tells it."""
    found: list[object] = recorded.execute("SELECT sql FROM sqlite_schema ORDER BY 1").fetchall()
    (user_version,) = recorded.execute("PRAGMA user_version").fetchone()
    told = recorded.execute("SELECT 1 FROM sqlite_schema WHERE name = 'metadata'").fetchall() and (
        recorded.execute("SELECT value FROM metadata WHERE key = 'schema_version'").fetchall()
    )
    return [*found, user_version, told]


@cache
def _sound_schemas() -> dict[int, list[object]]:
    cases = {}
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        cases[case["name"]] = case["script"]
    schemas = {}
    for version, name in enumerate(SOUND, 1):
        with closing(sqlite3.connect(":memory:")) as database:
            database.executescript(cases[name])
            schemas[version] = _schema(database)
    return schemas
