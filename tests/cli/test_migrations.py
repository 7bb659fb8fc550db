"""`broker upgrade` and `broker check`: exit codes, JSON, and that looking leaves no trace."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from broker import Broker
from broker.cli.demo import legacy
from tests.cli.support import broker, environment, run, run_sql


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database at the newest revision, closed."""
    path = tmp_path / "broker.db"
    Broker.open(f"sqlite:///{path}").close()
    return path


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------------------------------- upgrade


def test_upgrade_says_what_each_step_changed_and_then_that_nothing_is_to_do(tmp_path: Path) -> None:
    legacy.make(tmp_path / "broker.db")
    first = broker("upgrade", cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    for line in (
        "0002  version 2: leases belong to streams",
        "leases ended, epochs kept as lineage: 8",
        "events read: 35",
        "streams given their owner: 6",
        "the database is at revision 0004",
    ):
        assert line in first.stdout

    second = broker("upgrade", cwd=tmp_path)
    assert second.returncode == 0
    assert second.stdout == "nothing to do: the database is at revision 0004\n"


def test_upgrade_goes_as_far_as_it_is_told_and_says_so_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    code, out, err = run(capsys, "upgrade", "0002", "--json", "--url", url)
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert (answer["ok"], answer["revision"]) == (True, "0002")
    assert [step["revision"] for step in answer["steps"]] == ["0001", "0002"]
    assert answer["steps"][0]["changes"] == {"tables made": 7}


def test_upgrade_leaves_a_stranger_alone_unless_it_is_said_to_be_shared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sql(tmp_path / "app.db", "CREATE TABLE users (id INTEGER PRIMARY KEY)")
    before, url = bytes_of(tmp_path), f"sqlite:///{tmp_path / 'app.db'}"
    code, out, err = run(capsys, "upgrade", "--url", url)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--shared" in err
    code, out, _ = run(capsys, "upgrade", "--json", "--url", url)
    assert (code, json.loads(out)["error"]["code"]) == (2, "schema_error")
    assert bytes_of(tmp_path) == before
    assert run(capsys, "upgrade", "--shared", "--url", url)[0] == 0


def test_upgrade_to_nowhere_says_that_the_database_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    empty = (0, "nothing to do: the database is empty\n", "")
    assert run(capsys, "upgrade", "base", "--url", url) == empty
    assert not (tmp_path / "new.db").exists()

    run_sql(tmp_path / "new.db", "CREATE TABLE users (id INTEGER PRIMARY KEY)")
    assert run(capsys, "upgrade", "base", "--shared", "--url", url) == empty
    code, out, _ = run(capsys, "upgrade", "base", "--shared", "--json", "--url", url)
    assert (code, json.loads(out)) == (0, {"ok": True, "revision": None, "steps": []})


@pytest.mark.parametrize("command", ["upgrade", "check", "apply"])
@pytest.mark.parametrize(
    "url",
    ["//user:secret@host/name", "postgresql://user:secret@host/name", "sqlite://:secret@/x.db"],
)
def test_a_url_that_is_refused_is_not_shown(
    command: str, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["apply", "-"] if command == "apply" else [command]
    code, out, err = run(capsys, *arguments, "--url", url)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "secret" not in err


def read_all(reader: int) -> bytes:
    """What a terminal is sent until nobody has it open; a slow process draws a bar many times."""
    found = b""
    with suppress(OSError):
        while part := os.read(reader, 4_096):
            found += part
    return found


def test_a_progress_bar_is_shown_to_a_terminal_only(tmp_path: Path) -> None:
    legacy.make(tmp_path / "broker.db")
    reader, terminal = os.openpty()
    with ThreadPoolExecutor() as threads:
        screen = threads.submit(read_all, reader)
        subprocess.run(
            [sys.executable, "-m", "broker", "upgrade"],
            cwd=tmp_path,
            stderr=terminal,
            stdout=subprocess.DEVNULL,
            env=environment(TERM="xterm"),
            check=True,
        )
        os.close(terminal)
        shown = screen.result()
    os.close(reader)
    assert b"reading events" in shown
    assert b"35/35" in shown


# ------------------------------------------------------------------------------------------ check


def test_check_finds_no_drift_in_a_new_database_and_leaves_no_trace(database: Path) -> None:
    before = bytes_of(database.parent)
    done = broker("check", cwd=database.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "no drift: the schema is what the models say\n"
    done = broker("check", "--json", cwd=database.parent)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"ok": True, "facts": []})
    assert bytes_of(database.parent) == before


def test_check_reports_each_fact_of_drift_on_a_line_and_exits_1(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sql(database, "DROP TRIGGER events_no_delete; DROP INDEX events_message_idx")
    facts = [
        "events: index events_message_idx is missing",
        "events: trigger events_no_delete is missing",
    ]
    url = f"sqlite:///{database}"
    assert run(capsys, "check", "--url", url) == (1, "\n".join(facts) + "\n", "")
    code, out, err = run(capsys, "check", "--json", "--url", url)
    assert (code, json.loads(out), err) == (1, {"ok": False, "facts": facts}, "")


def test_check_reports_an_old_database_as_drift(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    legacy.make(tmp_path / "old.db")
    before = bytes_of(tmp_path)
    code, out, _ = run(capsys, "check", "--url", f"sqlite:///{tmp_path / 'old.db'}")
    assert code == 1
    assert "mutation_receipts: table is missing" in out.splitlines()
    assert bytes_of(tmp_path) == before


def test_check_does_not_create_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'none.db'}"
    code, out, err = run(capsys, "check", "--url", url)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "there is no database" in err
    code, out, err = run(capsys, "check", "--json", "--url", url)
    assert (code, err) == (2, "")
    assert json.loads(out)["ok"] is False
    assert json.loads(out)["error"]["code"] == "database_unavailable"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nonsense", "not a database URL"),
        ("sqlite://", "in-memory"),
        ("mysql://user:secret@host/name", "not supported"),
        ("sqlite:///text.db", "not an SQLite database"),
        ("sqlite:///.", "is not a file"),
    ],
)
def test_check_says_in_one_line_why_it_cannot_look(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    url: str,
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.db").write_text("no database at all, but long enough")
    code, out, err = run(capsys, "check", "--url", url)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err
    assert "secret" not in err


def test_check_leaves_the_log_of_a_process_that_died_as_it_is(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dying = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('DROP TRIGGER events_no_update')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", dying, str(database)], check=True)
    before = bytes_of(database.parent)
    assert before["broker.db-wal"]
    code, out, _ = run(capsys, "check", "--url", f"sqlite:///{database}")
    assert (code, out) == (1, "events: trigger events_no_update is missing\n")
    after = bytes_of(database.parent)
    assert after.pop("broker.db-shm")  # the lock page of the readers
    assert after == {name: before[name] for name in after}


def test_check_does_not_roll_back_for_a_process_that_died(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    legacy.make(tmp_path / "old.db")  # not in WAL mode: a journal holds what has to be put back
    dying = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA cache_size = 1')\n"
        "connection.execute('BEGIN IMMEDIATE')\n"
        "for n in range(500):\n"
        "    connection.execute('INSERT INTO streams VALUES (?, 0, 0, 0)', (f'{n:0200}',))\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", dying, str(tmp_path / "old.db")], check=True)
    before = bytes_of(tmp_path)
    assert before["old.db-journal"]
    code, out, err = run(capsys, "check", "--url", f"sqlite:///{tmp_path / 'old.db'}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "rolled back first" in err
    assert bytes_of(tmp_path) == before


def test_check_works_beside_a_process_that_writes(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE metadata SET value = '5' WHERE key = 'logical_time_floor'")
        assert run(capsys, "check", "--url", f"sqlite:///{database}")[0] == 0


def test_check_opens_a_file_whatever_its_name_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "50% of #1.db"
    Broker.open(f"sqlite:///{path}").close()
    assert run(capsys, "check", "--url", f"sqlite:///{path}")[0] == 0
