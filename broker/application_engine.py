"""An application's own engine, made to keep the store's promises."""

from __future__ import annotations

from sqlalchemy import Engine

from broker.database_url import is_postgresql
from broker.options import BUSY_TIMEOUT_MS
from broker.postgresql.server_url import server_url
from broker.sqlite import engine as sqlite_engine


def configure_engine(engine: Engine, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Engine:
    """Make an application's own engine keep the promises; call it once, before the first connect.

    For an `AsyncEngine` hand in its `sync_engine`.

    On SQLite every connection gets foreign keys, WAL, `synchronous=FULL` and the busy timeout, and
    every transaction is begun by an explicit BEGIN: IMMEDIATE where
    `engine.execution_options(**IMMEDIATE)` says so, else deferred. A process that forks must call
    `engine.dispose()` before it, when no session is open: SQLite's locks do not survive a fork, and
    commits of the child could be lost. (A `Broker` does so itself.)

    A missing file is made for its owner alone, with mode 0600. What values statements had is in the
    engine's errors and logs, nonces too, unless it was made with `hide_parameters=True`.

    PostgreSQL needs nothing of all this, and the engine is left as it is: how long a session waits
    for locks is its `lock_timeout`.

    Raises ConfigurationError for a file that is none of SQLite 3.37 or newer, and for a driver of
    PostgreSQL that is not psycopg 3.
    """
    if is_postgresql(engine.url):
        server_url(engine.url)
        return engine
    return sqlite_engine.configure_engine(engine, busy_timeout_ms=busy_timeout_ms)
