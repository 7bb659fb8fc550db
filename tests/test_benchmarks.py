"""The benchmarks run, and what they print can be relied on; how fast anything is, is not asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks import fidelity, postgresql_server, suite
from benchmarks.measure import Figure
from benchmarks.scale import FULL, QUICK, TINY

FIGURES = {
    "commit",
    "commit_in_a_row",
    "commit_p99",
    "commit_mean",
    "unit_of_work",
    "replay",
    "runtime_event_commit",
    "bulk_commit",
    "page",
    "heartbeat",
    "threads",
    "threads_p99",
    "threads_own",
    "longest_wait",
    "tasks",
    "loop_lag",
    "refused_revision",
    "refused_event_id",
    "growth_time_ordered_median",
    "growth_time_ordered_mean",
    "growth_random_median",
    "growth_random_mean",
    "upgrade_time",
    "upgrade_memory",
    "opening_time",
    "opening_memory",
    "drift_time",
    "drift_memory",
}
TARGETS = {
    "commit": 1.33,
    "commit_in_a_row": 1.33,
    "bulk_commit": 0.45,
    "page": 0.68,
    "heartbeat": 1.33,
    "threads": 1.8,
    "threads_p99": 4,
    "threads_own": 3.5,
    "longest_wait": 0.05,
    "tasks": 2,
    "loop_lag": 1,
    "growth_time_ordered_median": 1.2,
    "growth_time_ordered_mean": 1.2,
    "growth_random_median": 1.2,
    "growth_random_mean": 1.5,
}
MEMORY_TARGETS = {"upgrade_memory": 1.15, "opening_memory": 1.15, "drift_memory": 1.15}


@pytest.fixture(scope="module")
def report() -> suite.Report:
    return suite.run(TINY)


def invoke(monkeypatch: pytest.MonkeyPatch, report: suite.Report, *arguments: str) -> str:
    monkeypatch.setattr(command, "_run", lambda _scale: report)
    result = CliRunner().invoke(command.app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_every_figure_is_there_and_positive(report: suite.Report) -> None:
    assert {figure.name for figure in report.figures} == FIGURES
    for figure in report.figures:
        numbers = [figure.measured, figure.base, figure.ratio]
        assert all(number is not None and number > 0 for number in numbers), figure


def test_targets_are_those_that_were_set(report: suite.Report) -> None:
    bounds = {figure.name: figure.bound for figure in report.figures if figure.bound is not None}
    assert bounds == TARGETS | MEMORY_TARGETS
    assert FULL.large == 200_000
    assert QUICK.callers == FULL.callers == 32
    assert QUICK.tasks == FULL.tasks == 200
    assert QUICK.small == FULL.small == 1_000
    assert QUICK.bulk_events == FULL.bulk_events == 1_000
    assert QUICK.processes == FULL.processes == 16
    assert FULL.stored == (10_000, 1_000_000)


def test_json_is_one_document_with_units_in_its_names(
    report: suite.Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads(invoke(monkeypatch, report, "--quick", "--json"))
    assert document["quick"] is True
    assert document["checks"] == report.checks
    assert document["figures"].keys() == FIGURES
    for name, figure in document["figures"].items():
        for key, value in figure.items():
            unit_is_named = key.endswith(("_us", "_ms", "_per_s", "_mib"))
            assert unit_is_named or key in {"ratio", "target_ratio", "target_met"}, (name, key)
            assert value is None or isinstance(value, int | float)


def test_the_table_names_every_missed_target(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Figure("commit", "one commit", "us", 300.0, 100.0, 1.5)
    page = Figure("page", "a page", "us", 2.0, 1.0)
    report = suite.Report(["something"], [slow, page], ["page: compares unlike things"])
    printed = invoke(monkeypatch, report)
    assert "missed: commit: 3.00, not ≤ 1.5" in printed
    assert "page: compares unlike things" in printed
    assert "checked: something" in printed


def test_a_rate_is_to_be_at_least_its_target() -> None:
    assert Figure("rate", "", "per_s", 40.0, 100.0, 0.35).met is True
    assert Figure("rate", "", "per_s", 30.0, 100.0, 0.35).met is False
    assert Figure("time", "", "us", 30.0, 100.0, 0.35).met is True
    assert Figure("time", "", "us", 30.0, 100.0).met is None


def test_a_floor_that_does_less_than_the_store_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.floor._PROJECTION", "SELECT ?, ?, ?, ?, ?")
    with pytest.raises(fidelity.Inconsistent, match="of a commit is not the floor's"):
        fidelity.check_floor(tmp_path)


def test_an_inconsistency_ends_the_command_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: Path) -> str:
        raise fidelity.Inconsistent("rows differ")

    checks: dict[str, Callable[[Path], str]] = {"failing": fail}
    monkeypatch.setattr(suite, "CHECKS", checks)
    result = CliRunner().invoke(command.app, ["--quick"])
    assert result.exit_code == 1
    assert "rows differ" in result.stderr


# ------------------------------------------------------------------------------------ PostgreSQL


def test_without_a_server_a_note_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(postgresql_server.URL_VARIABLE, raising=False)
    monkeypatch.setattr("tests.postgres_server.find_binaries", lambda: None)
    result = CliRunner().invoke(command.app, ["--postgresql"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "PostgreSQL: skipped; no PostgreSQL to test with: set BROKER_TEST_POSTGRES_URL" in (
        result.stdout.replace("\n", " ")
    )


def test_figures_of_postgresql_have_a_table_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    on_file = Figure("commit", "one commit", "us", 120.0, 100.0, 1.5)
    on_server = Figure("pg_commit", "one commit", "us", 2.0, 1.0)
    printed = invoke(
        monkeypatch, suite.Report([], [on_file], []).joined(suite.Report([], [on_server], []))
    )
    assert printed.index("broker against plain sqlite3") < printed.index("broker on PostgreSQL")
