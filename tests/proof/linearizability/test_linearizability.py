"""The short form: histories of real processes, and builds of the store that must be caught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proof.edited import Edit
from tests.proof.linearizability import PROOF, histories
from tests.proof.linearizability.crew import Records
from tests.proof.linearizability.histories import COUNTS, try_histories
from tests.proof.linearizability.search import TooLarge
from tests.proof.linearizability.state import State
from tests.proof.report import Report
from tests.proof.task import Task

MOST = 100  # histories in which a broken build has to be found out

# What is broken, and how; each is found out by what somebody is told.
BROKEN = {
    "a credential is not looked at": Edit(
        "broker.leases",
        """        and epoch == credential.epoch
        and hmac.compare_digest(nonce.encode(), credential.nonce.encode())
""",
        "",
    ),
    "a lease that has expired is as good as another": Edit(
        "broker.leases", "        expires_at > now\n        and epoch", "        epoch"
    ),
    "a lease that somebody holds is given to others": Edit(
        "broker.leases", "return lease is not None and lease.expires_at > now", "return False"
    ),
    "an epoch comes twice": Edit(
        "broker.leases", "found.of_stream.epoch + 1", "found.of_stream.epoch"
    ),
    "the expected revision is not looked at": Edit(
        "broker.journal", "if actual != commit.expected_revision:", "if False:"
    ),
    "the inbox is not looked at": Edit(
        "broker.journal", "if request_hash is not None:", "if False:"
    ),
    "receipts are not looked at": Edit("broker.leases", "if row[2] is not None:", "if False:"),
}


@pytest.mark.parametrize("seed", [1, 1_000])
def test_histories_of_several_processes_are_linearizable(
    task_of: Callable[[int, int], Task], seed: int
) -> None:
    report = PROOF.try_it(task_of(16, seed))
    assert report.violations == []
    assert report.counts["operations"] > 250
    assert report.counts["processes killed"] > 0
    assert list(report.counts) == list(COUNTS)


def test_a_history_that_is_too_large_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: object) -> bool:
        raise TooLarge

    monkeypatch.setattr(histories, "is_linearizable", give_up)
    report = Report()
    histories.judge(Records(), 1, report, State())
    assert report.counts == {"too large": 1}
    assert report.violations == []


def test_a_process_that_fails_is_a_violation(path: Path) -> None:
    edit = Edit("tests.proof.linearizability.worker", 'store.perform(order["door"]', "store.none(0")
    report = try_histories(Task(1, 1, path.parent), [edit])
    assert "a process ended before its time" in report.violations[0].what


@pytest.mark.parametrize("name", BROKEN)
def test_a_store_that_breaks_a_promise_is_found_out(path: Path, name: str) -> None:
    task = Task(MOST, 1, path.parent)
    report = try_histories(task, [BROKEN[name]], until_broken=True)
    assert len(report.violations) == 1
