"""All scenarios, one after another, each in rounds of its own."""

from __future__ import annotations

import platform
import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import (
    callers,
    commits,
    curves,
    fidelity,
    growth,
    leases,
    opening,
    peers,
    postgresql_server,
    reads,
)
from benchmarks.measure import Figure
from benchmarks.scale import Scale

#: Is told which step begins, of how many.
Progress: TypeAlias = Callable[[str, int], None]

Scenario: TypeAlias = Callable[[Scale, Path, random.Random], Iterable[Figure]]

CHECKS: dict[str, Callable[[Path], str]] = {
    "checking the floor": fidelity.check_floor,
    "checking the filling": fidelity.check_filled,
    "checking that reads do not write": fidelity.check_reads,
}
SCENARIOS: dict[str, Scenario] = {
    "commits": commits.figures,
    "commits of runtime events": commits.runtime_event_figures,
    "commits of many events": commits.bulk_figures,
    "pages": reads.figures,
    "heartbeats": leases.figures,
    "many callers": callers.figures,
    "many callers, some refused": callers.refusal_figures,
    "growth": growth.figures,
    "opening, migrating, checking": opening.figures,
}
PEERS: dict[str, Scenario] = {"peers": peers.figures}


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has found; `notes` say what to know of figures that compare unlike things."""

    checks: list[str]
    figures: list[Figure]
    notes: list[str]

    @property
    def missed(self) -> list[Figure]:
        """The figures that miss their target."""
        return [figure for figure in self.figures if figure.met is False]

    def joined(self, other: Report) -> Report:
        """Both in one."""
        return Report(
            self.checks + other.checks, self.figures + other.figures, self.notes + other.notes
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "versions": versions(),
            "checks": self.checks,
            "notes": self.notes,
            "targets_met": not self.missed,
            "figures": {figure.name: figure.to_json() for figure in self.figures},
        }


def run(
    scale: Scale,
    progress: Progress = lambda _step, _steps: None,
    *,
    with_peers: bool = False,
    seed: int = 1,
) -> Report:
    """Check what must be true, then measure; raises `fidelity.Inconsistent`."""
    rng = random.Random(seed)
    scenarios = SCENARIOS | (PEERS if with_peers else {})
    steps = len(CHECKS) + len(scenarios)
    checks: list[str] = []
    figures: list[Figure] = []
    for title, check in CHECKS.items():
        progress(title, steps)
        with _folder() as folder:
            checks.append(check(folder))
    for title, scenario in scenarios.items():
        progress(title, steps)
        with _folder() as folder:
            figures.extend(scenario(scale, folder, rng))
    return Report(checks, figures, peers.notes() if with_peers else [])


def run_on_postgresql(
    scale: Scale, progress: Progress = lambda _step, _steps: None, *, seed: int = 1
) -> Report:
    """Measure the store on PostgreSQL; without a server, a note that says how to get one."""
    try:
        with postgresql_server.server() as server:
            return _run_on_server(scale, progress, server, random.Random(seed))
    except postgresql_server.NoServer as fault:
        return Report([], [], [f"PostgreSQL: skipped; {fault}"])


def _run_on_server(scale: Scale, progress: Progress, server: str, rng: random.Random) -> Report:
    from benchmarks import postgresql  # needs the driver, which the store's users may not have

    figures: list[Figure] = []
    for title, scenario in postgresql.SCENARIOS.items():
        progress(title, len(postgresql.SCENARIOS))
        postgresql_server.checkpoint(server)
        figures.extend(scenario(scale, server, rng))
    version = postgresql_server.version(server)
    return Report([], figures, [f"PostgreSQL: {version}, flushing; all on one machine"])


def draw(scale: Scale, results: Path, seed: int = 1) -> list[Path]:
    """Measure what the plots show and draw them; raises `optional.NotInstalled`."""
    with _folder() as folder:
        return curves.draw(scale, results, folder, random.Random(seed))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="broker-benchmark-") as folder:
        yield Path(folder)


def versions() -> dict[str, str]:
    """What the figures were measured with."""
    packages = ("sqlalchemy", "alembic", "pydantic", "orjson")
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{package: version(package) for package in packages},
    }
