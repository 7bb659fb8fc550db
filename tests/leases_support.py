"""What the tests of leases ask for."""

from __future__ import annotations

from typing import Any

from broker import Broker
from broker.messages import Lease
from tests.places import Place, PostgresPlace
from tests.support import TTL_MS, credential


def takeover(store: Broker, actor: str, stream: str = "stream", **others: Any) -> Lease:
    request = {"actorId": actor, "streamId": stream, "holderId": "holder", "ttlMs": TTL_MS}
    return store.takeover_lease(request | others)


def shown(lease: Lease, **others: Any) -> dict[str, Any]:
    """A request that needs the lease."""
    return {"actorId": lease.actor_id, "lease": credential(lease)} | others


def get(store: Broker, actor: str) -> Lease | None:
    return store.get_lease({"actorId": actor})


def lineage(place: Place, stream: str) -> str:
    """The actor id of the row that keeps a stream's epoch when its actor has moved on."""
    return nobody(place, "lineage:") + stream.encode().hex().upper()


def nobody(place: Place, which: str) -> str:
    """The beginning of an id that no client can have; PostgreSQL's texts hold no NUL."""
    first = "\1" if isinstance(place, PostgresPlace) else "\0"
    return f"{first}runtime-broker-{which}"
