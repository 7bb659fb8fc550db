"""The inside of a store on SQLite, for the tests that look there."""

from __future__ import annotations

from broker import AsyncBroker, Broker
from broker.sqlite.async_writes import QueuedWrites
from broker.sqlite.connections import SQLiteConnections


def connections_of(store: Broker) -> SQLiteConnections:
    """The connections of a store on SQLite."""
    assert isinstance(store._connections, SQLiteConnections)
    return store._connections


def writes_of(store: AsyncBroker) -> QueuedWrites:
    """The writes of a store on SQLite."""
    assert isinstance(store._writes, QueuedWrites)
    return store._writes
