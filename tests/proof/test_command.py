"""The command of the proofs: what it prints and how it exits."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from tests.places import url_of
from tests.proof.__main__ import make_app
from tests.proof.report import Proof, Report
from tests.proof.task import Task


def _odd_seeds_break(task: Task) -> Report:
    """A stand-in: a run is broken if its seed is odd."""
    report = Report(left_out=["what cannot be tried here"])
    report.counts["stores made"] = 0
    report.counts["lost"] = 0
    for seed in task.seeds:
        with task.place() as place:
            report.counts["stores made"] += bool(url_of(place))
        if seed % 2:
            report.counts["lost"] += 1
            report.broken(seed, "an odd seed")
    return report


PROOF = Proof("odd", "No seed is odd.", "seeds", 2, _odd_seeds_break, backends=["sqlite"])


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(make_app([PROOF]), ["odd", *arguments])


def test_the_last_line_has_the_counts_and_holding_promises_exit_with_0() -> None:
    result = _run("--runs", "1", "--seed", "4")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "left out: what cannot be tried here",
        "odd on sqlite, seed 4",
        "odd: 1 seeds, 1 stores made, 0 lost",
    ]


def test_a_broken_promise_exits_with_1_and_says_how_to_see_it_again() -> None:
    result = _run("--runs", "1200", "--seed", "4")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert "  again: python -m tests.proof odd --runs 1 --seed 7 --backend sqlite" in lines
    assert lines[-1] == "odd: 1,200 seeds, 1,200 stores made, 600 lost"


def test_a_seed_that_was_drawn_is_shown() -> None:
    first, second = (_run("--runs", "1").stdout.splitlines()[-2] for _ in range(2))
    assert first.startswith("odd on sqlite, seed ")
    assert first != second


def test_a_backend_that_a_proof_is_not_about_is_refused() -> None:
    result = _run("--backend", "postgresql")
    assert result.exit_code == 2
    assert "odd is about sqlite alone" in result.stderr
