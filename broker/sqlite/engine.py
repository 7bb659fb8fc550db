"""Engines that keep the promises: how connections are set up, how transactions begin and end.

Everything that is particular to SQLite's driver is here: pragmas, BEGIN, WAL, and the one door
through which a driver's exception becomes one of ours.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    ExceptionContext,
    Pool,
    create_engine,
    event,
    make_url,
)
from sqlalchemy import exc as sa_exc

from broker.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    OutcomeUnknown,
    said_by,
)
from broker.options import BUSY_TIMEOUT_MS
from broker.sqlite.database_file import require_file
from broker.sqlite.file_modes import make_file, warn_of_others

_BEGIN_MODE = "broker_begin"
_READS_ONLY = "broker_reads_only"
BEGINS = "broker_begins"  # in the info of a connection whose every transaction starts with BEGIN

#: Execution options of a connection or engine whose transactions write.
IMMEDIATE: dict[str, Any] = {_BEGIN_MODE: "IMMEDIATE"}

_IN_USE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_OUT_OF_REACH = {
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; does its folder exist, and may this user write there?",
    sqlite3.SQLITE_CORRUPT: "the file is damaged, or its schema is one that SQLite cannot use here",
    sqlite3.SQLITE_FULL: "the disk is full, or the database has reached its largest size",
    sqlite3.SQLITE_IOERR: "reading or writing the file failed",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
    sqlite3.SQLITE_PERM: "access to the file was denied",
    sqlite3.SQLITE_PROTOCOL: "another process holds the locks of the write-ahead log",
    sqlite3.SQLITE_READONLY: (
        "it is read-only; the write-ahead log needs a folder in which this user may create the"
        " -wal and -shm files"
    ),
}


def make_engine(
    url: str | URL,
    *,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    wal: bool = True,
    foreign_keys: bool = True,
    poolclass: type[Pool] | None = None,
    before_connect: Callable[[], None] = lambda: None,
) -> Engine:
    """An engine for the store's own connections.

    Transactions begin deferred, or with `IMMEDIATE` at once as writers. `busy_timeout_ms` is how
    long a statement waits for another's lock; `wal=False` leaves the journal mode of the file
    alone; `foreign_keys=False` is for table rebuilds; `before_connect` is called before each
    connection is made, and may raise what is to come of it. Nothing is opened yet. A file that is missing
    then is made for its owner alone. Neither errors nor logs show what values statements had.

    Raises ConfigurationError for a database that is not a file of SQLite 3.37 or newer.
    """
    url = make_url(url)
    require_file(url)
    arguments: dict[str, Any] = {"timeout": busy_timeout_ms / 1000}
    if hasattr(sqlite3, "LEGACY_TRANSACTION_CONTROL"):  # 3.12; stated, for its default may change
        arguments["autocommit"] = sqlite3.LEGACY_TRANSACTION_CONTROL
    options: dict[str, Any] = {"poolclass": poolclass}
    if poolclass is None:
        options = {"pool_timeout": busy_timeout_ms / 1000}
    try:
        engine = create_engine(url, connect_args=arguments, hide_parameters=True, **options)
    except (ValueError, TypeError, sa_exc.ArgumentError) as error:
        raise ConfigurationError(
            f"this URL has an option that SQLite cannot use: {error}"
        ) from error
    event.listen(engine, "do_connect", lambda *_: before_connect())
    _install(engine, busy_timeout_ms, wal=wal, foreign_keys=foreign_keys)
    return engine


def configure_engine(engine: Engine, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Engine:
    """See `broker.configure_engine`."""
    require_file(engine.url)
    _install(engine, busy_timeout_ms, wal=True, foreign_keys=True)
    return engine


def in_transaction(dbapi_connection: Any) -> bool:
    """Whether SQLite itself is in a transaction, whatever SQLAlchemy believes."""
    driver = getattr(dbapi_connection, "driver_connection", dbapi_connection)
    return bool(driver.in_transaction)


def _install(engine: Engine, busy_timeout_ms: int, *, wal: bool, foreign_keys: bool) -> None:
    @event.listens_for(engine, "do_connect")
    def _before_connect(*_: Any) -> None:
        make_file(engine.url)
        warn_of_others(engine.url)

    @event.listens_for(engine, "connect")
    def _connect(dbapi_connection: Any, record: Any) -> None:
        refuse_autocommit_false(dbapi_connection)
        dbapi_connection.isolation_level = None  # the driver begins nothing: `_begin` does
        record.info[BEGINS] = True
        _set_pragmas(dbapi_connection, busy_timeout_ms, foreign_keys=foreign_keys)
        if wal:
            enable_wal(dbapi_connection, busy_timeout_ms)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        mode = connection.get_execution_options().get(_BEGIN_MODE, "DEFERRED")
        if mode not in {"DEFERRED", "IMMEDIATE"}:
            raise ConfigurationError(f"{_BEGIN_MODE} must be DEFERRED or IMMEDIATE, not {mode!r}")
        dbapi_connection: Any = connection.connection.dbapi_connection
        if in_transaction(dbapi_connection):  # a refused COMMIT has left it, see `_reset`
            dbapi_connection.rollback()
        connection.exec_driver_sql(f"BEGIN {mode}")  # so that its errors are SQLAlchemy's

    @event.listens_for(engine, "reset")
    def _reset(dbapi_connection: Any, _record: Any, state: Any) -> None:
        # A COMMIT that SQLite refuses leaves its transaction open, with the write lock held, while
        # SQLAlchemy counts it as ended: without this the lock would go back into the pool.
        if state.asyncio_safe and not state.terminate_only and in_transaction(dbapi_connection):
            dbapi_connection.rollback()

    event.listen(engine, "handle_error", _look_at_error)
    event.listen(engine, "checkin", _let_go_of_a_reader)


def _look_at_error(context: ExceptionContext) -> None:
    if context.connection is not None:
        look_whether_read_only(context.connection, context.original_exception)


def look_whether_read_only(connection: Connection, error: BaseException) -> None:
    """Let go of a connection when it is given back, if this error has shown that it can only read.

    SQLite opens a file that it may not write for reading, without a word, and were that only for a
    moment: in a pool such a connection would turn down writes for ever.
    """
    if primary_code(error) == sqlite3.SQLITE_READONLY:
        connection.info[_READS_ONLY] = True


def _let_go_of_a_reader(_dbapi_connection: Any, record: Any) -> None:
    # Not before its transaction was rolled back: a traceback may keep a cursor, and that its locks.
    if record.info.get(_READS_ONLY):
        record.invalidate()


def refuse_autocommit_false(dbapi_connection: Any) -> None:
    """Raise ConfigurationError for the driver mode that excludes BEGIN IMMEDIATE.

    With `autocommit=False` (Python 3.12) the driver holds a transaction open at all times, so that
    foreign keys cannot be switched on and a writer cannot take the lock before it reads.
    """
    driver = getattr(dbapi_connection, "driver_connection", dbapi_connection)
    if getattr(driver, "autocommit", None) is False:
        raise ConfigurationError(
            'connect_args={"autocommit": False} excludes BEGIN IMMEDIATE and foreign keys:'
            " leave it out"
        )


def _set_pragmas(dbapi_connection: Any, busy_timeout_ms: int, *, foreign_keys: bool) -> None:
    wanted = {
        "busy_timeout": busy_timeout_ms,
        "synchronous": 2,
        "foreign_keys": int(foreign_keys),
        "trusted_schema": 1,  # without it an older SQLite refuses the index on JSON, and all else
    }
    cursor = dbapi_connection.cursor()
    try:
        for pragma, value in wanted.items():
            cursor.execute(f"PRAGMA {pragma}={value:d}")
            cursor.fetchall()
        for pragma, value in wanted.items():
            cursor.execute(f"PRAGMA {pragma}")
            answer = cursor.fetchone()[0]
            if answer != value:
                raise ConfigurationError(
                    f"PRAGMA {pragma} is {answer} and cannot be set to {value}"
                )
    finally:
        cursor.close()


def enable_wal(dbapi_connection: Any, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
    """Switch the database to write-ahead logging, and make sure that it was switched.

    Changing the mode does not always wait for the busy handler, so it is tried again for
    `busy_timeout_ms`. Raises ConfigurationError where SQLite keeps another mode.
    """
    deadline = time.monotonic() + busy_timeout_ms / 1000
    cursor = dbapi_connection.cursor()
    try:
        while True:
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
                mode = cursor.fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                if primary_code(error) not in _IN_USE or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
    finally:
        cursor.close()
    if mode != "wal":
        raise ConfigurationError(
            f"the database stays in journal mode {mode!r}: write-ahead logging needs a local file"
            " system with shared memory and a writable folder"
        )


def primary_code(error: BaseException) -> int | None:
    """SQLite's primary result code, or None for an error that does not come from SQLite."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def translate(error: Exception) -> Exception:
    """The error to raise, `from error`, for what a driver, a pool or SQLAlchemy raised.

    Decides by type and result code, never by text. Whatever else it is, one of ours or what a
    clock of the application's raised, is returned as it is.
    """
    if not isinstance(error, sqlite3.Error | sa_exc.SQLAlchemyError):
        return error
    if isinstance(error, sa_exc.TimeoutError):
        return DatabaseBusy("no connection of the pool became free in time; run the unit again")
    if isinstance(error, sa_exc.MissingGreenlet):
        return ConfigurationError(
            "an async session must be used through run_sync:"
            " await session.run_sync(lambda s: UnitOfWork(s)…)"
        )
    if isinstance(error, sa_exc.UnboundExecutionError):
        return ConfigurationError(
            "the session has no engine for the store's tables: bind it to one, or bind"
            " broker.models.Base by binds={Base: engine}"
        )
    if isinstance(error, sa_exc.DBAPIError) and isinstance(error.orig, Exception):
        return translate(error.orig)
    if isinstance(error, sa_exc.SQLAlchemyError):
        return DatabaseError(f"the session cannot be used: {said_by(error)}")

    code = primary_code(error)
    if code in _IN_USE:
        return DatabaseBusy(_why_busy(error))
    if code in _OUT_OF_REACH:
        return DatabaseUnavailable(f"the database is out of reach ({error}): {_OUT_OF_REACH[code]}")
    return DatabaseError(f"the database refused: {error}")


def _why_busy(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return (
            "the transaction has read a state that is no longer the latest, so it can never write:"
            " roll back and run the whole unit again, beginning with BEGIN IMMEDIATE"
        )
    return "another connection holds the database; nothing was stored, run the whole unit again"


def translate_commit(error: BaseException) -> Exception:
    """As `translate`, for an error of COMMIT itself.

    SQLite says for certain that nothing was stored, except when the write or flush of the log
    failed: then the next recovery decides. Anything that is not SQLite's own error (a connection
    lost on the way, an interrupt) leaves the outcome open too.
    """
    driver_error = getattr(error, "orig", None) or error
    code = primary_code(driver_error)
    if not isinstance(error, Exception) or code is None or code == sqlite3.SQLITE_IOERR:
        return OutcomeUnknown(
            f"COMMIT failed ({driver_error}) and may or may not have taken effect: repeat the call"
            " with the same messageId or requestId"
        )
    return translate(error)
