"""Opening: what it makes and refuses, and that what a process that died has left is seen and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Connection, make_url

from broker import Broker, Options, opening, schema
from broker.cli import main
from broker.errors import (
    BrokerError,
    ConfigurationError,
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidRequest,
    SchemaDrift,
    SchemaError,
)
from broker.guards import GUARDS
from broker.sqlite.database_file import file_url
from tests.places import raw, rows, url_of
from tests.support import (
    ManualClock,
    acquire,
    floor,
    locked_by_a_process,
    open_files,
    open_store,
)

BUSY_AT_ONCE = Options(busy_timeout_ms=0)


# ------------------------------------------------------------------ what is made, what is refused


def test_opening_makes_the_folder_the_file_and_the_schema(path: Path, clock: ManualClock) -> None:
    nested = path.parent / "a" / "b" / "broker.db"
    with open_store(nested, clock) as store:
        assert store.journal_mode == "wal"
        assert "actor_leases" in store.table_names()
    assert rows(nested, "PRAGMA journal_mode") == [("wal",)]
    assert rows(nested, "PRAGMA user_version") == [(3,)]
    assert floor(nested) == "1000"


def test_opening_persists_the_clock_and_never_lowers_it(path: Path) -> None:
    open_store(path, ManualClock(wall_ms=5_000)).close()
    assert floor(path) == "5000"
    open_store(path, ManualClock(wall_ms=2_000)).close()
    assert floor(path) == "5000"


@pytest.mark.parametrize(
    "given", [str, make_url, lambda url: URL.create("sqlite", database=make_url(url).database)]
)
def test_a_url_may_be_text_or_an_object(path: Path, given: Callable[[str], Any]) -> None:
    with Broker.open(given(url_of(path))) as store:
        assert acquire(store).epoch == 1


def test_a_url_may_name_an_async_driver_or_be_sqlites_own_form(path: Path) -> None:
    for url in (f"sqlite+aiosqlite:///{path}", f"sqlite:///file:{path}?uri=true"):
        with Broker.open(url) as store:
            assert store.journal_mode == "wal"
    assert path.is_file()


@pytest.mark.parametrize("url", ["not a url", "postgres//me:s3cret@host/db", 5, None, ""])
def test_what_is_no_url_is_refused_without_being_shown(url: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Broker.open(url)
    assert "s3cret" not in f"{caught.value}{caught.value.details}"


@pytest.mark.parametrize("migrate", [True, False])
@pytest.mark.parametrize(
    "name",
    ["a\0b.db", "\ud800.db", "a\udfffb/c.db", "d.db?timeout=abc", "d.db?cached_statements=x"],
)
def test_a_file_or_an_option_that_sqlite_cannot_use_is_refused_and_nothing_is_made(
    path: Path, name: str, migrate: bool
) -> None:
    with pytest.raises(ConfigurationError):
        Broker.open(f"sqlite:///{path.parent}/{name}", migrate=migrate)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["x:memory:y.db", "mode=memory.db", "a:memory:b/mode=memory/c.db"])
def test_a_file_whose_name_looks_like_memory_is_a_file(
    path: Path, clock: ManualClock, name: str
) -> None:
    file = path.parent / name
    with open_store(file, clock) as store:
        lease = acquire(store)
    assert rows(file, "SELECT actor_id FROM actor_leases") == [("actor",)]
    with open_store(file, clock, busy_timeout_ms=0) as again:
        assert again.get_lease({"actorId": "actor"}) == lease


@pytest.mark.parametrize(
    "url", ["mysql://me:s3cret@host/db", "sqlite+pysqlcipher://:s3cret@/x.db", "sqlite://h/x"]
)
def test_another_kind_of_database_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Broker.open(url)
    assert "s3cret" not in f"{caught.value}{caught.value.details}"


def test_without_migration_a_missing_file_is_refused_and_not_made(path: Path) -> None:
    for url in (url_of(path), f"sqlite:///file:{path}?uri=true"):
        with pytest.raises(DatabaseUnavailable, match="there is no database"):
            Broker.open(url, migrate=False)
    missing_folder = path.parent / "nowhere" / "broker.db"
    with pytest.raises(DatabaseUnavailable):
        Broker.open(url_of(missing_folder), migrate=False)
    assert list(path.parent.iterdir()) == []


def test_without_migration_a_current_database_opens(path: Path, clock: ManualClock) -> None:
    open_store(path, clock).close()
    with Broker.open(url_of(path), migrate=False, options=clock.options()) as store:
        assert acquire(store).epoch == 1


@pytest.mark.parametrize("revision", ["0001", "0002", "0003"])
def test_without_migration_an_old_revision_is_refused_and_left_as_it_is(
    path: Path, revision: str
) -> None:
    schema.upgrade(url_of(path), revision)
    before = path.read_bytes()
    with pytest.raises(SchemaError, match=f"revision {revision}, not 0004") as caught:
        Broker.open(url_of(path), migrate=False)
    assert not isinstance(caught.value, SchemaDrift)
    assert path.read_bytes() == before
    with Broker.open(url_of(path)) as store:
        assert acquire(store).epoch == 1


DRIFTS = {
    "index": "DROP INDEX outbox_pending_idx",
    "another index": "CREATE INDEX extra ON events (trace_id)",
    "trigger": "CREATE TRIGGER extra AFTER INSERT ON streams BEGIN SELECT 1; END",
}


@pytest.mark.parametrize("statement", DRIFTS.values(), ids=DRIFTS)
def test_without_migration_a_drifted_schema_is_refused_with_the_facts(
    path: Path, clock: ManualClock, statement: str
) -> None:
    open_store(path, clock).close()
    with raw(path) as connection:
        connection.execute(statement)
    before = path.read_bytes()
    with pytest.raises(SchemaDrift, match="differs from the models") as caught:
        Broker.open(url_of(path), migrate=False)
    assert len(caught.value.details["facts"]) == 1
    assert path.read_bytes() == before
    assert open_files(path) == []


def test_a_database_with_an_applications_tables_is_refused_unless_it_is_shared(
    path: Path, clock: ManualClock
) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
        connection.execute("INSERT INTO orders VALUES ('mine')")
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="shared"):
        Broker.open(url_of(path))
    assert path.read_bytes() == before

    with Broker.open(url_of(path), shared=True, options=clock.options()) as store:
        assert acquire(store).epoch == 1
        assert "orders" in store.table_names()
    assert rows(path, "SELECT id FROM orders") == [("mine",)]
    with Broker.open(url_of(path), migrate=False) as store:
        assert store.journal_mode == "wal"


NO_FILES: dict[str, Callable[[Path], None]] = {
    "folder": Path.mkdir,
    "pipe": lambda path: os.mkfifo(path),
    "device": lambda path: path.symlink_to(os.devnull),
    "link to itself": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("suffix", ["", "-journal", "-wal", "-shm"])
@pytest.mark.parametrize("make", NO_FILES.values(), ids=NO_FILES)
def test_what_is_no_file_is_refused_and_not_waited_for(
    path: Path, make: Callable[[Path], None], suffix: str
) -> None:
    if suffix:
        schema.upgrade(url_of(path))
    make(path.with_name(path.name + suffix))
    openings: list[Callable[[], object]] = [
        lambda: Broker.open(url_of(path)),
        lambda: Broker.open(url_of(path), migrate=False),
        lambda: schema.upgrade(url_of(path)),
        lambda: schema.current(url_of(path)),
    ]
    for try_it in openings:
        with pytest.raises(DatabaseUnavailable, match=r"is not a file|out of reach"):
            try_it()


def not_a_database(path: Path) -> None:
    path.write_text("this is a letter, not a database\n" * 100)


def newer_version(path: Path) -> None:
    schema.upgrade(url_of(path))
    with raw(path) as connection:
        connection.execute("PRAGMA user_version=4")


def bad_floor(path: Path) -> None:
    schema.upgrade(url_of(path))
    with raw(path) as connection:
        connection.execute("INSERT OR REPLACE INTO metadata VALUES ('logical_time_floor', '01')")


def without_metadata(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE streams (x)")


@pytest.mark.parametrize("migrate", [True, False])
@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (not_a_database, DatabaseUnavailable),
        (newer_version, SchemaError),
        (bad_floor, SchemaError),
        (without_metadata, SchemaError),
    ],
)
def test_an_opening_that_fails_leaves_every_byte_and_no_open_file(
    path: Path, spoil: Callable[[Path], None], kind: type[BrokerError], migrate: bool
) -> None:
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(kind):
        Broker.open(url_of(path), migrate=migrate)
    assert path.read_bytes() == before
    assert open_files(path) == []
    assert list(path.parent.iterdir()) == [path]


def test_an_opening_that_cannot_persist_the_clock_leaves_no_open_file(
    path: Path, clock: ManualClock
) -> None:
    open_store(path, clock).close()
    with locked_by_a_process(path):
        with pytest.raises(DatabaseBusy):
            Broker.open(url_of(path), options=BUSY_AT_ONCE)
        assert open_files(path) == []
    with Broker.open(url_of(path), options=BUSY_AT_ONCE) as store:
        assert acquire(store).epoch == 1


def test_a_clock_that_answers_nonsense_fails_the_opening_and_leaves_no_open_file(
    path: Path,
) -> None:
    with pytest.raises(InvalidRequest, match="wall clock"):
        Broker.open(url_of(path), options=Options(wall_clock=lambda: -1))
    assert open_files(path) == []


def test_a_folder_that_cannot_be_made_is_said(path: Path) -> None:
    path.write_text("a file where a folder is wanted")
    with pytest.raises(DatabaseUnavailable, match="folder"):
        Broker.open(url_of(path / "broker.db"))


def test_a_folder_instead_of_a_file_is_said(path: Path) -> None:
    path.mkdir()
    with pytest.raises(DatabaseUnavailable, match="is not a file"):
        Broker.open(url_of(path))
    with pytest.raises(DatabaseUnavailable, match="is not a file"):
        Broker.open(url_of(path), migrate=False)


@pytest.mark.parametrize(
    "option",
    [
        {"receipt_capacity": 0},
        {"receipt_capacity": 65_537},
        {"receipt_capacity": True},
        {"busy_timeout_ms": -1},
        {"busy_timeout_ms": 1.5},
        {"page_max_bytes": 0},
        {"read_model_max_bytes": "1"},
    ],
)
def test_an_option_out_of_range_is_refused_by_name(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        Options(**option)


# -------------------------------------------------------------------------- what others have left


@pytest.fixture
def closed(tmp_path: Path) -> Path:
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
    closed: Path, open_it: Callable[[Path], object]
) -> None:
    in_the_log(closed, "PRAGMA user_version = 9")
    before = hashes(closed)
    assert before.keys() == {"store.db", "store.db-wal"}

    with pytest.raises(SchemaError):
        open_it(closed)

    assert hashes(closed) == before
    assert open_files(closed) == []


def test_a_stranger_with_a_log_keeps_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    in_the_log(path, "CREATE TABLE users (id INTEGER PRIMARY KEY)")
    before = hashes(path)

    with pytest.raises(SchemaError, match="shared"):
        Broker.open(url_of(path))

    assert hashes(path) == before


def test_what_is_only_in_the_log_is_seen_and_not_lost(closed: Path) -> None:
    in_the_log(closed, "DROP TRIGGER events_no_delete")
    with pytest.raises(SchemaError, match="events_no_delete"):
        Broker.open(url_of(closed))

    (guard,) = [each for each in GUARDS if each.name == "events_no_delete"]
    in_the_log(closed, *guard.ddl("sqlite"))
    Broker.open(url_of(closed)).close()
    assert not closed.with_name("store.db-wal").exists()


@pytest.mark.parametrize("migrate", [True, False])
def test_an_opening_rolls_back_for_a_process_that_died(closed: Path, migrate: bool) -> None:
    in_the_middle(closed)

    Broker.open(url_of(closed), migrate=migrate).close()

    assert rows(closed, "PRAGMA user_version") == [(3,)]
    assert rows(closed, "SELECT count(*) FROM streams") == [(0,)]


def test_upgrade_rolls_back_for_a_process_that_died(
    closed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_the_middle(closed)
    with pytest.raises(SystemExit) as ended:
        main(["upgrade", "--url", url_of(closed)])
    assert ended.value.code == 0
    assert capsys.readouterr().out == "nothing to do: the database is at revision 0004\n"


def test_a_look_does_not_roll_back(closed: Path) -> None:
    in_the_middle(closed)
    before = hashes(closed)

    with pytest.raises(DatabaseUnavailable, match="rolled back first"):
        opening.look(make_url(url_of(closed)), schema.drift)

    assert hashes(closed) == before


@pytest.mark.parametrize("name", ["plain.db", "50% of #1.db"])
def test_a_look_leaves_no_trace_and_cannot_write(closed: Path, name: str) -> None:
    closed = closed.rename(closed.with_name(name))
    before = hashes(closed)

    def user_version(connection: Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())

    assert opening.look(file_url(f"sqlite:///{closed}"), user_version) == 3
    assert hashes(closed) == before
    assert os.listdir(closed.parent) == [name]  # noqa: PTH208


def test_a_look_makes_nothing(tmp_path: Path) -> None:
    url = make_url(url_of(tmp_path / "none.db"))

    with pytest.raises(DatabaseUnavailable, match="there is no database"):
        opening.look(url, schema.drift)
    assert opening.find(url) is None

    assert list(tmp_path.iterdir()) == []


def test_finding_says_where_a_database_stands(closed: Path) -> None:
    found = opening.find(make_url(url_of(closed)))

    assert found is not None
    assert found.at_head


@pytest.mark.parametrize(
    "given", ["secret", "mysql://user:secret@host/name", "sqlite://user:secret@/x.db"]
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
