"""The command of the soak by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import optional
from tests import soak
from tests.proof.report import Report
from tests.proof.soak.flatness import Limit, Verdict
from tests.proof.soak.watch import Seen
from tests.proof.task import Task

runner = CliRunner()


def _grown(task: Task, *, show: Any) -> Report:
    """A stand-in: a soak in which the memory has grown."""
    verdict = Verdict("memory of p0", "MiB", 80, 160, Limit(1.1, 8))
    show(Seen(), [verdict])
    report = Report()
    report.broken(task.seed, str(verdict))
    return report


def test_what_became_of_each_series_is_shown_and_growth_exits_with_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(soak, "soak", _grown)
    result = runner.invoke(soak.app, ["--minutes", "3", "--seed", "7"])
    assert result.exit_code == 1
    shown = result.stdout.splitlines()
    assert shown[0].startswith("memory of p0: 80 MiB at first, 160 at last, which is more than")
    assert shown[-2:] == ["soak on sqlite, seed 7", "soak: 3 minutes"]


def test_plots_need_matplotlib_and_say_so_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(optional, "version_of", lambda _package: None)
    result = runner.invoke(soak.app, ["--plots", str(tmp_path)])
    assert result.exit_code == 2
    assert "matplotlib: not installed" in result.stderr
