"""Engines: what every connection is set up with, how transactions begin and end, what errors become."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, text
from sqlalchemy import exc as sa_exc
from sqlalchemy.ext.asyncio import create_async_engine

from broker import IMMEDIATE, Broker, configure_engine
from broker.errors import (
    BrokerError,
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    OutcomeUnknown,
    StaleLease,
)
from broker.sqlite.engine import (
    enable_wal,
    make_engine,
    primary_code,
    refuse_autocommit_false,
    translate,
    translate_commit,
)
from tests.places import raw, rows, url_of
from tests.support import finish, is_write_locked, start_python, wait_for, write_locked

PRAGMAS = {"foreign_keys": 1, "synchronous": 2, "journal_mode": "wal", "busy_timeout": 5_000}


def pragmas(connection: Connection) -> dict[str, Any]:
    return {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS}


def application_engine(path: Path, **options: Any) -> Engine:
    return configure_engine(create_engine(url_of(path), **options))


@pytest.fixture(params=[make_engine, lambda url: configure_engine(create_engine(url))])
def engine(request: pytest.FixtureRequest, path: Path) -> Engine:
    """An engine of either kind, on a file with an empty table `t`."""
    made = cast(Engine, request.param(url_of(path)))
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (x UNIQUE)")
    return made


# ------------------------------------------------------------------------------------ connections


def test_every_connection_has_the_pragmas_and_they_were_read_back(engine: Engine) -> None:
    connections = [engine.connect() for _ in range(4)]
    drivers = {id(each.connection.dbapi_connection) for each in connections}
    answers = [pragmas(each) for each in connections]
    for each in connections:
        each.close()

    assert len(drivers) == 4
    assert answers == [PRAGMAS] * 4


def test_a_connection_made_anew_has_them_too(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.invalidate()
    with engine.connect() as connection:
        assert pragmas(connection) == PRAGMAS


@pytest.mark.parametrize("configure", [True, False])
def test_the_busy_timeout_is_what_was_asked_for(path: Path, configure: bool) -> None:
    engine = (
        configure_engine(create_engine(url_of(path)), busy_timeout_ms=1_234)
        if configure
        else make_engine(url_of(path), busy_timeout_ms=1_234)
    )
    with engine.connect() as connection:
        assert pragmas(connection)["busy_timeout"] == 1_234


def test_an_engine_without_a_pool_sets_them_every_time(path: Path) -> None:
    engine = application_engine(path, poolclass=NullPool)
    for _ in range(2):
        with engine.connect() as connection:
            assert pragmas(connection) == PRAGMAS


def test_an_async_engine_is_configured_through_its_sync_engine(path: Path) -> None:
    async def look() -> tuple[dict[str, Any], bool]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        configure_engine(engine.sync_engine, busy_timeout_ms=5_000)
        writing = engine.execution_options(**IMMEDIATE)
        async with writing.connect() as connection:
            found = await connection.run_sync(pragmas)
            held = is_write_locked(path)
        await engine.dispose()
        return found, held

    assert asyncio.run(look()) == (PRAGMAS, True)


def test_configuring_twice_begins_once(path: Path) -> None:
    engine = configure_engine(application_engine(path))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (x)")
    assert rows(path, "SELECT name FROM sqlite_schema") == [("t",)]


def test_the_journal_mode_of_a_file_can_be_left_alone(path: Path) -> None:
    with make_engine(url_of(path), wal=False).connect() as connection:
        assert pragmas(connection)["journal_mode"] == "delete"


def test_foreign_keys_can_be_left_off_for_table_rebuilds(path: Path) -> None:
    with make_engine(url_of(path), foreign_keys=False).connect() as connection:
        assert pragmas(connection)["foreign_keys"] == 0


def test_a_pragma_that_does_not_take_is_an_error(path: Path) -> None:
    class Stubborn(sqlite3.Connection):
        """A driver whose connection is in a transaction, where foreign_keys cannot be set."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.set_authorizer(self._ignore_foreign_keys)

        def _ignore_foreign_keys(
            self, _action: int, name: str | None, value: str | None, *_: Any
        ) -> int:
            ignored = name == "foreign_keys" and value is not None
            return sqlite3.SQLITE_IGNORE if ignored else sqlite3.SQLITE_OK

    engine = application_engine(path, connect_args={"factory": Stubborn})
    with pytest.raises(ConfigurationError, match="foreign_keys is 0 and cannot be set to 1"):
        engine.connect()


