"""Broker time: milliseconds since 1970 that never run backwards, across restarts and processes too.

No database here: the floor that earlier transactions have persisted is handed in by whoever reads
it, and the reading is persisted by whoever holds the write transaction.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from broker.errors import InvalidRequest

MAX_SAFE_INTEGER = 2**53 - 1

# How far broker time may lead both clocks before it is set going again; see `LogicalClock`.
FROZEN_AFTER_MS = 1_000


def wall_clock() -> int:
    """The system clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_clock() -> float:
    """The monotonic clock, in milliseconds from an arbitrary start."""
    return time.monotonic_ns() / 1_000_000


class LogicalClock:
    """The logical clock of one process for one database; safe from any thread.

    A reading is the largest of: the wall clock, the last reading, the time at boot plus what the
    monotonic clock has run since, and the persisted floor. When that leads both the wall clock and
    the boot term by more than `FROZEN_AFTER_MS` (somebody set the clock ahead and back again), the
    boot pair is set anew, so that time goes on at the monotonic clock's pace instead of standing
    still with every lease alive.
    """

    def __init__(
        self,
        wall: Callable[[], int] = wall_clock,
        monotonic: Callable[[], float] = monotonic_clock,
    ) -> None:
        self.sources = (wall, monotonic)
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._boot: tuple[int, float] | None = None
        self._last = 0

    def read(self, floor: int, server: int | None = None) -> int:
        """Broker time now, at least `floor`; later readings are never lower.

        `server` is what the database server's clock said, where there is one: see `ServerClock`.

        The first reading boots the clock. Raises InvalidRequest when a clock that was injected
        answers anything but a non-negative safe integer (wall) or number (monotonic).
        """
        with self._lock:
            self._last, self._boot = self._now(floor, server)
            return self._last

    def peek(self, floor: int, server: int | None = None) -> int:
        """What `read` would answer, without advancing the clock."""
        with self._lock:
            return self._now(floor, server)[0]

    def _now(self, floor: int, _server: int | None) -> tuple[int, tuple[int, float]]:
        """The reading, and the boot pair to go on with."""
        wall, monotonic = self._wall(), self._monotonic()
        if type(wall) is not int or not 0 <= wall <= MAX_SAFE_INTEGER:
            raise _bad_clock("wall", wall, "a non-negative safe integer", "brokerNow")
        if type(monotonic) not in _NUMBERS or not 0 <= monotonic < math.inf:
            raise _bad_clock("monotonic", monotonic, "a finite number >= 0", "monotonicNow")
        if self._boot is None:
            now = max(wall, self._last, floor)
            return now, (now, monotonic)

        booted_at, booted_monotonic = self._boot
        elapsed = booted_at + max(0, math.floor(monotonic - booted_monotonic))
        now = max(wall, self._last, elapsed, floor)
        if now > MAX_SAFE_INTEGER:
            raise InvalidRequest("broker time exceeds the safe integer range", field="brokerNow")

        is_frozen = now - max(wall, elapsed) > FROZEN_AFTER_MS
        return now, (now, monotonic) if is_frozen else self._boot


class ServerClock(LogicalClock):
    """The logical clock of one process whose wall clock is that of the database server.

    Of this machine only the pace of its monotonic clock counts, and only while the server's clock
    has been set back by more than `FROZEN_AFTER_MS`: else the pace would add up to a lead.
    """

    def __init__(self, monotonic: Callable[[], float] = monotonic_clock) -> None:
        super().__init__(_no_wall_clock, monotonic)

    def _now(self, floor: int, server: int | None) -> tuple[int, tuple[int, float]]:
        wall, monotonic = server or 0, self._monotonic()
        now = max(wall, self._last, floor)
        if self._boot is not None:
            booted_at, booted_monotonic = self._boot
            elapsed = booted_at + max(0, math.floor(monotonic - booted_monotonic))
            if elapsed - wall > FROZEN_AFTER_MS:
                return max(now, elapsed), self._boot
        return now, (now, monotonic)


def _no_wall_clock() -> int:
    raise NotImplementedError("the server tells the time")


_NUMBERS = {int, float}  # exactly: a boolean is none


def _bad_clock(name: str, answer: object, wanted: str, field: str) -> InvalidRequest:
    return InvalidRequest(f"the {name} clock answered {answer!r}, not {wanted}", field=field)
