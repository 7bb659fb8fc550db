"""What is known of a database that an application's own engine leads to: fit for use, and its clocks."""

from __future__ import annotations

import os
import weakref
from typing import Any

from sqlalchemy import Connection

from broker.clock import LogicalClock
from broker.joined import backend_of
from broker.options import Options
from broker.schema import verify
from broker.schema.intruders import refuse_intruders

Clocks = weakref.WeakKeyDictionary[Options, LogicalClock]

# By schema. A dialect lives as long as its engine, and all views of an engine share it.
_databases: weakref.WeakKeyDictionary[Any, dict[str | None, Clocks]] = weakref.WeakKeyDictionary()

if hasattr(os, "register_at_fork"):  # a clock's lock may be held by a thread that the child lacks
    os.register_at_fork(after_in_child=_databases.clear)

_CHECKED = "broker_checked"


def require_fit(connection: Connection, options: Options) -> None:
    """Check each connection and each database when it is first met.

    Raises ConfigurationError where the engine cannot keep the promises, SchemaError where the
    store's schema is not there, or not by itself.
    """
    if _CHECKED not in connection.info:
        backend_of(connection).check_connection(connection)
        connection.info[_CHECKED] = True
    backend = backend_of(connection)
    schema = backend.schema_of(connection, options)
    known = _databases.setdefault(connection.dialect, {})
    if schema not in known:
        with backend.looking_at(connection, schema):
            verify(connection)
            refuse_intruders(connection)
        known.setdefault(schema, weakref.WeakKeyDictionary())


def clock_for(connection: Connection, options: Options) -> LogicalClock:
    """This process's clock for a database that is fit, by these options."""
    backend = backend_of(connection)
    clocks = _databases[connection.dialect][backend.schema_of(connection, options)]
    clock = clocks.get(options)
    return clocks.setdefault(options, backend.make_clock(options)) if clock is None else clock