@pytest.mark.parametrize(
    ("journal_mode", "expected"), [("wal", "wal"), ("delete", "wal"), ("persist", "wal")]
)
def test_wal_is_switched_on_and_stays_in_the_file(
    path: Path, journal_mode: str, expected: str
) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute(f"PRAGMA journal_mode={journal_mode}")
        enable_wal(connection)
    assert rows(path, "PRAGMA journal_mode") == [(expected,)]


def test_a_database_that_keeps_its_journal_mode_is_refused() -> None:
    with (
        sqlite3.connect(":memory:") as connection,
        pytest.raises(ConfigurationError, match="'memory'"),
    ):
        enable_wal(connection)
    connection.close()


OPEN_IN_WAL = """
import sys
from broker.sqlite.engine import make_engine
print("ready", flush=True)
sys.stdin.readline()
for number in range(5):
    engine = make_engine(sys.argv[1] + str(number))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    engine.dispose()
"""


def test_processes_that_race_for_wal_all_get_it(path: Path) -> None:
    processes = [start_python(OPEN_IN_WAL, url_of(path)) for _ in range(4)]
    for process in processes:
        wait_for(process, "ready")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        finish(process)
    assert rows(Path(f"{path}0"), "PRAGMA journal_mode") == [("wal",)]


# ----------------------------------------------------------------------------------- transactions


def test_a_reader_has_one_snapshot_and_lets_writers_in(engine: Engine, path: Path) -> None:
    with engine.connect() as reader:
        before = reader.execute(text("SELECT count(*) FROM t")).scalar()
        with engine.execution_options(**IMMEDIATE).begin() as writer:
            writer.execute(text("INSERT INTO t VALUES (1)"))
        after = reader.execute(text("SELECT count(*) FROM t")).scalar()
    assert (before, after) == (0, 0)
    assert rows(path, "SELECT x FROM t") == [(1,)]


def test_an_immediate_transaction_holds_the_lock_before_its_first_statement(
    engine: Engine, path: Path
) -> None:
    with engine.execution_options(**IMMEDIATE).connect() as connection:
        connection.begin()
        assert is_write_locked(path)


def test_the_mode_does_not_stick_to_a_pooled_connection(engine: Engine, path: Path) -> None:
    with engine.execution_options(**IMMEDIATE).begin():
        pass
    with engine.connect() as reader, write_locked(path):
        assert reader.execute(text("SELECT count(*) FROM t")).scalar() == 0


def test_an_unknown_mode_is_refused(engine: Engine) -> None:
    odd = engine.execution_options(broker_begin="EXCLUSIVE")
    with pytest.raises(ConfigurationError, match="EXCLUSIVE"):
        odd.connect().begin()


@pytest.mark.parametrize("busy_timeout_ms", [0, 300])
def test_a_writer_waits_as_long_as_it_was_told_and_no_longer(
    path: Path, busy_timeout_ms: int
) -> None:
    engine = make_engine(url_of(path), busy_timeout_ms=busy_timeout_ms)
    engine.connect().close()
    with write_locked(path), engine.execution_options(**IMMEDIATE).connect() as connection:
        started = time.monotonic()
        with pytest.raises(sa_exc.OperationalError, match="locked"):
            connection.begin()
    waited_ms = (time.monotonic() - started) * 1_000
    assert busy_timeout_ms * 0.8 <= waited_ms < busy_timeout_ms + 1_000


def refused_commit(connection: Connection) -> None:
    """A COMMIT that SQLite refuses: a deferred foreign key is violated."""
    connection.exec_driver_sql("INSERT INTO child VALUES (1)")
    with pytest.raises(sa_exc.IntegrityError):
        connection.commit()


