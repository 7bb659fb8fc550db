"""Rounds that come to no end, or to a bad one, are told and not waited for."""

from __future__ import annotations

import os
import time

from tests.proof.report import Report
from tests.proof.watchdog import watched


def a_round(seed: int, what: str) -> Report:
    """One that ends, raises, dies or hangs."""
    if what == "raises":
        raise KeyError(what)
    if what == "dies":
        os._exit(7)
    if what == "hangs":
        time.sleep(60)
    report = Report()
    report.counts["seen"] = seed
    return report


def test_a_round_that_hangs_or_dies_is_a_violation_and_the_next_goes_on() -> None:
    with watched(a_round, 3) as rounds:
        assert rounds.round(3, "ends").counts["seen"] == 3
        raised, died = rounds.round(4, "raises"), rounds.round(5, "dies")
        hung = rounds.round(6, "hangs")
        after = rounds.round(7, "ends")
    assert [(each.seed, each.what) for each in raised.violations] == [
        (4, "the round raised KeyError: 'raises'")
    ]
    assert [(each.seed, each.what) for each in died.violations] == [
        (5, "the process died, exit code 7")
    ]
    assert (hung.violations[0].seed, hung.counts["hung"]) == (6, 1)
    assert after.counts["seen"] == 7
