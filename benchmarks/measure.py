"""Timing in shuffled rounds, and the figures that come of it."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any, Literal, TypeVar

K = TypeVar("K")
T = TypeVar("T")

Unit = Literal["us", "ms", "per_s", "mib"]

#: Nanoseconds of single operations, a list for each round.
Rounds = list[list[int]]


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, what it is compared to, and the bound on their ratio.

    `name` is for machines, `title` for readers. Without `base` there is nothing to compare with,
    without `bound` no target. Rates (`per_s`) are to be at least the bound, all else at most.
    `more` are further numbers, with their units in their names.
    """

    name: str
    title: str
    unit: Unit
    measured: float
    base: float | None = None
    bound: float | None = None
    more: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return self.measured / self.base if self.base else None

    @property
    def met(self) -> bool | None:
        """Whether the target is met, None where there is none."""
        if self.bound is None or self.ratio is None:
            return None
        return self.ratio >= self.bound if self.unit == "per_s" else self.ratio <= self.bound

    def to_json(self) -> dict[str, Any]:
        form: dict[str, Any] = {
            f"measured_{self.unit}": round(self.measured, 3),
            f"base_{self.unit}": None if self.base is None else round(self.base, 3),
            "ratio": None if self.ratio is None else round(self.ratio, 4),
            "target_ratio": self.bound,
            "target_met": self.met,
        }
        return form | {name: round(value, 3) for name, value in self.more.items()}


@dataclass(frozen=True, slots=True)
class Burst:
    """Operations of several callers at once: from first to last, and each; in nanoseconds."""

    elapsed: int
    spent: list[int]


# ----------------------------------------------------------------------------------------- timing


def timed(operation: Callable[[T], object], inputs: Iterable[T]) -> list[int]:
    """The nanoseconds of each call. Inputs are ready before the first clock reading."""
    spent = []
    for each in list(inputs):
        start = perf_counter_ns()
        operation(each)
        spent.append(perf_counter_ns() - start)
    return spent


def alternate(
    contestants: Mapping[K, Callable[[], T]], rounds: int, rng: random.Random
) -> dict[K, list[T]]:
    """Let each contestant do a block of work in each round, in another order every time.

    A round that does not count goes first: it compiles statements and fills caches.
    """
    samples: dict[K, list[T]] = {name: [] for name in contestants}
    for name in contestants:
        contestants[name]()
    for _ in range(rounds):
        for name in rng.sample(list(contestants), len(contestants)):
            samples[name].append(contestants[name]())
    return samples


# ---------------------------------------------------------------------------------------- figures


def median_us(rounds: Rounds) -> float:
    """The median of all operations, in microseconds."""
    return statistics.median(_all(rounds)) / 1_000


def p99_us(rounds: Rounds) -> float:
    """The 99th percentile of all operations, in microseconds: mostly the log's checkpoints."""
    ordered = sorted(_all(rounds))
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1_000


def median_rate(bursts: Sequence[Burst]) -> float:
    """The median of the bursts' operations a second."""
    return statistics.median(len(burst.spent) / burst.elapsed * 1e9 for burst in bursts)


def percentile_us(bursts: Sequence[Burst], part: float) -> float:
    """Below which a part of all operations lies, in microseconds; 1 is the longest."""
    ordered = sorted(_all([burst.spent for burst in bursts]))
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] / 1_000


def mean_us(rounds: Rounds) -> float:
    """The median of the rounds' means, in microseconds.

    A mean counts checkpoints, which a median does not see; the median of means keeps one stall of
    the machine from deciding.
    """
    return statistics.median(statistics.fmean(each) for each in rounds) / 1_000


def _all(rounds: Rounds) -> list[int]:
    return [spent for each in rounds for spent in each]


def compare(
    name: str, title: str, measured: Rounds, base: Rounds, bound: float | None = None
) -> Figure:
    """The medians of two contestants; the 99th percentiles go along."""
    more = {"measured_p99_us": p99_us(measured), "base_p99_us": p99_us(base)}
    return Figure(name, title, "us", median_us(measured), median_us(base), bound, more)
