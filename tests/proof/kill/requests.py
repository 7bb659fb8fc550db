"""What is asked for, in wire form: ids name who asked, so that every row can be traced to its ask."""

from __future__ import annotations

import random
from typing import Any

LONG_MS = 60_000

_PAYLOADS = (None, True, 7, 2**60, "żółw \u2028", ["a", {"b": []}], {"z": 1, "a": "x" * 300})


def acquire(actor: str, stream: str, ttl_ms: int = LONG_MS) -> dict[str, Any]:
    """To acquire, or to take over."""
    return {"actorId": actor, "streamId": stream, "holderId": f"of-{actor}", "ttlMs": ttl_ms}


def shown(lease: dict[str, Any], **others: Any) -> dict[str, Any]:
    """What needs a lease: to keep it or to release it."""
    credential = {"epoch": lease["epoch"], "nonce": lease["nonce"]}
    return {"actorId": lease["actorId"], "lease": credential} | others


def swap(lease: dict[str, Any], ttl_ms: int = LONG_MS) -> dict[str, Any]:
    """To hand a lease on."""
    return shown(lease, ttlMs=ttl_ms, nextHolderId=f"after-{lease['epoch']}")


def commit(
    lease: dict[str, Any],
    message: str,
    revision: int,
    chance: random.Random,
    *,
    events: int | None = None,
    bytes_each: int = 0,
) -> dict[str, Any]:
    """A commit with some of everything that it may have."""
    count = chance.choice((0, 1, 1, 1, 2, 5)) if events is None else events
    ids = [f"{message}/e{number}" for number in range(count)]
    pad = {"pad": "x" * bytes_each} if bytes_each else None
    request = shown(lease) | {
        "messageId": message,
        "streamId": lease["streamId"],
        "expectedRevision": revision,
        "events": [
            {"eventId": each, "eventType": "note", "payload": pad or chance.choice(_PAYLOADS)}
            for each in ids
        ],
    }
    if chance.random() < 0.6:
        request["outbox"] = [
            _outbox(message, at, ids, chance) for at in range(chance.choice((1, 2)))
        ]
    if chance.random() < 0.5:
        projection = f"{lease['streamId']}/p{chance.randrange(2)}"
        request["projections"] = [{"projectionId": projection, "value": {"by": message}}]
    if chance.random() < 0.5:
        request["inboxResult"] = chance.choice(_PAYLOADS)
    return request


def _outbox(message: str, at: int, ids: list[str], chance: random.Random) -> dict[str, Any]:
    about = {"eventId": chance.choice(ids)} if ids and chance.random() < 0.5 else {}
    return {"outboxId": f"{message}/o{at}", "destination": "mail", "payload": {"n": at}, **about}
