"""The rule by itself, on series that were made up."""

from __future__ import annotations

from random import Random

import pytest

from tests.proof.soak.flatness import FEWEST, Limit, Verdict, judge

MEMORY = Limit(1.1, 8)


def verdict(values: list[float], limit: Limit = MEMORY) -> Verdict:
    made = judge("memory", "MiB", values, limit)
    assert made is not None
    return made


def test_noise_around_a_level_is_flat() -> None:
    random = Random(1)
    assert verdict([random.gauss(80, 8) for _ in range(60)]).is_flat


def test_warming_up_is_left_out() -> None:
    assert verdict([20, 40, 60, *[80.0] * 12]).is_flat


def test_single_peaks_do_not_count() -> None:
    assert verdict([80.0] * 30 + [2_000] * 3 + [80.0] * 7).is_flat


def test_growth_is_not_flat_and_says_by_how_much() -> None:
    grown = verdict([80.0 + number for number in range(60)])
    assert not grown.is_flat
    assert str(grown) == (
        "memory: 99.5 MiB at first, 131.5 at last, which is more than 1.1 times and 8 MiB allow"
    )


@pytest.mark.parametrize(("last", "is_flat"), [(18.0, True), (20.0, False)])
def test_little_may_grow_by_the_amount(last: float, is_flat: bool) -> None:
    assert verdict([10.0] * 20 + [last] * 20).is_flat is is_flat


@pytest.mark.parametrize(("last", "is_flat"), [(60.0, True), (40.0, False)])
def test_of_throughput_a_fall_counts(last: float, is_flat: bool) -> None:
    values = [100.0] * 20 + [last] * 20
    fallen = verdict(values, Limit(2, 0, is_of_falls=True))
    assert fallen.is_flat is is_flat
    assert verdict(values[::-1], Limit(2, 0, is_of_falls=True)).is_flat


def test_of_few_samples_nothing_is_said() -> None:
    assert judge("memory", "MiB", [1.0] * FEWEST, MEMORY) is None
