"""What the proof does: histories, and a search of the protocol."""

from __future__ import annotations

from collections.abc import Iterable

from tests.proof.model.histories.machine import difference
from tests.proof.model.protocol.rules import Protocol
from tests.proof.model.protocol.scenes import LARGE, SMALL
from tests.proof.model.protocol.search import Scene, search
from tests.proof.report import Report
from tests.proof.task import Task

#: From so many histories on, the large scenes of the protocol are searched too: some minutes more.
THOROUGH_RUNS = 1_000

COUNTS = (
    "operations",
    "refusals",
    "repetitions",
    "recovered",
    "units of work",
    "shared transactions",
    "restarts",
    "traces accepted by the protocol",
    "protocol states",
    "protocol transitions",
    "differences",
)


def try_model(task: Task) -> Report:
    """Make the histories, and search the protocol."""
    report = Report()
    report.counts.update(dict.fromkeys(COUNTS, 0))
    report.add(try_histories(task))
    scenes = [*SMALL, *(LARGE if task.runs >= THOROUGH_RUNS else ())]
    report.add(try_protocol(scenes, seed=task.seed))
    return report


def try_histories(task: Task, *, shrink: bool = True) -> Report:
    """A history for each seed, done by the store and by the plain one."""
    report = Report()
    for seed in task.seeds:
        found = difference(task, seed, report.counts, shrink=shrink)
        if found is not None:
            report.counts["differences"] += 1
            report.broken(seed, found)
    if task.backend == "postgresql":
        report.left_out.append("the server's own clock: histories are on clocks that they move")
        report.left_out.append("writes of tasks at once: on a server they have no order")
    return report


def try_protocol(
    scenes: Iterable[Scene], protocol: Protocol | None = None, seed: int = 0
) -> Report:
    """Every interleaving of some scenes; the seed has no part in that."""
    report = Report()
    for scene in scenes:
        found = search(protocol or Protocol(), scene)
        report.counts["protocol states"] += found.states
        report.counts["protocol transitions"] += found.transitions
        if found.violation:
            report.counts["differences"] += 1
            report.broken(seed, "\n    ".join([f"protocol: {found.violation}", *found.way]))
    return report
