"""What the tests of leases ask for."""

from __future__ import annotations

from typing import Any

from broker import Broker
from broker.messages import Lease
from tests.support import (
    TTL_MS,
    credential,
)


def takeover(store: Broker, actor: str, stream: str = "stream", **others: Any) -> Lease:
    request = {"actorId": actor, "streamId": stream, "holderId": "holder", "ttlMs": TTL_MS}
    return store.takeover_lease(request | others)


def shown(lease: Lease, **others: Any) -> dict[str, Any]:
    """A request that needs the lease."""
    return {"actorId": lease.actor_id, "lease": credential(lease)} | others


def get(store: Broker, actor: str) -> Lease | None:
    return store.get_lease({"actorId": actor})


def lineage(stream: str) -> str:
    """The actor id of the row that keeps a stream's epoch when its actor has moved on."""
    return "\0runtime-broker-lineage:" + stream.encode().hex().upper()
