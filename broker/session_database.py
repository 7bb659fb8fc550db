"""What is known of a database that an application's own engine leads to: fit for use, and its clocks."""

from __future__ import annotations

import os
import weakref
from typing import Any

from sqlalchemy import Connection

from broker.clock import LogicalClock
from broker.errors import ConfigurationError
from broker.options import Options
from broker.schema import verify
from broker.sqlite.database_file import require_file_connection
from broker.sqlite.engine import refuse_autocommit_false

Clocks = weakref.WeakKeyDictionary[Options, LogicalClock]

# A dialect lives as long as its engine, and all views of an engine share it.
_databases: weakref.WeakKeyDictionary[Any, Clocks] = weakref.WeakKeyDictionary()

if hasattr(os, "register_at_fork"):  # a clock's lock may be held by a thread that the child lacks
    os.register_at_fork(after_in_child=_databases.clear)

_CHECKED = "broker_checked"


def require_fit(connection: Connection) -> None:
    """Check each connection and each database when it is first met.

    Raises ConfigurationError where the engine cannot keep the promises, SchemaError where the
    store's schema is not there.
    """
    if _CHECKED not in connection.info:
        _check_connection(connection)
        connection.info[_CHECKED] = True
    if connection.dialect not in _databases:
        verify(connection)
        _databases.setdefault(connection.dialect, weakref.WeakKeyDictionary())


def clock_for(connection: Connection, options: Options) -> LogicalClock:
    """This process's clock for a database that is fit, by these options."""
    clocks = _databases[connection.dialect]
    clock = clocks.get(options)
    return clocks.setdefault(options, options.make_clock()) if clock is None else clock


def _check_connection(connection: Connection) -> None:
    require_file_connection(connection)
    refuse_autocommit_false(connection.connection.dbapi_connection)

    # Checked before anything else is read: without it an older SQLite reads nothing at all.
    if not connection.exec_driver_sql("PRAGMA trusted_schema").scalar_one():
        raise ConfigurationError(
            "this engine has PRAGMA trusted_schema=OFF, under which SQLite cannot use the store's"
            " index on JSON: leave it ON"
        )

    # NORMAL (1) may forget acknowledged commits when the power fails; OFF and MEMORY may lose the
    # file when the process dies.
    synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
    journal_mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    if synchronous < 2 or journal_mode in {"off", "memory"}:
        raise ConfigurationError(
            f"this engine has synchronous={synchronous} and journal_mode={journal_mode}, under which"
            " acknowledged commits can be lost: call broker.configure_engine(engine) before its"
            " first connect"
        )
