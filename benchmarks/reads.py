"""Pages of a stream, for the holder of its lease; and that no read ever writes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import floor
from benchmarks.databases import measured, raw
from benchmarks.floor import ReadyPage
from benchmarks.measure import Figure, alternate, median_us, p99_us, timed
from benchmarks.scale import Scale
from benchmarks.workload import ACTOR, STREAM, Requests

PAGE_BOUND = 0.68


def figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    """Events of 1 KiB by the page, from request dict to page, against rows and parsed payloads."""
    size = scale.page_events
    with measured(folder / "page.db") as store, raw(folder / "page-floor.db") as plain:
        store.commits(2, size)
        plain.commits(2, size)
        request, ready = page_request(store.requests, size), ready_page(plain.requests, size)
        spent = alternate(
            {
                "store": lambda: timed(
                    store.broker.read_authorized_events_page, [request] * scale.block
                ),
                "floor": lambda: timed(
                    lambda each: floor.page(plain.cursor, each), [ready] * scale.block
                ),
            },
            scale.rounds,
            rng,
        )
    rates = {name: size / median_us(rounds) * 1e6 for name, rounds in spent.items()}
    yield Figure(
        "page",
        f"events by the page of {size}",
        "per_s",
        rates["store"],
        rates["floor"],
        PAGE_BOUND,
        {"measured_p99_us": p99_us(spent["store"]), "base_p99_us": p99_us(spent["floor"])},
    )


def page_request(requests: Requests, size: int) -> dict[str, Any]:
    """A page after the first event, as a client asks for it."""
    return {
        "streamId": STREAM,
        "afterRevision": 1,
        "limit": size,
        "actorId": ACTOR,
        "lease": requests.credential,
    }


def ready_page(requests: Requests, size: int) -> ReadyPage:
    """What the store would bind for it."""
    return ReadyPage((ACTOR, STREAM), (STREAM, 1, requests.revision, size, 0))
