"""Faults that are not of a system call, each in short, and the whole proof in a few runs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from broker.clock import LogicalClock
from tests.proof.faults import OF_FILES, ON_BOTH, PROOF, clocks, surroundings
from tests.proof.faults.scene import Scene, play
from tests.proof.task import Task

TaskOf = Callable[[int, int], Task]


@pytest.mark.parametrize("name", ON_BOTH)
def test_no_clock_and_no_sleep_breaks_a_promise(task_of: TaskOf, name: str) -> None:
    report = play(task_of(1, 3), 3, name, ON_BOTH[name])
    assert report.violations == []
    assert report.counts["faults met"] > 0


@pytest.mark.parametrize("name", OF_FILES)
def test_nothing_around_a_file_breaks_a_promise(tmp_path: pathlib.Path, name: str) -> None:
    report = play(Task(1, 3, tmp_path), 3, name, OF_FILES[name])
    assert report.violations == []
    assert report.counts["faults met"] > 0


def test_the_proof_meets_faults_of_system_calls_and_others(tmp_path: pathlib.Path) -> None:
    report = PROOF.try_it(Task(5, 19 + 20 * 5, tmp_path))
    assert report.violations == []
    assert report.left_out
    assert report.counts["faults met"] > 1


# ----------------------------------------------------------------------------- it can be otherwise


def test_a_clock_that_forgets_is_found_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(self: LogicalClock, floor: int, server: int | None = None) -> int:
        return int(self.sources[0]())

    monkeypatch.setattr(LogicalClock, "read", forget)
    report = play(Task(1, 3, tmp_path), 3, "clocks", clocks.jumping_clocks)
    assert report.counts["time ran back"] + report.counts["leases cut off"] > 0
    assert report.violations


def test_a_clock_that_stands_still_is_found_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.clock.FROZEN_AFTER_MS", 2**52)
    report = play(Task(1, 3, tmp_path), 3, "clocks", clocks.after_a_jump)
    assert report.counts["leases without end"] > 0
    assert report.violations


def test_a_store_that_goes_on_in_a_deleted_file_is_found_out(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.sqlite.same_file.SameFile.require", lambda _self: None)
    report = play(Task(1, 3, tmp_path), 3, "deleted", surroundings.deleted)
    assert report.counts["not told"] > 0
    assert report.violations


def test_an_error_of_the_scene_itself_is_a_violation(tmp_path: pathlib.Path) -> None:
    def fail(_scene: Scene) -> None:
        raise ZeroDivisionError

    report = play(Task(1, 3, tmp_path), 3, "failing", fail)
    assert [each.seed for each in report.violations] == [3]
