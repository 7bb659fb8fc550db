"""Cases B48 and B52: what no client may do to streams and events, whatever its pragmas.

The attacker is plain sqlite3 with its defaults: no foreign keys, no recursive triggers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker import schema

FILL = """
INSERT INTO streams VALUES ('owned', 2, 1, 1, 'alice'), ('free', 1, 1, 1, NULL), ('5', 0, 1, 1, 'bob');
INSERT INTO inbox VALUES ('m', 'h', 'owned', 2, '{}', 1);
INSERT INTO events VALUES ('e1', 'm', 'owned', 1, 't', '{}', 1, 1, NULL, NULL, NULL);
INSERT INTO events VALUES ('e2', 'm', 'owned', 2, 't', '{}', 1, 1, NULL, NULL, NULL);
INSERT INTO events VALUES ('7', 'm', 'free', 1, 't', '{}', 1, 1, NULL, NULL, NULL);
"""

STREAM = "(stream_id, revision, created_at, updated_at, workspace_id)"
EVENT = "(event_id, message_id, stream_id, revision, event_type, payload_json, producer_epoch, occurred_at)"

ON_STREAMS = [
    # another owner, the same owner, none, by key
    f"INSERT OR REPLACE INTO streams {STREAM} VALUES ('owned', 0, 9, 9, 'mallory')",
    f"INSERT OR REPLACE INTO streams {STREAM} VALUES ('owned', 2, 1, 1, 'alice')",
    f"REPLACE INTO streams {STREAM} VALUES ('owned', 0, 9, 9, NULL)",
    f"REPLACE INTO streams {STREAM} VALUES ('free', 0, 9, 9, 'mallory')",
    # a key of another type that is stored as the same text
    f"REPLACE INTO streams {STREAM} VALUES (5, 0, 9, 9, 'mallory')",
    # by rowid, under each of its names and as text or float
    "REPLACE INTO streams (rowid, stream_id, revision, created_at, updated_at) VALUES (1, 'x', 0, 9, 9)",
    "REPLACE INTO streams (_rowid_, stream_id, revision, created_at, updated_at) VALUES ('1', 'x', 0, 9, 9)",
    "REPLACE INTO streams (oid, stream_id, revision, created_at, updated_at) VALUES (1.0, 'x', 0, 9, 9)",
    # a rowid with which a later REPLACE could hide
    "INSERT INTO streams (rowid, stream_id, revision, created_at, updated_at) VALUES (-1, 'x', 0, 9, 9)",
    "INSERT INTO streams (rowid, stream_id, revision, created_at, updated_at) VALUES (0, 'x', 0, 9, 9)",
    # a rowid that no other program can name exactly, or after which there is none
    "INSERT INTO streams (rowid, stream_id, revision, created_at, updated_at) VALUES (9007199254740992, 'x', 0, 9, 9)",
    "INSERT INTO streams (oid, stream_id, revision, created_at, updated_at) VALUES (9223372036854775807, 'x', 0, 9, 9)",
    # several rows at once, from a query, and with what would skip an error
    f"INSERT OR REPLACE INTO streams {STREAM} SELECT stream_id, 0, 9, 9, 'mallory' FROM streams",
    f"INSERT OR IGNORE INTO streams {STREAM} VALUES ('new', 0, 1, 1, NULL), ('owned', 0, 9, 9, 'mallory')",
    f"INSERT INTO streams {STREAM} VALUES ('owned', 0, 9, 9, 'mallory')"
    " ON CONFLICT (stream_id) DO UPDATE SET workspace_id = excluded.workspace_id",
    f"INSERT INTO streams {STREAM} VALUES ('owned', 0, 9, 9, 'mallory') ON CONFLICT DO NOTHING",
    # updates
    "UPDATE streams SET workspace_id = 'mallory' WHERE stream_id = 'owned'",
    "UPDATE streams SET workspace_id = NULL WHERE stream_id = 'owned'",
    "UPDATE OR IGNORE streams SET workspace_id = 'mallory' WHERE stream_id = 'owned'",
    "UPDATE OR REPLACE streams SET stream_id = 'owned' WHERE stream_id = 'free'",
    "UPDATE OR REPLACE streams SET rowid = 1 WHERE stream_id = 'free'",
    "UPDATE streams SET stream_id = 'renamed' WHERE stream_id = 'owned'",
    "UPDATE streams SET rowid = 99 WHERE stream_id = 'owned'",
    "UPDATE streams SET stream_id = 'x' || stream_id, workspace_id = 'mallory'",
    # deletion
    "DELETE FROM streams WHERE stream_id = 'owned'",
    "DELETE FROM streams",
]

ON_EVENTS = [
    f"INSERT OR REPLACE INTO events {EVENT} VALUES ('e1', 'm', 'owned', 1, 't', 'forged', 1, 1)",
    f"INSERT OR REPLACE INTO events {EVENT} VALUES ('e1', 'm', 'owned', 9, 't', 'forged', 1, 1)",
    f"INSERT OR REPLACE INTO events {EVENT} VALUES ('e9', 'm', 'owned', 1, 't', 'forged', 1, 1)",
    f"INSERT OR REPLACE INTO events {EVENT} VALUES ('e9', 'm', 'owned', '1', 't', 'forged', 1, 1)",
    f"INSERT OR REPLACE INTO events {EVENT} VALUES ('e9', 'm', 'owned', 1.0, 't', 'forged', 1, 1)",
    f"INSERT OR REPLACE INTO events {EVENT} VALUES (7, 'm', 'owned', 9, 't', 'forged', 1, 1)",
    f"REPLACE INTO events (rowid, {EVENT[1:]} VALUES (1, 'e9', 'm', 'owned', 9, 't', 'forged', 1, 1)",
    f"REPLACE INTO events (oid, {EVENT[1:]} VALUES ('2', 'e9', 'm', 'owned', 9, 't', 'forged', 1, 1)",
    f"INSERT INTO events (rowid, {EVENT[1:]} VALUES (-1, 'e9', 'm', 'owned', 9, 't', '{{}}', 1, 1)",
    f"INSERT INTO events (rowid, {EVENT[1:]} VALUES (0, 'e9', 'm', 'owned', 9, 't', '{{}}', 1, 1)",
    f"INSERT INTO events (rowid, {EVENT[1:]} VALUES (9007199254740992, 'e9', 'm', 'owned', 9, 't', '{{}}', 1, 1)",
    f"INSERT INTO events (oid, {EVENT[1:]} VALUES (9223372036854775807, 'e9', 'm', 'owned', 9, 't', '{{}}', 1, 1)",
    f"REPLACE INTO events (rowid, {EVENT[1:]} VALUES ('9007199254740992', 'e9', 'm', 'owned', 9, 't', '{{}}', 1, 1)",
    f"INSERT INTO events {EVENT} VALUES ('e1', 'm', 'owned', 9, 't', 'forged', 1, 1)"
    " ON CONFLICT (event_id) DO UPDATE SET payload_json = excluded.payload_json",
    f"INSERT INTO events {EVENT} VALUES ('e9', 'm', 'owned', 1, 't', 'forged', 1, 1)"
    " ON CONFLICT (stream_id, revision) DO UPDATE SET payload_json = excluded.payload_json",
    "UPDATE events SET payload_json = 'forged'",
    "UPDATE OR IGNORE events SET payload_json = 'forged' WHERE event_id = 'e1'",
    "UPDATE OR REPLACE events SET event_id = 'e1' WHERE event_id = 'e2'",
    "UPDATE OR REPLACE events SET rowid = 1 WHERE event_id = 'e2'",
    "UPDATE events SET rowid = rowid + 10",
    "UPDATE events SET payload_json = payload_json",
    "DELETE FROM events WHERE event_id = 'e1'",
    "DELETE FROM events",
]

PRAGMAS = {
    "defaults": "",
    "foreign keys": "PRAGMA foreign_keys = ON",
    "recursive triggers": "PRAGMA recursive_triggers = ON",
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("guards") / "filled.db"
    schema.upgrade(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FILL)
    return path.read_bytes()


@pytest.fixture
def database(filled: bytes, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "attacked.db"
    path.write_bytes(filled)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def everything(database: sqlite3.Connection) -> list[tuple[object, ...]]:
    streams = database.execute("SELECT rowid, * FROM streams ORDER BY rowid").fetchall()
    return streams + database.execute("SELECT rowid, * FROM events ORDER BY rowid").fetchall()


@pytest.mark.parametrize("pragma", PRAGMAS.values(), ids=PRAGMAS.keys())
@pytest.mark.parametrize("attack", [*ON_STREAMS, *ON_EVENTS])
def test_b52_no_statement_removes_or_changes_what_is_permanent(
    attack: str, pragma: str, database: sqlite3.Connection
) -> None:
    before = everything(database)
    database.execute(pragma)

    with pytest.raises(sqlite3.IntegrityError, match="runtime broker"):
        database.execute(attack)

    assert everything(database) == before


def test_b52_a_conflict_clause_of_the_attackers_trigger_does_not_help(
    database: sqlite3.Connection,
) -> None:
    before = everything(database)
    database.execute("CREATE TEMP TABLE bait (a)")
    database.execute(
        "CREATE TEMP TRIGGER hook AFTER INSERT ON bait BEGIN"
        " INSERT OR REPLACE INTO streams VALUES ('owned', 0, 9, 9, 'mallory'); END"
    )

    with pytest.raises(sqlite3.IntegrityError, match="permanent"):
        database.execute("INSERT OR REPLACE INTO bait VALUES (1)")

    assert everything(database) == before


def test_b52_the_first_owner_of_a_stream_may_still_be_set_once(
    database: sqlite3.Connection,
) -> None:
    claim = "UPDATE streams SET workspace_id = ? WHERE stream_id = 'free'"

    database.execute(claim, ("alice",))
    with pytest.raises(sqlite3.IntegrityError, match="ownership is immutable"):
        database.execute(claim, ("bob",))

    owner = database.execute("SELECT workspace_id FROM streams WHERE stream_id = 'free'").fetchone()
    assert owner == ("alice",)


def test_b52_what_the_store_itself_does_is_not_hindered(database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO streams VALUES ('new', 0, 1, 1, NULL)")
    database.execute("UPDATE streams SET revision = 3, updated_at = 2 WHERE stream_id = 'owned'")
    database.execute(
        f"INSERT INTO events {EVENT} VALUES ('e3', 'm', 'owned', 3, 't', '{{}}', 1, 1)"
    )

    assert database.execute("SELECT max(rowid) FROM events").fetchone() == (4,)
    assert database.execute("SELECT max(rowid) FROM streams").fetchone() == (4,)


def test_b52_the_last_cursor_that_is_a_safe_integer_can_be_given(
    database: sqlite3.Connection,
) -> None:
    insert = (
        f"INSERT INTO events (rowid, {EVENT[1:]} VALUES (?, ?, 'm', 'owned', ?, 't', '{{}}', 1, 1)"
    )

    database.execute(insert, (2**53 - 1, "e9", 9))
    with pytest.raises(sqlite3.IntegrityError, match=r"rowids from 1 to 2\^53 - 1"):
        database.execute(insert, (None, "e10", 10))

    assert database.execute("SELECT max(rowid) FROM events").fetchone() == (2**53 - 1,)


def test_b48_vacuum_and_a_vacuumed_copy_keep_every_cursor(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    before = everything(database)
    copy = tmp_path / "copy.db"

    database.execute("VACUUM")
    database.execute("VACUUM INTO ?", (str(copy),))

    assert everything(database) == before
    with closing(sqlite3.connect(copy)) as copied:
        assert everything(copied) == before


def test_b48_a_rolled_back_cursor_may_be_given_again_and_a_committed_one_never(
    database: sqlite3.Connection,
) -> None:
    insert = (
        f"INSERT INTO events {EVENT} VALUES (?, 'm', 'owned', 3, 't', '{{}}', 1, 1) RETURNING rowid"
    )

    database.execute("BEGIN")
    lost = database.execute(insert, ("lost",)).fetchall()
    database.execute("ROLLBACK")
    kept = database.execute(insert, ("kept",)).fetchall()

    assert lost == kept == [(4,)]
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute("DELETE FROM events WHERE rowid = 4")
