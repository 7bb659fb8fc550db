"""Every input that a caller can give, made up to break the store: no error but its own, no hang."""

from __future__ import annotations

from pathlib import Path

from tests.places import Place
from tests.proof.fuzz.bench import bench_on
from tests.proof.fuzz.coverage_guided import KINDS, is_here, try_coverage_guided
from tests.proof.fuzz.growth import try_memory, try_time
from tests.proof.fuzz.inputs import INPUTS, try_inputs
from tests.proof.report import Proof, Report
from tests.proof.task import Task
from tests.proof.watchdog import watched

_EXAMPLES = 40  # of each kind in a round
_RUNS = 500  # of atheris for each kind, in each round
_SECONDS = 300.0  # for a round, which takes a few
_SECONDS_OF_GROWTH = 1_200.0


def fuzz_round(seed: int, place: Place, folder: Path) -> Report:
    """Some inputs of each kind, on a store of their own."""
    report = Report()
    with bench_on(place, folder) as bench:
        for kind in INPUTS:
            report.add(try_inputs(kind, bench, seed, _EXAMPLES))
    return report


def growth_round(seed: int, place: Place, folder: Path) -> Report:
    """Inputs of some size, for what they take."""
    with bench_on(place, folder) as bench:
        report = try_memory(bench, seed)
        report.add(try_time(bench, seed))
    return report


def try_it(task: Task) -> Report:
    """Rounds in a process that is watched, then the growth, then inputs made up by atheris."""
    report = Report()
    report.counts.update(dict.fromkeys(("inputs", "accepted", "refused", "misjudged", "hung"), 0))
    with watched(fuzz_round, _SECONDS) as rounds:
        for seed in task.seeds:
            with task.place() as place:
                report.add(rounds.round(seed, place, _folder(task)))
    with watched(growth_round, _SECONDS_OF_GROWTH) as growth, task.place() as place:
        report.add(growth.round(task.seed, place, _folder(task)))
    if is_here():
        for kind in KINDS:
            with task.place() as place:
                runs = _RUNS * task.runs
                report.add(try_coverage_guided(kind, task.seed, runs, place, _folder(task)))
    else:
        report.left_out.append("coverage-guided inputs: atheris (group `fuzz`) is not installed")
    return report


def _folder(task: Task) -> Path:
    folder = task.folder / "inputs"
    folder.mkdir(exist_ok=True)
    return folder


PROOF = Proof(
    name="fuzz",
    shows="No input raises anything but the store's own errors, or takes time or memory out of "
    "proportion; an accepted JSON value comes back byte for byte.",
    unit="rounds",
    runs=100,
    try_it=try_it,
)
