"""A process whose writes are recorded: it commits, alone and in groups, and opens its store again.

    python -m tests.proof.faults.recorded PATH SEED

It marks in the record each commit that was acknowledged, by its number: message `m-NUMBER`.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from broker import Broker
from broker.messages import Lease
from tests.places import url_of
from tests.support import acquire

OPENINGS = 3
ROUNDS = 8
IN_A_GROUP = 4
CHECKPOINT_PAGES = 60  # so few that the log starts anew several times


def main() -> None:
    """Work, and end as a process does that closes its store."""
    path, seed = Path(sys.argv[1]), int(sys.argv[2])
    mark = ctypes.CDLL(None).record_mark
    mark.argtypes = (ctypes.c_long,)
    event.listen(Engine, "connect", _check_point_often)
    numbers, choose = itertools.count(), random.Random(seed)
    revisions = dict.fromkeys((f"actor-{each}" for each in range(IN_A_GROUP)), 0)
    leases: dict[str, Lease] = {}
    for _ in range(OPENINGS):
        with Broker.open(url_of(path)) as store, ThreadPoolExecutor(IN_A_GROUP) as pool:
            for name in revisions:
                if name not in leases:
                    leases[name] = acquire(store, name, name, ttlMs=3_600_000)
            for _ in range(ROUNDS):
                names = choose.sample(list(revisions), choose.choice([1, 1, IN_A_GROUP]))
                todo = [
                    partial(_commit, store, leases[name], revisions, next(numbers), choose.random())
                    for name in names
                ]
                for number in pool.map(lambda work: work(), todo):
                    mark(number)


def _commit(
    store: Broker, lease: Lease, revisions: dict[str, int], number: int, large: float
) -> int:
    name = lease.actor_id
    size = 20_000 if large > 0.8 else 100
    sent: dict[str, Any] = {"eventId": f"e-{number}", "eventType": "note", "payload": "x" * size}
    request = {"messageId": f"m-{number}", "actorId": name, "lease": lease.credential}
    outbox = {"outboxId": f"o-{number}", "destination": "mail", "payload": number}
    projection = {"projectionId": f"p-{name}", "value": number}
    parts = {"events": [sent], "outbox": [outbox], "projections": [projection]}
    store.commit({**request, "streamId": name, "expectedRevision": revisions[name], **parts})
    revisions[name] += 1
    return number


def _check_point_often(dbapi_connection: Any, _record: Any) -> None:
    dbapi_connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES:d}").fetchall()


if __name__ == "__main__":
    main()
