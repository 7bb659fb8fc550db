"""Whether what was measured over time stays as it is: a rule that noise does not break.

The first fifth is warming up and left out. Of the rest, the median of the last third is compared with
that of the first third, and may be larger by a factor and by an amount, both together: what a factor
allows of little is nothing, and what an amount allows of much is nothing either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

WARM_UP = 0.2
FEWEST = 9  # samples that are left after that; with fewer there is nothing to compare


@dataclass(frozen=True)
class Limit:
    """How much larger the end may be than the beginning; `is_of_falls`: smaller, for throughput."""

    factor: float
    amount: float
    is_of_falls: bool = False


@dataclass(frozen=True)
class Verdict:
    """What became of a series; `first` and `last` are the medians of its thirds, in its own unit."""

    name: str
    unit: str
    first: float
    last: float
    limit: Limit

    @property
    def is_flat(self) -> bool:
        """Whether it stayed within its limit."""
        if self.limit.is_of_falls:
            return self.last >= self.first / self.limit.factor - self.limit.amount
        return self.last <= self.first * self.limit.factor + self.limit.amount

    def __str__(self) -> str:
        falls = "less" if self.limit.is_of_falls else "more"
        told = f"{self.name}: {self.first:,.4g} {self.unit} at first, {self.last:,.4g} at last"
        if self.is_flat:
            return told
        return (
            f"{told}, which is {falls} than {self.limit.factor:g} times"
            f" and {self.limit.amount:g} {self.unit} allow"
        )


def judge(name: str, unit: str, values: Sequence[float], limit: Limit) -> Verdict | None:
    """What became of a series of evenly spaced samples; None if they are too few."""
    kept = values[int(len(values) * WARM_UP) :]
    third = len(kept) // 3
    if len(kept) < FEWEST:
        return None
    return Verdict(name, unit, median(kept[:third]), median(kept[-third:]), limit)
