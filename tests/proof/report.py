"""What a proof is, and what it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.proof.task import Backend, Task


@dataclass(frozen=True)
class Violation:
    """A promise that was broken; `seed` repeats it, alone."""

    seed: int
    what: str


@dataclass
class Report:
    """What a proof saw.

    `counts` are shown in the order in which they were first set, by their names with spaces:
    `{"acknowledged": 12345, "lost": 0}`. Whatever must not happen has a count too, and a violation
    for each time. `left_out` says what could not be tried here, and why.
    """

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def broken(self, seed: int, what: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(seed, what))

    def add(self, other: Report) -> None:
        """Take over what another part of the same proof saw."""
        for name, count in other.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.violations += other.violations
        self.left_out += [each for each in other.left_out if each not in self.left_out]

    def line(self, name: str, unit: str, runs: int) -> str:
        """The last line of a proof: `kill: 500 kills, 12,345 acknowledged, 0 lost`."""
        counts = [f"{count:,} {what}" for what, count in self.counts.items()]
        return f"{name}: " + ", ".join([f"{runs:,} {unit}", *counts])


@dataclass(frozen=True)
class Proof:
    """A promise that can be tried.

    `shows` is what it proves, in a line; `unit` what its `runs` count; `runs` how many unless told.
    `try_it` never raises for a broken promise: it reports every one of them. `server` are settings
    that a PostgreSQL server has to have for it.
    """

    name: str
    shows: str
    unit: str
    runs: int
    try_it: Callable[[Task], Report]
    backends: Sequence[Backend] = ("sqlite", "postgresql")
    server: Mapping[str, str] = field(default_factory=dict)
