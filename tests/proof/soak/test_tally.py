"""Counting and timing, a window after another."""

from __future__ import annotations

import pytest

from broker.errors import DatabaseBusy, LeaseUnavailable
from tests.proof.soak.tally import Tally, bucket_of, merged, percentile


@pytest.mark.parametrize("milliseconds", [0.002, 0.5, 1, 7.3, 90, 4_000])
def test_a_latency_is_known_to_five_percent_and_never_shown_too_small(milliseconds: float) -> None:
    shown = percentile({str(bucket_of(milliseconds)): 1}, 0.5)
    assert shown is not None
    assert milliseconds * (1 - 1e-9) <= shown <= milliseconds * 1.051


def test_percentiles_are_those_of_all_histograms_together() -> None:
    fast, slow = str(bucket_of(1)), str(bucket_of(100))
    together = merged([{fast: 40}, {fast: 58, slow: 2}])
    assert percentile(together, 0.5) == pytest.approx(1, rel=0.06)
    assert percentile(together, 0.99) == pytest.approx(100, rel=0.06)
    assert percentile({}, 0.5) is None


def test_a_window_begins_with_nothing() -> None:
    tally = Tally()
    tally.count("events", 3)
    with tally.timed("commit"):
        pass
    taken = tally.take()
    assert taken["counts"] == {"events": 3, "commit": 1}
    assert sum(taken["latencies"]["commit"].values()) == 1
    assert tally.take() == {"counts": {}, "latencies": {}}


def test_what_is_refused_is_counted_by_its_code_and_not_timed() -> None:
    tally = Tally()
    for error in (LeaseUnavailable("held"), DatabaseBusy("busy")):
        with pytest.raises(type(error)), tally.timed("lease"):
            raise error
    assert tally.take() == {"counts": {"leases held": 1, "database_busy": 1}, "latencies": {}}
