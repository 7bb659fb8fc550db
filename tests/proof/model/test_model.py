"""The short form of the proof, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.leases import is_live
from broker.messages import Lease
from tests.proof.model import PROOF, trying
from tests.proof.model.protocol.scenes import TWO_STREAMS
from tests.proof.task import Task

HISTORIES = 10


@pytest.mark.parametrize("block", range(2))
def test_the_store_does_what_the_plain_one_does(
    task_of: Callable[[int, int], Task], block: int
) -> None:
    report = trying.try_histories(task_of(HISTORIES, 1_000 + HISTORIES * block))
    assert [violation.what for violation in report.violations] == []
    assert report.counts["operations"] > 20 * HISTORIES
    assert report.counts["refusals"] > 0
    assert report.counts["restarts"] > 0
    assert report.counts["traces accepted by the protocol"] > 0


def test_the_proof_counts_both_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "SMALL", [TWO_STREAMS])
    report = PROOF.try_it(Task(2, 7, tmp_path))
    assert list(report.counts) == [*trying.COUNTS]
    assert report.counts["differences"] == 0
    assert report.counts["operations"] > 0
    assert report.counts["protocol states"] > 10_000


def test_a_difference_has_its_seed_and_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_live_too_long(lease: Lease | None, now: int) -> bool:
        return is_live(lease, now - 1)

    monkeypatch.setattr("broker.leases.is_live", is_live_too_long)
    report = trying.try_histories(Task(8, 1, tmp_path), shrink=False)
    assert report.counts["differences"] == len(report.violations) > 0
    first = report.violations[0]
    again = trying.try_histories(Task(1, first.seed, tmp_path), shrink=False)
    assert [violation.what for violation in again.violations] == [first.what]
    assert "lease_unavailable" in first.what
    assert "acquire_lease({" in first.what
