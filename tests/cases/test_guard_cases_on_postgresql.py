"""Cases B48 and B52 on PostgreSQL: what no client may do to streams and events.

The attacker owns the tables and has switched off nothing.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.places import Client, Place, client, contents, rows

FILL = (
    "INSERT INTO streams VALUES ('owned', 2, 1, 1, 'alice'), ('free', 1, 1, 1, NULL)",
    "INSERT INTO inbox VALUES ('m', 'h', 'owned', 2, '{}', 1)",
    "INSERT INTO events VALUES ('e1', 'm', 'owned', 1, 't', '{}', 1, 1),"
    " ('e2', 'm', 'owned', 2, 't', '{}', 1, 1), ('7', 'm', 'free', 1, 't', '{}', 1, 1)",
)
SYNTAX_ERROR = "42601"
STREAM = "INSERT INTO streams VALUES ('owned', 0, 9, 9, 'mallory')"
EVENT = (
    "(event_id, message_id, stream_id, revision, event_type, payload_json,"
    " producer_epoch, occurred_at"
)


def event(event_id: str, revision: int) -> str:
    return f"INSERT INTO events {EVENT}) VALUES ('{event_id}', 'm', 'owned', {revision}, 't', '9', 1, 1)"


def at_rowid(rowid: int) -> str:
    return (
        f"INSERT INTO events {EVENT}, rowid) OVERRIDING SYSTEM VALUE"
        f" VALUES ('e9', 'm', 'owned', 9, 't', '9', 1, 1, {rowid})"
    )


ON_STREAMS = [
    STREAM,
    f"{STREAM} ON CONFLICT (stream_id) DO UPDATE SET workspace_id = excluded.workspace_id",
    f"{STREAM} ON CONFLICT (stream_id) DO UPDATE SET stream_id = 'renamed'",
    f"{STREAM} ON CONFLICT ON CONSTRAINT streams_pkey DO UPDATE SET workspace_id = NULL",
    "UPDATE streams SET workspace_id = 'mallory' WHERE stream_id = 'owned'",
    "UPDATE streams SET workspace_id = NULL WHERE stream_id = 'owned'",
    "UPDATE streams SET stream_id = 'renamed' WHERE stream_id = 'owned'",
    "UPDATE streams SET stream_id = 'x' || stream_id, workspace_id = 'mallory'",
    "DELETE FROM streams WHERE stream_id = 'owned'",
    "DELETE FROM streams",
    "WITH gone AS (DELETE FROM streams RETURNING *) SELECT * FROM gone",
    "TRUNCATE streams",
    "TRUNCATE streams CASCADE",
    "TRUNCATE inbox, streams, events, outbox, projections RESTART IDENTITY CASCADE",
]
ON_EVENTS = [
    event("e1", 9),
    event("e9", 1),
    f"{event('e1', 9)} ON CONFLICT (event_id) DO UPDATE SET payload_json = excluded.payload_json",
    f"{event('e9', 1)} ON CONFLICT (stream_id, revision)"
    " DO UPDATE SET payload_json = excluded.payload_json",
    *map(at_rowid, [1, 0, -1, 2**53, 2**63 - 1]),
    f"{at_rowid(1)} ON CONFLICT (rowid) DO UPDATE SET payload_json = excluded.payload_json",
    "UPDATE events SET payload_json = 'forged'",
    "UPDATE events SET event_id = 'e9' WHERE event_id = 'e1'",
    "UPDATE events SET rowid = DEFAULT WHERE event_id = 'e1'",
    "UPDATE events SET payload_json = payload_json",
    "DELETE FROM events WHERE event_id = 'e1'",
    "DELETE FROM events",
    "TRUNCATE events",
    "TRUNCATE events CASCADE",
    "TRUNCATE inbox CASCADE",
]
MERGES = [
    "MERGE INTO streams USING (VALUES ('owned')) AS v (id) ON stream_id = id"
    " WHEN MATCHED THEN UPDATE SET workspace_id = 'mallory'",
    "MERGE INTO streams USING (VALUES ('owned')) AS v (id) ON stream_id = id"
    " WHEN MATCHED THEN DELETE",
    "MERGE INTO events USING (VALUES ('e1')) AS v (id) ON event_id = id"
    " WHEN MATCHED THEN UPDATE SET payload_json = 'forged'",
    "MERGE INTO events USING (VALUES ('e1')) AS v (id) ON event_id = id WHEN MATCHED THEN DELETE",
]


@pytest.fixture
def filled(backend: str, place: Place) -> Place:
    """A store with an owned and a free stream."""
    with client(place) as other:
        other.execute("BEGIN")
        for statement in FILL:
            other.execute(statement)
        other.execute("COMMIT")
    return place


def attack(other: Client, statement: str) -> None:
    state = None
    try:
        other.execute(statement)
    except psycopg.Error as error:
        state = error.sqlstate
    assert state is not None, f"it was let through: {statement}"
    assert state != SYNTAX_ERROR, statement


def test_b52_no_statement_removes_or_changes_what_is_permanent(filled: Place) -> None:
    before = contents(filled)
    with client(filled) as other:
        for statement in (*ON_STREAMS, *ON_EVENTS):
            attack(other, statement)
            assert contents(filled) == before, statement


def test_b52_merge_does_not_either(filled: Place) -> None:
    before = contents(filled)
    with client(filled) as other:
        if other.connection.info.server_version < 150_000:
            pytest.skip("MERGE came with PostgreSQL 15")
        for statement in MERGES:
            attack(other, statement)
    assert contents(filled) == before


@pytest.mark.parametrize("statement", [STREAM, event("e1", 9), event("e9", 1)])
def test_b52_what_gives_way_to_what_is_there_changes_nothing(filled: Place, statement: str) -> None:
    before = contents(filled)
    with client(filled) as other:
        other.execute(f"{statement} ON CONFLICT DO NOTHING")
    assert contents(filled) == before


def test_b52_the_first_owner_of_a_stream_may_still_be_set_once(filled: Place) -> None:
    with client(filled) as other:
        other.execute("UPDATE streams SET workspace_id = 'alice' WHERE stream_id = 'free'")
        attack(other, "UPDATE streams SET workspace_id = 'bob' WHERE stream_id = 'free'")
    owner = rows(filled, "SELECT workspace_id FROM streams WHERE stream_id = 'free'")
    assert owner == [("alice",)]


def test_b52_what_the_store_itself_does_is_not_hindered(filled: Place) -> None:
    with client(filled) as other:
        other.execute("INSERT INTO streams VALUES ('new', 0, 1, 1, NULL)")
        other.execute("UPDATE streams SET revision = 3, updated_at = 2 WHERE stream_id = 'owned'")
        other.execute(event("e3", 3))
    assert rows(filled, "SELECT max(rowid) FROM events") == [(4,)]


def test_b48_the_last_cursor_that_is_a_safe_integer_can_be_given_and_none_after_it(
    filled: Place,
) -> None:
    with client(filled) as other:
        other.execute(f"SELECT setval('events_rowid_seq', {2**53 - 2})")
        other.execute(event("last", 9))
        attack(other, event("none", 10))
    assert rows(filled, "SELECT max(rowid) FROM events") == [(2**53 - 1,)]


def test_b48_a_cursor_is_never_given_twice_not_even_after_a_rollback(filled: Place) -> None:
    with client(filled) as other:
        other.execute("BEGIN")
        lost = other.execute(f"{event('lost', 9)} RETURNING rowid").fetchall()
        other.execute("ROLLBACK")
        kept = other.execute(f"{event('kept', 9)} RETURNING rowid").fetchall()
    assert (lost, kept) == ([(4,)], [(5,)])


def test_b48_a_rewritten_table_keeps_every_cursor(filled: Place) -> None:
    before = contents(filled)
    with client(filled) as other:
        other.execute("VACUUM FULL events")
        other.execute("CLUSTER streams USING streams_pkey")
    assert contents(filled) == before
