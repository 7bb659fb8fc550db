"""Proof that faults of disks, locks, clocks and servers break no promise, and are told as they are."""

from __future__ import annotations

from tests.proof.faults.shimmed import meet_faults
from tests.proof.report import Proof, Report
from tests.proof.task import Task


def try_it(task: Task) -> Report:
    """Meet a fault for each seed."""
    return meet_faults(task.seeds, task.folder)


PROOF = Proof(
    name="faults",
    shows="That faults of disks, locks, clocks and servers break no promise.",
    unit="faults",
    runs=4_000,
    try_it=try_it,
    backends=["sqlite"],
)
