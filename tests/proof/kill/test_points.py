"""The walk through the places to die at."""

from __future__ import annotations

import pytest

from tests.proof.kill.points import Point, Points


@pytest.mark.parametrize("many", [1, 2, 7, 12, 138])
def test_each_place_of_each_deed_has_its_turn(many: int) -> None:
    asked: list[Point] = []

    def count(point: Point) -> int:
        asked.append(point)
        return many

    points = Points("call", ["open", "commit"], count)
    met = [points.of(turn) for turn in range(2 * 3 * many)]
    assert len(set(met)) == len(points.tried) == points.known == 2 * 3 * many
    assert {point.at for point in met} == set(range(1, many + 1))
    assert len(asked) == 2 * 2, "those before and after a call are counted once"


def test_the_first_turns_are_far_apart() -> None:
    points = Points("statement", ["commit"], lambda _: 100)
    assert [points.of(turn).at for turn in range(4)] == [1, 62, 23, 84]


def test_a_deed_without_a_place_has_one_that_nobody_reaches() -> None:
    assert Points("statement", ["commit"], lambda _: 0).of(5).at == 1