@pytest.mark.parametrize("options", [{}, IMMEDIATE], ids=["deferred", "immediate"])
def test_a_refused_commit_leaves_no_lock_behind_in_the_pool(
    engine: Engine, path: Path, options: dict[str, Any]
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE child (x REFERENCES t (x) DEFERRABLE INITIALLY DEFERRED)"
        )
    with engine.execution_options(**options).connect() as connection:
        refused_commit(connection)

    with raw(path) as other:
        other.execute("PRAGMA busy_timeout=0")
        other.execute("INSERT INTO t VALUES (2)")
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (3)")
    assert rows(path, "SELECT x FROM t ORDER BY x") == [(2,), (3,)]
    assert rows(path, "SELECT * FROM child") == []


def test_the_connection_whose_commit_was_refused_can_begin_again(
    engine: Engine, path: Path
) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE child (x REFERENCES t (x) DEFERRABLE INITIALLY DEFERRED)"
        )
    with engine.connect() as connection:
        refused_commit(connection)
        connection.rollback()
        connection.exec_driver_sql("INSERT INTO t VALUES (4)")
        connection.commit()
    assert rows(path, "SELECT x FROM t") == [(4,)]
    assert rows(path, "SELECT * FROM child") == []


# -------------------------------------------------------------------------- what cannot be served


@pytest.mark.parametrize(
    "open_it",
    [make_engine, lambda url: configure_engine(create_engine(url, poolclass=NullPool))],
)
@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file::memory:?cache=shared&uri=true",
        "sqlite:///file:shared?mode=memory&cache=shared&uri=true",
        "sqlite:///file:shared?cache=shared&mode=rwc&mode=memory&uri=true",
    ],
)
def test_a_database_in_memory_is_refused(open_it: Callable[[str], Engine], url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"in-memory .*sqlite:///FILE"):
        open_it(url)


def test_another_backend_is_refused_without_showing_the_password() -> None:
    with pytest.raises(ConfigurationError, match="postgresql is not supported") as caught:
        make_engine("postgresql://me:s3cret@host/db")
    assert "s3cret" not in f"{caught.value}{caught.value.details}"


def test_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigurationError, match="neither host, user nor password") as caught:
        make_engine("sqlite+pysqlcipher://:s3cret@/file.db")
    assert "s3cret" not in f"{caught.value}{caught.value.details}"


def test_an_sqlite_without_strict_tables_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(ConfigurationError, match=r"STRICT tables: 3\.37"):
        make_engine(url_of(path))


class WithAutocommitFalse(sqlite3.Connection):
    """What a connection of Python 3.12 says of itself when it was made with autocommit=False."""

    autocommit = False


def test_a_driver_that_says_autocommit_false_is_refused(path: Path) -> None:
    engine = application_engine(path, connect_args={"factory": WithAutocommitFalse})
    with pytest.raises(ConfigurationError, match='"autocommit": False'):
        engine.connect()


def test_a_driver_behind_an_adapter_is_looked_at() -> None:
    wrapped = SimpleNamespace(driver_connection=SimpleNamespace(autocommit=False))
    with pytest.raises(ConfigurationError):
        refuse_autocommit_false(wrapped)
    refuse_autocommit_false(SimpleNamespace(autocommit=-1))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="connect() has autocommit from Python 3.12")
def test_autocommit_false_as_python_312_has_it_is_refused(path: Path) -> None:
    engine = application_engine(path, connect_args={"autocommit": False})
    with pytest.raises(ConfigurationError, match='"autocommit": False'):
        engine.connect()


# ----------------------------------------------------------------------------------------- errors


def driver_error(code: int | None, text: str = "as the driver says") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    if code is not None:
        error.sqlite_errorcode = code
    return error


def wrapped(error: BaseException) -> sa_exc.DBAPIError:
    return sa_exc.OperationalError("SELECT 1", {}, error)


UNREACHABLE = [
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY_DIRECTORY,
]


