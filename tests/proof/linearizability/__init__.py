"""Linearizability: real processes do things to one store at once, and some order explains it all."""

from __future__ import annotations

from tests.proof.report import Proof, Report
from tests.proof.task import Task


def _try_it(task: Task) -> Report:
    # Not before it is needed: the processes that do the work import this package as well.
    from tests.proof.linearizability.histories import try_histories

    return try_histories(task)


PROOF = Proof(
    name="linearizability",
    shows="Whatever several processes are told by one store, some order of it explains.",
    unit="histories",
    runs=300,
    try_it=_try_it,
)
