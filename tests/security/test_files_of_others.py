"""What SQL in a database file of somebody else's can reach: that database, and no more."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from broker import Broker
from broker.errors import DatabaseError, SchemaError
from tests.cli.support import run
from tests.places import execute, url_of
from tests.support import ManualClock, acquire, open_store

OUTSIDE = {
    "load_extension": "SELECT load_extension('{outside}')",
    "writefile": "SELECT writefile('{outside}', 'x')",
    "readfile": "SELECT readfile('{outside}')",
    "edit": "SELECT edit('x')",
    "fts3_tokenizer": "SELECT fts3_tokenizer('simple', x'4141414141414141')",
}


def trigger(body: str) -> str:
    """A trigger of somebody else's on leases."""
    return f"CREATE TRIGGER theirs AFTER INSERT ON actor_leases BEGIN {body}; END"


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_trigger_reaches_nothing_outside(path: Path, clock: ManualClock, name: str) -> None:
    outside = path.with_name("outside.so")
    with open_store(path, clock) as store:
        execute(path, trigger(OUTSIDE[name].format(outside=outside)))  # else it were not opened
        with pytest.raises(DatabaseError, match=f"(no such function: |unsafe use of ){name}"):
            acquire(store)
        assert store.get_lease({"actorId": "actor"}) is None
    assert not outside.exists()


@pytest.mark.parametrize("body", ["ATTACH '{outside}' AS outside", "PRAGMA writable_schema=1"])
def test_what_a_trigger_cannot_say_at_all(path: Path, clock: ManualClock, body: str) -> None:
    open_store(path, clock).close()
    with pytest.raises(sqlite3.OperationalError, match="syntax error"):
        execute(path, trigger(body.format(outside=path.with_name("outside.db"))))
    assert not path.with_name("outside.db").exists()


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TRIGGER theirs AFTER INSERT ON events BEGIN DELETE FROM outbox; END",
        "CREATE TRIGGER theirs BEFORE UPDATE ON actor_leases BEGIN SELECT RAISE(IGNORE); END",
        "CREATE INDEX theirs ON events (abs(revision))",
        "DROP TRIGGER events_no_delete",
    ],
)
def test_broker_check_tells_of_what_is_not_the_stores(
    path: Path, clock: ManualClock, capsys: pytest.CaptureFixture[str], theirs: str
) -> None:
    open_store(path, clock).close()
    execute(path, theirs)
    before = path.read_bytes()
    code, said, _ = run(capsys, "check", "--url", url_of(path))
    assert (code, path.read_bytes()) == (1, before)
    assert "theirs" in said or "events_no_delete" in said
    with pytest.raises(SchemaError):
        Broker.open(url_of(path), migrate=False)
