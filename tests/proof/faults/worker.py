"""A process with the shim: it meets one fault after another, and tells what became of each.

    python -m tests.proof.faults.worker FOLDER ABOUT

The points are those whose names begin with ABOUT. A line in, the number of a run; a line out once the fault is healed, for another process to
look at the file; an empty line in; and a line out with what was seen.
"""

from __future__ import annotations

import json
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from tests.proof.faults.attempts import Attempts
from tests.proof.faults.ground import Ground, Template
from tests.proof.faults.operations import Operation
from tests.proof.faults.points import Point, all_points
from tests.proof.shim import Calls, Mode, Shim


class Worker:
    """Meets the faults of a shim that this process was started with."""

    def __init__(self, folder: Path, about: str) -> None:
        self._template = Template(folder)
        self._shim = Shim()
        self.points = all_points(cache(self._count), about)

    def meet(self, number: int) -> None:
        """Meet a fault, and tell of it."""
        point = self.points[number % len(self.points)]
        with self._template.ground() as ground:
            attempts = self._attempt(point, ground)
            attempts.judge()
            _say({"look at": str(ground.path), "point": str(point)})
            sys.stdin.readline()
            attempts.start_afresh()
        _say({"counts": attempts.counts, "violations": attempts.violations})

    def _attempt(self, point: Point, ground: Ground) -> Attempts:
        operation = point.operation
        attempts = self._ready(operation, ground)
        self._shim.arm(point.at, point.mode, point.calls, forever=point.forever)
        try:
            self._do(operation, attempts)
        finally:
            met = self._shim.disarm() >= point.at
        attempts.point = point
        attempts.counts["faults met"] = int(met)
        return attempts

    def _ready(self, operation: Operation, ground: Ground) -> Attempts:
        if not operation.opens:
            ground.store = ground.open()
        operation.prepare(ground)
        return Attempts(ground, operation)

    def _do(self, operation: Operation, attempts: Attempts) -> None:
        if operation.in_threads:
            with ThreadPoolExecutor(len(attempts.calls)) as pool:
                list(pool.map(attempts.make, attempts.calls))
        else:
            for call in attempts.calls:
                attempts.make(call)

    def _count(self, operation: Operation, calls: Calls) -> int:
        """How many calls of a kind an operation makes where nothing goes wrong."""
        with self._template.ground() as ground:
            attempts = self._ready(operation, ground)
            self._shim.arm(0, Mode.FAIL_EIO, calls)
            self._do(operation, attempts)
            counted = self._shim.disarm()
        attempts.require_success()
        return counted


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what, default=str), flush=True)


def main() -> None:
    """Meet the faults that are asked for, to the end of the input."""
    logging.disable()  # what a pool logs of a connection that it could not close
    worker = Worker(Path(sys.argv[1]), sys.argv[2])
    _say({"points": len(worker.points)})
    for line in sys.stdin:
        worker.meet(int(line))


if __name__ == "__main__":
    main()
