"""Leases: who may write to a stream, and the epoch that fences off everybody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance import RANDOM_NONCE
from tests.proof.model.plain.database import Database, Refused, Row

#: Draws a nonce.
Nonce = Callable[[], str]

_LINEAGE = "\0runtime-broker-lineage"


def is_live(lease: Row | None, now: int) -> bool:
    """Whether there is a lease that has not expired."""
    return lease is not None and lease["expiresAt"] > now


def require_live(database: Database, actor_id: str, shown: Row, now: int) -> Row:
    """The actor's live lease, of which this is the credential."""
    lease = database.lease_of(actor_id)
    if lease is None or not is_live(lease, now):
        raise Refused("stale_lease", actorId=actor_id)
    if (lease["epoch"], lease["nonce"]) != (shown["epoch"], shown["nonce"]):
        raise Refused("stale_lease", actorId=actor_id)
    return lease


def require_authority(
    database: Database, actor_id: str, shown: Row, stream_id: str, now: int
) -> None:
    """As `require_live`, for this stream."""
    lease = require_live(database, actor_id, shown, now)
    if lease["streamId"] != stream_id:
        raise Refused(
            "stale_lease",
            actorId=actor_id,
            authorizedStreamId=lease["streamId"],
            streamId=stream_id,
        )


def acquire(database: Database, request: Row, now: int, nonce: Nonce) -> Row:
    """Take the lease on a stream that nobody holds."""
    actor_id: str = request["actorId"]
    stream_id: str = request.get("streamId", actor_id)
    own, last = database.lease_of(actor_id), database.leases.get(stream_id)
    if own is not None and is_live(own, now):
        raise Refused("lease_unavailable", actorId=actor_id, expiresAt=own["expiresAt"])
    if last is not None and is_live(last, now):
        raise Refused(
            "lease_unavailable",
            actorId=actor_id,
            expiresAt=last["expiresAt"],
            streamId=stream_id,
        )
    return _grant(database, request, actor_id, stream_id, request["holderId"], now, nonce)


def takeover(database: Database, request: Row, now: int, nonce: Nonce) -> Row:
    """Take the lease on a stream whose last one has expired."""
    actor_id: str = request["actorId"]
    stream_id: str = request.get("streamId", actor_id)
    own, last = database.lease_of(actor_id), database.leases.get(stream_id)
    if last is None:
        raise Refused("lease_unavailable", actorId=actor_id, streamId=stream_id)
    if is_live(last, now):
        raise Refused(
            "lease_unavailable",
            actorId=actor_id,
            streamId=stream_id,
            expiresAt=last["expiresAt"],
        )
    if own is not None and is_live(own, now):
        raise Refused(
            "lease_unavailable",
            actorId=actor_id,
            expiresAt=own["expiresAt"],
            streamId=own["streamId"],
        )
    return _grant(database, request, actor_id, stream_id, request["holderId"], now, nonce)


def heartbeat(database: Database, request: Row, now: int, _nonce: Nonce) -> Row:
    """Let a live lease expire later, or sooner."""
    lease = require_live(database, request["actorId"], request["lease"], now)
    lease |= {"heartbeatAt": now, "expiresAt": now + request["ttlMs"]}
    return dict(lease)


def compare_and_swap(database: Database, request: Row, now: int, nonce: Nonce) -> Row:
    """Hand a live lease to the next holder."""
    lease = require_live(database, request["actorId"], request["lease"], now)
    actor_id, stream_id = lease["actorId"], lease["streamId"]
    return _grant(database, request, actor_id, stream_id, request["nextHolderId"], now, nonce)


def release(database: Database, request: Row, now: int, _nonce: Nonce) -> None:
    """Give a live lease up."""
    lease = require_live(database, request["actorId"], request["lease"], now)
    lease |= {"heartbeatAt": now, "expiresAt": now}


def _grant(
    database: Database,
    request: Row,
    actor_id: str,
    stream_id: str,
    holder_id: str,
    now: int,
    nonce: Nonce,
) -> Row:
    own, last = database.lease_of(actor_id), database.leases.get(stream_id)
    if own is not None and own["streamId"] != stream_id:
        _leave_behind(own)
    lease: dict[str, Any] = {
        "actorId": actor_id,
        "streamId": stream_id,
        "holderId": holder_id,
        "epoch": 1 if last is None else last["epoch"] + 1,
        "nonce": nonce(),
        "acquiredAt": now,
        "heartbeatAt": now,
        "expiresAt": now + request["ttlMs"],
    }
    database.leases[stream_id] = lease
    return dict(lease)


def _leave_behind(lease: Row) -> None:
    """An actor leaves a stream, whose epoch stays in a row of nobody's."""
    lease |= {
        "actorId": f"{_LINEAGE}:{lease['streamId'].encode().hex().upper()}",
        "holderId": _LINEAGE,
        "nonce": RANDOM_NONCE,
        "acquiredAt": 0,
        "heartbeatAt": 0,
        "expiresAt": 0,
    }
