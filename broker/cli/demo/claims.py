"""What the demo claims, and the tally of what was checked.

A claim counts only if it was checked, so one that was never looked at has failed as well.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from broker.errors import BrokerError, Refusal


class Claim(Enum):
    """Everything that the demo claims, as it stands in the closing table."""

    STEPS = "each migration step reaches its revision and schema version"
    UNTOUCHED = "migrating changes no event, message, result or projection"
    OWNERS = "every old stream gets the workspace of its events"
    OLD_RETRY = "a commit applied under version 1 is recovered when retried"
    EPOCHS = "a lease is one epoch after the stream's last, version 1's included"
    RACE = "of two windows that want a run at once, one gets it"
    RECEIPT = "a repeated lease request gets the same answer again"
    RETRY = "a retried commit is recovered, not applied again"
    CONFLICT = "a commit at a revision that has passed is refused"
    HANDOVER = "a lease handed to another window has the next epoch"
    HEARTBEAT = "a heartbeat moves the expiry and nothing else"
    LIVE = "a live lease cannot be taken over"
    TAKEOVER = "an expired lease is taken over under the next epoch"
    STALE = "a holder that has lost its lease is refused"
    LATE_RETRY = "and still recovers what it had committed before"
    PAGES = "a holder reads its stream back in pages, nothing left out"
    DELIVERY = "every due message is delivered once, the oldest first"
    STREAMS = "every stream holds the events its run claims, and no others"
    CURSORS = "cursors are unique and grow in commit order"
    FRAMES = "the read model has every frame of its workspace, in order"
    SOURCES = "the read model's sources are the runs, under their last epoch"
    LISTS = "the streams of a workspace are listed, in byte order"
    PROJECTIONS = "every projection has its run's last value"
    LEASES = "every lease has its last holder and epoch, and is released"
    ROWS = "no table has a row more or less than was claimed"
    SCHEMA = "the schema has not drifted from the models"
    FILE = "SQLite finds the file sound: integrity, references, WAL"
    NO_ERROR = "nothing failed that should have succeeded"


@dataclass(frozen=True, slots=True)
class Failure:
    """A claim that did not hold, where, and why."""

    claim: Claim
    about: str
    reason: str


@dataclass
class Checks:
    """The tally; every window counts in it from its own thread."""

    counts: Counter[Claim] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def holds(
        self, claim: Claim, about: str, truth: bool, reason: str = "it does not hold"
    ) -> None:
        """Count a check of a claim, about something, that is either true or has failed."""
        with self._lock:
            self.counts[claim] += 1
            if not truth:
                self.failures.append(Failure(claim, about, reason))

    def equal(self, claim: Claim, about: str, expected: object, actual: object) -> None:
        """Count a check that two values are equal."""
        self.holds(claim, about, expected == actual, f"expected {expected!r}, found {actual!r}")

    def refused(
        self,
        claim: Claim,
        about: str,
        refusal: type[Refusal],
        call: Callable[[], Any],
        **details: Any,
    ) -> None:
        """Count a check that a call is refused in this way, with at least these details."""
        try:
            result = call()
        except refusal as error:
            given = {name: error.details.get(name) for name in details}
            self.equal(claim, about, details, given)
        else:
            self.holds(claim, about, truth=False, reason=f"not refused: {result!r}")

    def unexpected(self, about: str, error: BrokerError) -> None:
        """Count an error that has no place in the story."""
        self.holds(Claim.NO_ERROR, about, truth=False, reason=f"{error.code}: {error.message}")

    def failed(self, claim: Claim) -> int:
        """How often a claim has failed, one that was never checked counting once."""
        failures = sum(failure.claim is claim for failure in self.failures)
        return failures if self.counts[claim] else 1

    @property
    def passed(self) -> bool:
        """Whether every claim was checked, and held each time."""
        return not any(map(self.failed, Claim))