@pytest.mark.parametrize("wrap", [lambda error: error, wrapped], ids=["bare", "wrapped"])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, DatabaseUnavailable) for code in UNREACHABLE),
        (sqlite3.SQLITE_BUSY, DatabaseBusy),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, DatabaseBusy),
        (sqlite3.SQLITE_LOCKED_SHAREDCACHE, DatabaseBusy),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, DatabaseError),
        (sqlite3.SQLITE_INTERRUPT, DatabaseError),
        (None, DatabaseError),
    ],
)
def test_a_drivers_error_becomes_ours_by_its_code(
    code: int | None, kind: type[BrokerError], wrap: Callable[[BaseException], Exception]
) -> None:
    translated = translate(wrap(driver_error(code)))
    assert type(translated) is kind
    assert "as the driver says" in str(translated) or kind is DatabaseBusy


def test_the_text_of_an_error_decides_nothing() -> None:
    assert type(translate(driver_error(None, "database is locked"))) is DatabaseError


def test_a_stale_snapshot_is_told_from_a_busy_database() -> None:
    stale = translate(driver_error(sqlite3.SQLITE_BUSY_SNAPSHOT))
    busy = translate(driver_error(sqlite3.SQLITE_BUSY))
    assert "BEGIN IMMEDIATE" in str(stale)
    assert "another connection holds" in str(busy)


@pytest.mark.parametrize("error", [StaleLease("no", actorId="a"), ValueError("of a clock")])
def test_what_no_database_raised_stays_what_it_is(error: Exception) -> None:
    assert translate(error) is error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sa_exc.TimeoutError("pool"), DatabaseBusy),
        (sa_exc.MissingGreenlet("greenlet"), ConfigurationError),
        (wrapped(sa_exc.MissingGreenlet("greenlet")), ConfigurationError),
        (sa_exc.InvalidRequestError("no"), DatabaseError),
        (sqlite3.ProgrammingError("closed"), DatabaseError),
    ],
)
def test_what_sqlalchemy_raises_becomes_ours_by_its_type(
    error: Exception, kind: type[BrokerError]
) -> None:
    assert type(translate(error)) is kind


@pytest.mark.parametrize("wrap", [lambda error: error, wrapped], ids=["bare", "wrapped"])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (driver_error(sqlite3.SQLITE_IOERR_WRITE), OutcomeUnknown),
        (ConnectionResetError("on the way"), OutcomeUnknown),
        (driver_error(None), OutcomeUnknown),
        (driver_error(sqlite3.SQLITE_FULL), DatabaseUnavailable),
        (driver_error(sqlite3.SQLITE_BUSY), DatabaseBusy),
        (driver_error(sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY), DatabaseError),
    ],
)
def test_only_a_commit_that_sqlite_does_not_answer_for_has_an_unknown_outcome(
    error: Exception, kind: type[BrokerError], wrap: Callable[[BaseException], Exception]
) -> None:
    ours = translate_commit(wrap(error))
    assert type(ours) is kind
    assert "\n" not in str(ours)  # SQLAlchemy adds a line of its own


def test_the_primary_code_is_that_of_the_extended_one() -> None:
    assert primary_code(driver_error(sqlite3.SQLITE_BUSY_SNAPSHOT)) == sqlite3.SQLITE_BUSY
    assert primary_code(ValueError()) is None


def with_a_write(engine: Engine) -> None:
    with engine.begin():
        pass


def test_a_busy_database_is_an_error_of_sqlalchemys_to_the_application(
    path: Path, store: Broker
) -> None:
    engine = configure_engine(create_engine(url_of(path)), busy_timeout_ms=10)
    writing = engine.execution_options(**IMMEDIATE)
    with write_locked(path), pytest.raises(sa_exc.OperationalError, match="locked"):
        with_a_write(writing)
    assert cast(Any, engine.pool).checkedout() == 0


def test_threads_that_open_connections_together_all_get_the_pragmas(path: Path) -> None:
    engine, barrier = application_engine(path), threading.Barrier(6)
    found: list[dict[str, Any]] = []

    def look() -> None:
        barrier.wait()
        with engine.connect() as connection:
            found.append(pragmas(connection))
            barrier.wait()

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [PRAGMAS] * 6
