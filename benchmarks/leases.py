"""Heartbeats: a lease kept alive, with a receipt that makes the call safe to repeat."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from benchmarks import floor
from benchmarks.databases import Measured, Raw, measured, raw
from benchmarks.floor import ReadyHeartbeat
from benchmarks.measure import Figure, alternate, compare, timed
from benchmarks.scale import Scale
from benchmarks.workload import ACTOR, FOREVER_MS
from broker.messages import HeartbeatLeaseRequest, Lease
from broker.options import Options
from broker.receipts import Receipt

Request = dict[str, Any]

BOUND = 1.33


def figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    """A heartbeat with a receipt, from request dict to lease, against the floor."""
    with measured(folder / "heartbeat.db") as store, raw(folder / "heartbeat-floor.db") as plain:
        contestants = {"store": _by_store(store, scale), "floor": _by_floor(plain, scale)}
        spent = alternate(contestants, scale.rounds, rng)
    yield compare("heartbeat", "heartbeat with receipt", spent["store"], spent["floor"], BOUND)


def _by_store(store: Measured, scale: Scale) -> Callable[[], list[int]]:
    request, ids = heartbeat_request(store.requests.lease), _request_ids()

    def block() -> list[int]:
        return timed(
            lambda request_id: store.broker.heartbeat_lease(request, request_id=request_id),
            itertools.islice(ids, scale.block),
        )

    return block


def _by_floor(plain: Raw, scale: Scale) -> Callable[[], list[int]]:
    lease, ids = plain.requests.lease, _request_ids()

    def parameters() -> ReadyHeartbeat:
        plain.now += 1
        kept = replace(lease, heartbeat_at=plain.now, expires_at=plain.now + FOREVER_MS)
        return ready_heartbeat(next(ids), kept)

    def block() -> list[int]:
        return timed(
            lambda each: floor.heartbeat(plain.cursor, each),
            [parameters() for _ in range(scale.block)],
        )

    return block


def _request_ids() -> Iterator[str]:
    return (f"request-{number:08d}" for number in itertools.count())


def heartbeat_request(lease: Lease) -> Request:
    """The request, as a client sends it."""
    credential = {"epoch": lease.epoch, "nonce": lease.nonce}
    return {"actorId": ACTOR, "lease": credential, "ttlMs": FOREVER_MS}


def ready_heartbeat(request_id: str, kept: Lease) -> ReadyHeartbeat:
    """What the store would bind for a heartbeat that leaves the lease as `kept`."""
    request = HeartbeatLeaseRequest.model_validate(heartbeat_request(kept))
    receipt = Receipt.of("lease.heartbeat", request_id, request)
    now, response = kept.heartbeat_at, orjson.dumps(kept.to_json()).decode()
    return ReadyHeartbeat(
        standing=(request_id, ACTOR, None),
        clock=(str(now),),
        lease=(now, kept.expires_at, ACTOR),
        room=(Options().receipt_capacity - 1, 0),
        record=(request_id, receipt.method, receipt.params_hash, response, now),
    )
