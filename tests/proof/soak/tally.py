"""Counting what many threads do, and how long it takes, a window of time after another."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from broker.errors import DatabaseBusy, LeaseUnavailable, OutcomeUnknown, Refusal

_STEP = 1.05  # from one bucket of a histogram to the next: a latency is known to 5 %
_NAMES = tuple(f"{number}" for number in range(600))


class Tally:
    """What was done in this window: counts by name, and histograms of latencies by kind.

    Safe from any thread. It does not grow with what is done.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start_afresh()

    def count(self, name: str, by: int = 1) -> None:
        """Count something."""
        with self._lock:
            self._counts[name] += by

    @contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Time a block, unless it raises; refusals that have to be expected are counted, and passed."""
        start = time.perf_counter()
        try:
            yield
        except (Refusal, DatabaseBusy, OutcomeUnknown) as error:
            self.count("leases held" if isinstance(error, LeaseUnavailable) else error.code)
            raise
        bucket = _NAMES[bucket_of((time.perf_counter() - start) * 1e3)]
        with self._lock:
            self._counts[kind] += 1
            self._latencies.setdefault(kind, Counter())[bucket] += 1

    def take(self) -> dict[str, Any]:
        """What the window that ends now has: `counts`, and `latencies` by kind and bucket."""
        with self._lock:
            taken = {"counts": self._counts, "latencies": self._latencies}
            self._start_afresh()
        return taken

    def _start_afresh(self) -> None:
        self._counts: Counter[str] = Counter()
        self._latencies: dict[str, Counter[str]] = {}


def bucket_of(milliseconds: float) -> int:
    """The bucket of a latency, from a microsecond up."""
    return max(0, min(len(_NAMES) - 1, math.ceil(math.log(max(milliseconds, 1e-3) * 1e3, _STEP))))


def percentile(histogram: Mapping[str, int], part: float) -> float | None:
    """The milliseconds that this part of all stays below, None of nothing."""
    total = sum(histogram.values())
    below = 0
    for bucket in sorted(histogram, key=int):
        below += histogram[bucket]
        if below >= part * total:
            return float(_STEP ** int(bucket) / 1e3)
    return None


def merged(histograms: Iterable[Mapping[str, int]]) -> Counter[str]:
    """One histogram of several."""
    together: Counter[str] = Counter()
    for each in histograms:
        together.update(each)
    return together
