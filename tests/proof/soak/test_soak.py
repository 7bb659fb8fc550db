"""The short form: a few seconds of load, and losses on purpose that must be noticed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.proof.soak import watch
from tests.proof.soak.flatness import Verdict
from tests.proof.soak.verdicts import soak
from tests.proof.soak.watch import Plan, Seen
from tests.proof.task import Task

SHORT = Plan(
    (("commits", "contending", "tasks", "delivery", "pages", "journal", "visits", "units"),),
    mortal=("commits", "journal"),
    window_s=0.12,
    lifetime=8,
    pause_s=0.03,
)
LOSING = Plan((("commits",),), window_s=0.1, pause_s=0.03)
WINDOWS = 13


def test_a_short_load_is_judged(task_of: Callable[[int, int], Task]) -> None:
    shown: list[tuple[Seen, Sequence[Verdict]]] = []
    report = soak(
        task_of(1, 1), windows=WINDOWS, plan=SHORT, show=lambda *given: shown.append(given)
    )
    ((seen, verdicts),) = shown
    counts = report.counts
    assert (counts["failures"], counts["stale writes"]) == (0, 0)
    assert min(counts[name] for name in ("commits", "leases", "deliveries", "restarts")) > 0
    assert {"commits a second", "latency of commits, p99", "bytes per event"} < set(seen.series)
    # What else is flat in two seconds, on a machine that others use too, is not the store's affair.
    memory = [each for each in verdicts if each.name == "memory of p0"]
    assert [each.is_flat for each in memory] == [True]
    assert [each.what for each in report.violations] == [
        str(each) for each in verdicts if not each.is_flat
    ]


def test_losses_are_noticed(path: Path) -> None:
    report = soak(Task(1, 1, path.parent), windows=WINDOWS, plan=LOSING, is_leaking=True)
    grown = [each.what.split(": ")[0] for each in report.violations if " of p" in each.what]
    assert grown == ["memory of p0", "files of p0", "threads of p0"]


def test_a_process_that_ends_is_a_violation(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = """print('{"failed": "commits: it could not go on"}'); raise SystemExit(3)"""
    monkeypatch.setattr(watch, "command", lambda *_: [sys.executable, "-c", dying])
    report = soak(Task(1, 1, path.parent), windows=WINDOWS, plan=LOSING)
    assert {"commits: it could not go on", "p0 ended with 3"} <= {
        each.what for each in report.violations
    }
    assert report.counts["failures"] == len(report.violations) - 1  # too short to judge anything
