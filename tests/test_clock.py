"""The logical clock by itself: never backwards, at the monotonic clock's pace, refusing nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import Broker
from broker.clock import MAX_SAFE_INTEGER, LogicalClock, monotonic_clock, wall_clock
from broker.errors import InvalidRequest
from tests.places import contents
from tests.support import ManualClock, acquire, expect_refusal, floor, open_store


@pytest.fixture
def clock() -> ManualClock:
    """Broker time of these tests begins at 10,000 ms, so that there is room to go back."""
    return ManualClock(wall_ms=10_000)


@pytest.fixture
def logical(clock: ManualClock) -> LogicalClock:
    """A logical clock on the test's clocks, booted."""
    booted = LogicalClock(lambda: clock.wall_ms, lambda: clock.monotonic_ms)
    booted.read(0)
    return booted


def test_a_reading_follows_the_wall_clock(logical: LogicalClock, clock: ManualClock) -> None:
    clock.wall_ms += 5_000
    assert logical.read(0) == 15_000


def test_a_wall_clock_set_back_is_passed_over_at_the_monotonic_clocks_pace(
    logical: LogicalClock, clock: ManualClock
) -> None:
    clock.wall_ms = 0
    assert logical.read(0) == 10_000
    clock.monotonic_ms += 7.9
    assert logical.read(0) == 10_007


def test_a_monotonic_clock_that_goes_back_takes_no_time_back(
    logical: LogicalClock, clock: ManualClock
) -> None:
    clock.monotonic_ms = 500
    assert logical.read(0) == 10_500
    clock.monotonic_ms = 3
    assert logical.read(0) == 10_500


def test_a_floor_lifts_the_reading_and_all_later_ones(logical: LogicalClock) -> None:
    assert logical.read(10_900) == 10_900
    assert logical.read(0) == 10_900


def test_the_first_reading_boots_from_the_later_of_wall_clock_and_floor() -> None:
    moved = ManualClock(wall_ms=100, monotonic_ms=50)
    logical = LogicalClock(lambda: moved.wall_ms, lambda: moved.monotonic_ms)
    assert logical.read(4_000) == 4_000
    moved.monotonic_ms += 20
    assert logical.read(0) == 4_020


def test_after_a_jump_ahead_and_back_time_goes_on_instead_of_standing_still(
    logical: LogicalClock, clock: ManualClock
) -> None:
    clock.wall_ms = 3_600_000
    assert logical.read(0) == 3_600_000
    clock.wall_ms = 10_100
    clock.monotonic_ms += 100
    assert logical.read(0) == 3_600_000
    clock.advance(250)
    assert logical.read(0) == 3_600_250


@pytest.mark.parametrize(("lead", "later"), [(1_000, 11_000), (1_001, 11_011)])
def test_time_is_set_going_again_when_it_leads_by_more_than_a_second(
    logical: LogicalClock, clock: ManualClock, lead: int, later: int
) -> None:
    clock.wall_ms += lead
    logical.read(0)
    clock.wall_ms -= lead
    logical.read(0)
    clock.monotonic_ms += 10
    assert logical.read(0) == later


def test_a_floor_of_another_process_far_ahead_does_not_freeze_the_clock(
    logical: LogicalClock, clock: ManualClock
) -> None:
    assert logical.read(500_000) == 500_000
    clock.advance(40)
    assert logical.read(500_000) == 500_040


def test_a_peek_advances_nothing(logical: LogicalClock, clock: ManualClock) -> None:
    clock.wall_ms = 90_000
    assert logical.peek(0) == 90_000
    clock.wall_ms = 10_000
    assert logical.read(0) == 10_000


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50_000),
            st.floats(0, 50_000),
            st.integers(0, 50_000),
        )
    )
)
def test_no_movement_of_either_clock_or_floor_ever_takes_broker_time_back(
    movements: list[tuple[int, float, int]],
) -> None:
    moved = ManualClock()
    logical = LogicalClock(lambda: moved.wall_ms, lambda: moved.monotonic_ms)
    last = 0
    for moved.wall_ms, moved.monotonic_ms, known in movements:
        now = logical.read(known)
        assert now >= max(last, moved.wall_ms, known)
        last = now


@given(st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 500)), min_size=1))
def test_after_any_history_time_goes_on_within_a_second_of_the_clocks(
    movements: list[tuple[int, int]],
) -> None:
    moved = ManualClock()
    logical = LogicalClock(lambda: moved.wall_ms, lambda: moved.monotonic_ms)
    for moved.wall_ms, step in movements:
        moved.monotonic_ms += step
        logical.read(0)
    before = logical.read(0)
    moved.advance(1_500)
    assert logical.read(0) >= before + 500


BAD_WALL_CLOCKS = [-1, 1.5, 1_000.0, True, None, "1000", 2**53]
BAD_MONOTONIC_CLOCKS = [-1, float("nan"), float("inf"), True, None, "0"]
BAD_CLOCKS = [("wall_ms", "brokerNow", value) for value in BAD_WALL_CLOCKS]
BAD_CLOCKS += [("monotonic_ms", "monotonicNow", value) for value in BAD_MONOTONIC_CLOCKS]


@pytest.mark.parametrize(("attribute", "field", "value"), BAD_CLOCKS)
def test_a_clock_that_answers_nonsense_is_named_and_changes_nothing(
    store: Broker, path: Path, clock: ManualClock, attribute: str, field: str, value: object
) -> None:
    before, floor_before, was = contents(path), floor(path), getattr(clock, attribute)
    setattr(clock, attribute, value)
    with expect_refusal(InvalidRequest, field=field):
        acquire(store)
    setattr(clock, attribute, was)
    assert (contents(path), floor(path)) == (before, floor_before)
    assert acquire(store).acquired_at == 10_000


@pytest.mark.parametrize("attribute", ["wall_ms", "monotonic_ms"])
def test_a_store_does_not_open_on_a_clock_that_answers_nonsense(
    path: Path, clock: ManualClock, attribute: str
) -> None:
    setattr(clock, attribute, -1)
    with pytest.raises(InvalidRequest):
        open_store(path, clock)


def test_time_that_leaves_the_safe_integers_is_refused(
    logical: LogicalClock, clock: ManualClock
) -> None:
    clock.monotonic_ms = float(MAX_SAFE_INTEGER)
    with expect_refusal(InvalidRequest, field="brokerNow"):
        logical.read(0)


def test_the_systems_own_clocks_are_in_milliseconds() -> None:
    assert 1_600_000_000_000 < wall_clock() < 10_000_000_000_000
    assert 0 <= monotonic_clock() <= monotonic_clock()
