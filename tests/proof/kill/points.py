"""Where to die: every place in every deed, in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.proof.kill.worker import How
from tests.proof.shim import Mode

_MODES: dict[How, tuple[Mode, ...]] = {
    "call": (Mode.KILL_BEFORE, Mode.KILL_AFTER, Mode.KILL_TORN),
    "statement": (Mode.KILL_BEFORE,),
}
# Before a call and after it; only a write can be torn.
_SAME_PLACES = {Mode.KILL_AFTER: Mode.KILL_BEFORE}


class Point(NamedTuple):
    """A place to die at: the `at`-th of its kind in a deed, at none if that is 0."""

    deed: str
    how: How
    mode: Mode
    at: int = 0


@dataclass
class Points:
    """A walk through all places of a kind.

    `count` finds out how many there are for a deed and a mode, by not dying.
    """

    how: How
    deeds: Iterable[str]
    count: Callable[[Point], int]
    tried: set[Point] = field(default_factory=set)
    _known: dict[Point, int] = field(default_factory=dict)

    def of(self, turn: int) -> Point:
        """The place for a turn: the deeds in their order, then the modes, then the places."""
        deeds, modes = list(self.deeds), _MODES[self.how]
        turn, deed = divmod(turn, len(deeds))
        turn, mode = divmod(turn, len(modes))
        point = Point(deeds[deed], self.how, modes[mode])
        many = self._many(point)
        point = point._replace(at=1 + turn * _step(many) % many)
        self.tried.add(point)
        return point

    @property
    def known(self) -> int:
        """How many places there are, in the deeds that were walked through so far."""
        return sum(self._known.values())

    def _many(self, point: Point) -> int:
        if point not in self._known:
            before = point._replace(mode=_SAME_PLACES.get(point.mode, point.mode))
            self._known[point] = self._known.get(before) or max(1, self.count(point))
        return self._known[point]


def _step(many: int) -> int:
    """How far to go on for the next place, so as to come to all of them, and to distant ones soon."""
    step = max(1, int(many * 0.618))
    while math.gcd(step, many) != 1:
        step += 1
    return step
