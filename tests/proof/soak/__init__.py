"""Soak: everything at once and at full speed for long, and nothing grows that should not."""

from __future__ import annotations

from tests.proof.report import Proof, Report
from tests.proof.task import Task


def _try_it(task: Task) -> Report:
    # Not before it is needed: the processes that do the work import this package as well.
    from tests.proof.soak.verdicts import soak

    return soak(task)


PROOF = Proof(
    name="soak",
    shows="Under mixed load memory, files, the log and latencies stay as they are.",
    unit="minutes",
    runs=30,
    try_it=_try_it,
    # The server of the tests neither cleans up nor waits for its disk.
    server={
        "autovacuum": "on",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
    },
)
