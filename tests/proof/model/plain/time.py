"""Broker time, as one process has it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.support import ManualClock

FROZEN_AFTER_MS = 1_000


@dataclass
class BrokerTime:
    """The logical clock of a process from its opening on; `hands` are the clocks of its machine."""

    hands: ManualClock
    last: int = 0
    boot: tuple[int, float] | None = None

    def read(self, floor: int) -> int:
        """Broker time, which the clock has been at from now on."""
        now, mono = self.peek(floor), self.hands.monotonic_ms
        if self.boot is None or now - max(self.hands.wall_ms, self._elapsed()) > FROZEN_AFTER_MS:
            self.boot = (now, mono)
        self.last = now
        return now

    def peek(self, floor: int) -> int:
        """What `read` would answer."""
        return max(self.hands.wall_ms, self.last, self._elapsed(), floor)

    def _elapsed(self) -> int:
        if self.boot is None:
            return 0
        booted_at, mono = self.boot
        return booted_at + max(0, math.floor(self.hands.monotonic_ms - mono))
