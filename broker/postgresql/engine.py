"""Engines for PostgreSQL, and the one door through which its driver's exceptions become ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, Pool, create_engine, event, make_url
from sqlalchemy import exc as sa_exc
from sqlalchemy.engine import ExceptionContext

from broker.errors import (
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    OutcomeUnknown,
    SchemaError,
    said_by,
)
from broker.options import BUSY_TIMEOUT_MS
from broker.postgresql.server_url import server_url
from broker.postgresql.sql import SETTINGS
from broker.statements import Violation

if TYPE_CHECKING:
    import psycopg

_LEAST_CONNECT_TIMEOUT_S = 2

# A server that is gone without a word is noticed after half a minute, not after two hours.
_PATIENCE_WITH_THE_NETWORK = {
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

#: Options of libpq that nothing may show; the password has its own place in a URL.
_SECRETS = {"oauth_client_secret", "scram_client_key", "scram_server_key", "sslpassword"}

SERIALIZATION_FAILURE = "40001"
DEADLOCK_DETECTED = "40P01"

_BUSY = {
    SERIALIZATION_FAILURE: "it could not be put in order with others that ran beside it",
    DEADLOCK_DETECTED: "it and another waited for each other",
    "55P03": "another transaction holds what it needs, for longer than busy_timeout_ms",
    "57014": "a statement took longer than statement_timeout, or was cancelled",
    "25P03": "the session was idle in its transaction for too long",
    "53300": "the server has no connection to spare",
    "55006": "an object is in use by another session",
}
_BUSY_CLASSES = {"40"}

_UNAVAILABLE = {
    "25006": "the server is read-only; is it a standby?",
    "28000": "the server does not let this user in",
    "28P01": "the password is wrong",
    "3D000": "there is no such database: create it first (createdb)",
    "42501": "this user lacks a privilege",
    "57P01": "the server is shutting down",
    "57P02": "the server has crashed and is starting again",
    "57P03": "the server is not ready for connections",
    "57P04": "the database was dropped",
    "57P05": "the session was idle for too long",
}
_UNAVAILABLE_CLASSES = {
    "08": "the connection failed",
    "53": "the server has run out of disk, memory or connections",
    "58": "the server's system failed",
    "XX": "the server found its data damaged, or failed by itself",
}
_STALE_PLAN = {"26000", "0A000"}
_POOLED = "behind a transaction pooler the store needs Options(transaction_pooler=True)"
_WHAT_TO_DO = {
    "25P02": "an earlier statement of this transaction has failed: roll it back, run the unit again",
    "26000": _POOLED,
    "42P05": _POOLED,
}
#: Errors whose detail is about a key or a name, and not about a row.
_WHICH_KEY = {"23503", "23505", "2BP01"}
_NO_SUCH_TABLE = {"42P01", "3F000", "42703", "42883"}


def make_engine(
    url: str | URL,
    *,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    pool_size: int = 5,
    transaction_pooler: bool = False,
    poolclass: type[Pool] | None = None,
) -> Engine:
    """An engine for the store's own connections, at READ COMMITTED. Nothing is opened yet.

    `busy_timeout_ms` is how long a statement waits for another's lock, a caller for one of the
    `pool_size` connections, and about how long connecting may take. With `transaction_pooler` no
    session keeps anything: neither prepared statements nor settings. Neither errors nor logs show
    what values statements had, and neither does the engine's URL what is secret in the one given.

    Raises ConfigurationError for a URL that the driver cannot use.
    """
    url = server_url(make_url(url))
    options: dict[str, Any] = {"poolclass": poolclass}
    if poolclass is None:
        options = {
            "pool_size": pool_size,
            "max_overflow": 0,
            "pool_timeout": busy_timeout_ms / 1000,
            "pool_use_lifo": True,
        }
    arguments = _connect_arguments(url, busy_timeout_ms, transaction_pooler=transaction_pooler)
    try:
        engine = create_engine(
            url.difference_update_query(_SECRETS),
            connect_args=arguments,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
            **options,
        )
    except (ValueError, TypeError, sa_exc.ArgumentError) as error:
        raise ConfigurationError(
            f"this URL has an option that PostgreSQL's driver cannot use: {error}"
        ) from error
    event.listen(engine, "handle_error", _hide_values)
    if not transaction_pooler:
        _set_up_sessions(engine, busy_timeout_ms)
    return engine


def _connect_arguments(
    url: URL, busy_timeout_ms: int, *, transaction_pooler: bool
) -> dict[str, Any]:
    seconds = max(_LEAST_CONNECT_TIMEOUT_S, -(-busy_timeout_ms // 1000))
    wanted: dict[str, Any] = {
        "application_name": "broker",
        "client_encoding": "utf8",
        "connect_timeout": str(seconds),
        **_PATIENCE_WITH_THE_NETWORK,
    }
    arguments = {name: value for name, value in wanted.items() if name not in url.query}
    arguments |= {name: url.query[name] for name in _SECRETS & url.query.keys()}
    if transaction_pooler:
        arguments["prepare_threshold"] = None
    return arguments


def _set_up_sessions(engine: Engine, busy_timeout_ms: int) -> None:
    @event.listens_for(engine, "connect")
    def _connect(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.execute(set_up(busy_timeout_ms, is_local=False))
        dbapi_connection.commit()


def set_up(busy_timeout_ms: int, *, is_local: bool = True) -> str:
    """The statement that sets up a transaction of the store's, or else a session.

    A timeout of 0 means here, as everywhere in this package, not to wait; for the server it would
    mean for ever. An acknowledged commit has to survive: `synchronous_commit` is not left at `off`.
    """
    return SETTINGS.format(timeout_ms=max(1, busy_timeout_ms), is_local=is_local)


# ------------------------------------------------------------------------------------------ errors


def translate(error: Exception) -> Exception:
    """The error to raise, `from error`, for what the driver, a pool or SQLAlchemy raised.

    Decides by type and SQLSTATE, never by text. Whatever else it is, one of ours or what a clock of
    the application's raised, is returned as it is.
    """
    if isinstance(error, Violation) and isinstance(error.__cause__, Exception):
        return translate(error.__cause__)
    if isinstance(error, sa_exc.TimeoutError):
        return DatabaseBusy("no connection of the pool became free in time; run the unit again")
    if isinstance(error, sa_exc.DBAPIError) and isinstance(error.orig, Exception):
        return translate(error.orig)
    if isinstance(error, sa_exc.SQLAlchemyError):
        return DatabaseError(f"the session cannot be used: {said_by(error)}")
    return _translate_driver(error) if _is_drivers(error) else error


def translate_commit(error: BaseException) -> Exception:
    """As `translate`, for an error of COMMIT itself.

    An answer of the server says for certain that nothing was stored, unless it was on the point of
    ending the session. Anything else (a connection lost on the way, an interrupt) leaves the
    outcome open.
    """
    driver_error = getattr(error, "orig", None) or error
    state = sqlstate(driver_error)
    if isinstance(error, Exception) and state is not None and not state.startswith(("57P", "08")):
        return translate(error)
    return OutcomeUnknown(
        f"COMMIT failed ({_one_line(driver_error)}) and may or may not have taken effect: repeat"
        " the call with the same messageId or requestId"
    )


def sqlstate(error: BaseException) -> str | None:
    """The server's code of an error, or None for one that does not come from the server."""
    state: str | None = getattr(error, "sqlstate", None)
    return state


