"""Looking at a database before it is opened: what a process that died has left is seen and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import Connection, make_url

from broker import Broker, opening, schema
from broker.cli import main
from broker.database_file import file_url
from broker.errors import ConfigurationError, DatabaseUnavailable, SchemaError
from tests.support import open_files, rows, url_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database at the newest revision, closed."""
    path = tmp_path / "store.db"
    Broker.open(url_of(path)).close()
    return path


def die_after(path: Path, *statements: str) -> None:
    """Let another process run statements and be killed, so that its log or journal stays."""
    dying = (
        "import os, signal, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for statement in sys.argv[2:]:\n"
        "    connection.execute(statement).fetchall()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", dying, str(path), *statements], check=False)
    assert done.returncode == -9


def in_the_log(path: Path, *statements: str) -> None:
    """As `die_after`, with write-ahead logging."""
    die_after(path, "PRAGMA journal_mode = WAL", *statements)
    assert path.with_name(f"{path.name}-wal").stat().st_size


def in_the_middle(path: Path) -> None:
    """Let a process die that has written half of a transaction into the file itself."""
    die_after(
        path,
        "PRAGMA journal_mode = DELETE",
        "PRAGMA cache_size = 1",
        "BEGIN IMMEDIATE",
        "PRAGMA user_version = 9",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
        " INSERT INTO streams SELECT printf('%0200d', i), 0, 0, 0, NULL FROM n",
    )
    assert path.with_name(f"{path.name}-journal").stat().st_size


def hashes(path: Path) -> dict[str, str]:
    """Of the file and what lies beside it, but for the page of the readers' locks."""
    return {
        each.name: sha256(each.read_bytes()).hexdigest()
        for each in path.parent.iterdir()
        if not each.name.endswith("-shm")
    }


def upgrade_by_command(path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["upgrade", "--url", url_of(path)])
    assert ended.value.code == 2
    raise SchemaError("refused")


REFUSING: dict[str, Callable[[Path], object]] = {
    "open": lambda path: Broker.open(url_of(path)),
    "open, migrate=False": lambda path: Broker.open(url_of(path), migrate=False),
    "open, shared": lambda path: Broker.open(url_of(path), shared=True),
    "a URI": lambda path: Broker.open(f"sqlite:///file:{path}?uri=true"),
    "a plain name with uri=true": lambda path: Broker.open(f"{url_of(path)}?uri=true"),
    "a URI with a mode": lambda path: Broker.open(f"sqlite:///file:{path}?mode=rwc&uri=true"),
    "broker upgrade": upgrade_by_command,
}


@pytest.mark.parametrize("open_it", REFUSING.values(), ids=REFUSING.keys())
def test_a_refused_database_with_a_log_keeps_every_byte(
    path: Path, open_it: Callable[[Path], object]
) -> None:
    in_the_log(path, "PRAGMA user_version = 9")
    before = hashes(path)
    assert before.keys() == {"store.db", "store.db-wal"}

    with pytest.raises(SchemaError):
        open_it(path)

    assert hashes(path) == before
    assert open_files(path) == []


def test_a_stranger_with_a_log_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    in_the_log(path, "CREATE TABLE users (id INTEGER PRIMARY KEY)")
    before = hashes(path)

    with pytest.raises(SchemaError, match="shared"):
        Broker.open(url_of(path))

    assert hashes(path) == before


def test_what_is_only_in_the_log_is_seen_and_not_lost(path: Path) -> None:
    in_the_log(path, "DROP TRIGGER events_no_delete")
    with pytest.raises(SchemaError, match="events_no_delete"):
        Broker.open(url_of(path))

    in_the_log(path, "CREATE TRIGGER events_no_delete BEFORE DELETE ON events BEGIN SELECT 1; END")
    Broker.open(url_of(path)).close()
    assert not path.with_name("store.db-wal").exists()


@pytest.mark.parametrize("migrate", [True, False])
def test_an_opening_rolls_back_for_a_process_that_died(path: Path, migrate: bool) -> None:
    in_the_middle(path)

    Broker.open(url_of(path), migrate=migrate).close()

    assert rows(path, "PRAGMA user_version") == [(3,)]
    assert rows(path, "SELECT count(*) FROM streams") == [(0,)]


def test_upgrade_rolls_back_for_a_process_that_died(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_the_middle(path)
    with pytest.raises(SystemExit) as ended:
        main(["upgrade", "--url", url_of(path)])
    assert ended.value.code == 0
    assert capsys.readouterr().out == "nothing to do: the database is at revision 0004\n"


def test_a_look_does_not_roll_back(path: Path) -> None:
    in_the_middle(path)
    before = hashes(path)

    with pytest.raises(DatabaseUnavailable, match="rolled back first"):
        opening.look(make_url(url_of(path)), schema.drift)

    assert hashes(path) == before


@pytest.mark.parametrize("name", ["plain.db", "50% of #1.db"])
def test_a_look_leaves_no_trace_and_cannot_write(path: Path, name: str) -> None:
    path = path.rename(path.with_name(name))
    before = hashes(path)

    def user_version(connection: Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())

    assert opening.look(file_url(f"sqlite:///{path}"), user_version) == 3
    assert hashes(path) == before
    assert os.listdir(path.parent) == [name]  # noqa: PTH208


def test_a_look_makes_nothing(tmp_path: Path) -> None:
    url = make_url(url_of(tmp_path / "none.db"))

    with pytest.raises(DatabaseUnavailable, match="there is no database"):
        opening.look(url, schema.drift)
    assert opening.find(url) is None

    assert list(tmp_path.iterdir()) == []


def test_finding_says_where_a_database_stands(path: Path) -> None:
    found = opening.find(make_url(url_of(path)))

    assert found is not None
    assert found.at_head


@pytest.mark.parametrize(
    "given", ["secret", "postgresql://user:secret@host/name", "sqlite://user:secret@/x.db"]
)
def test_a_url_that_is_refused_is_not_shown(given: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        file_url(given)
    assert "secret" not in caught.value.message


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("no database at all, but long enough")
    with pytest.raises(DatabaseUnavailable, match="not an SQLite database"):
        opening.find(make_url(url_of(path)))
