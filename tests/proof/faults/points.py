"""Every point at which an operation can meet a fault: which system call, and what becomes of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.proof.faults.operations import OPERATIONS, Operation
from tests.proof.shim import Calls, Mode

# What can become of which calls. A short write stores half of the bytes.
FAULTS = (
    (Calls.WRITE, Mode.FAIL_ENOSPC),
    (Calls.WRITE, Mode.FAIL_EIO),
    (Calls.WRITE, Mode.SHORT_WRITE),
    (Calls.SYNC, Mode.FAIL_EIO),
    (Calls.TRUNCATE, Mode.FAIL_EIO),
    (Calls.LOCK, Mode.FAIL_EAGAIN),
    (Calls.LOCK, Mode.FAIL_EACCES),
    (Calls.READ, Mode.FAIL_EIO),
    (Calls.OPEN, Mode.FAIL_EACCES),
    (Calls.OPEN, Mode.FAIL_EIO),
    (Calls.REMOVE, Mode.FAIL_EACCES),
)
MOST_IN_THREADS = 12  # points of an operation whose calls are not the same each time
MOST_IN_A_ROW = 60  # of more calls of a kind, those at the beginning and the end, and some between


@dataclass(frozen=True)
class Point:
    """The `at`-th of `calls` in an operation goes as `mode` says; `forever`: all later ones too."""

    operation: Operation
    calls: Calls
    mode: Mode
    at: int
    forever: bool

    def __str__(self) -> str:
        later = " and later" if self.forever else ""
        return f"{self.operation.name}, {self.calls.name} {self.at}{later}: {self.mode.name}"


Count = Callable[[Operation, Calls], int]


def all_points(count: Count, about: str = "") -> list[Point]:
    """All points whose names begin with `about`, well mixed, in the same order each time.

    `count` tells how many calls there are.
    """
    operations = [each for each in OPERATIONS if _is_about(each, about)]
    points = [each for each in _points(operations, count) if str(each).startswith(about)]
    random.Random(5).shuffle(points)
    return points


def _is_about(operation: Operation, about: str) -> bool:
    return f"{operation.name}, ".startswith(about) or about.startswith(f"{operation.name}, ")


def _points(operations: Sequence[Operation], count: Count) -> Iterator[Point]:
    for operation in operations:
        for calls, mode in FAULTS:
            most = MOST_IN_THREADS if operation.in_threads else count(operation, calls)
            for at in _chosen(most):
                for forever in (False, True):
                    yield Point(operation, calls, mode, at, forever)


def _chosen(most: int) -> Sequence[int]:
    """Which of so many calls are to fail."""
    if most <= MOST_IN_A_ROW:
        return range(1, most + 1)
    third = MOST_IN_A_ROW // 3
    between = range(third + 1, most - third, max(1, (most - 2 * third) // third))
    return [*range(1, third + 1), *between, *range(most - third + 1, most + 1)]
