"""All scenarios, one after another, each in rounds of its own."""

from __future__ import annotations

import platform
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import commits, fidelity, growth, leases, opening, reads
from benchmarks.measure import Figure
from benchmarks.scale import Scale

#: Is told which step begins, of how many.
Progress: TypeAlias = Callable[[str, int], None]

CHECKS: dict[str, Callable[[Path], str]] = {
    "checking the floor": fidelity.check_floor,
    "checking the filling": fidelity.check_filled,
    "checking that reads do not write": fidelity.check_reads,
}
SCENARIOS: dict[str, Callable[[Scale, Path, random.Random], Iterable[Figure]]] = {
    "commits": commits.figures,
    "commits of runtime events": commits.runtime_event_figures,
    "commits of many events": commits.bulk_figures,
    "pages": reads.figures,
    "heartbeats": leases.figures,
    "growth": growth.figures,
    "opening, migrating, checking": opening.figures,
}


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has found."""

    checks: list[str]
    figures: list[Figure]

    @property
    def missed(self) -> list[Figure]:
        """The figures that miss their target."""
        return [figure for figure in self.figures if figure.met is False]

    def to_json(self) -> dict[str, Any]:
        return {
            "versions": versions(),
            "checks": self.checks,
            "targets_met": not self.missed,
            "figures": {figure.name: figure.to_json() for figure in self.figures},
        }


def run(scale: Scale, progress: Progress = lambda _step, _steps: None, seed: int = 1) -> Report:
    """Check what must be true, then measure; raises `fidelity.Inconsistent`."""
    rng = random.Random(seed)
    steps = len(CHECKS) + len(SCENARIOS)
    checks: list[str] = []
    figures: list[Figure] = []
    for title, check in CHECKS.items():
        progress(title, steps)
        with tempfile.TemporaryDirectory(prefix="broker-benchmark-") as folder:
            checks.append(check(Path(folder)))
    for title, scenario in SCENARIOS.items():
        progress(title, steps)
        with tempfile.TemporaryDirectory(prefix="broker-benchmark-") as folder:
            figures.extend(scenario(scale, Path(folder), rng))
    return Report(checks, figures)


def versions() -> dict[str, str]:
    """What the figures were measured with."""
    packages = ("sqlalchemy", "alembic", "pydantic", "orjson")
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{package: version(package) for package in packages},
    }
