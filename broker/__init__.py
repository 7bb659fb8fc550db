"""Leases with fencing epochs, and fenced, idempotent commits, on your own SQLAlchemy database.

Three doors: `Broker.open(url)` for a process that just wants the store, or `AsyncBroker` on an event
loop; `UnitOfWork(session)` for an application service with ORM models of its own; and the `broker`
and `alembic` commands.
"""

from broker.application_engine import configure_engine
from broker.async_store import AsyncBroker
from broker.messages import ABSENT, json_schemas
from broker.options import Options
from broker.sqlite.engine import IMMEDIATE
from broker.store import Broker
from broker.unit_of_work import UnitOfWork

__version__ = "0.1.0"

__all__ = [
    "ABSENT",
    "IMMEDIATE",
    "AsyncBroker",
    "Broker",
    "Options",
    "UnitOfWork",
    "configure_engine",
    "json_schemas",
]