def is_lost(error: Exception) -> bool:
    """Whether an error of the driver means that the connection is of no use, and another may be.

    So it is too where a prepared statement is gone, or its tables have changed.
    """
    if not _is_drivers(error):
        return False
    state = sqlstate(error)
    return state is None or state.startswith(("57P", "08")) or state in _STALE_PLAN


def _is_drivers(error: BaseException) -> bool:
    try:
        import psycopg
    except ImportError:
        return False
    return isinstance(error, psycopg.Error)


def _translate_driver(error: Exception) -> Exception:
    import psycopg

    state = sqlstate(error)
    said = _one_line(error)
    if state is None:
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return DatabaseUnavailable(f"the server is out of reach: {said}")
        return DatabaseError(f"the driver failed: {said}")
    if state in _BUSY or state[:2] in _BUSY_CLASSES:
        why = _BUSY.get(state, "the transaction was rolled back")
        return DatabaseBusy(
            f"{why} ({said}); nothing was stored, run the whole unit again", sqlstate=state
        )
    if state in _UNAVAILABLE or state[:2] in _UNAVAILABLE_CLASSES:
        why = _UNAVAILABLE.get(state) or _UNAVAILABLE_CLASSES[state[:2]]
        return DatabaseUnavailable(f"the server is out of reach ({said}): {why}", sqlstate=state)
    if state in _NO_SUCH_TABLE:
        return SchemaError(
            f"the store's tables are not where they should be ({said}): is the schema right, and"
            " was the database upgraded (broker upgrade)?",
            sqlstate=state,
        )
    advice = f" ({_WHAT_TO_DO[state]})" if state in _WHAT_TO_DO else ""
    return DatabaseError(f"the database refused: {said}{advice}", sqlstate=state)


def _one_line(error: BaseException) -> str:
    return " ".join((_sentence(error) or str(error)).split()) or type(error).__name__


def hide_values(error: BaseException) -> None:
    """Leave of what an error of the driver says, and prints, the server's own sentence.

    Its detail and context may quote whole rows, nonces included. Programs find them in `error.diag`.
    """
    sentence = _sentence(error)
    if sentence:
        error.args = (sentence,)


def _sentence(error: BaseException) -> str | None:
    said = getattr(error, "diag", None)
    sentence: str | None = getattr(said, "message_primary", None)
    if sentence and sqlstate(error) in _WHICH_KEY and said is not None and said.message_detail:
        return f"{sentence}: {said.message_detail}"
    return sentence


def _hide_values(context: ExceptionContext) -> None:
    error, around = context.original_exception, context.sqlalchemy_exception
    hide_values(error)
    if around is not None and _sentence(error):
        around.args = (f"({type(error).__name__}) {_sentence(error)}",)


def driver_error(state: str | None, message: str) -> psycopg.Error:
    """The driver's own exception for an error that the server has answered."""
    import psycopg

    try:
        kind = psycopg.errors.lookup(state or "")
    except KeyError:
        kind = psycopg.DatabaseError
    error = kind(message)
    if error.sqlstate is None:
        error.sqlstate = state
    return error
