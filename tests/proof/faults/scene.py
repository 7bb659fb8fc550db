"""A fault that is not of a system call: what is seen of it, in the same words on either backend."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from broker import Broker
from broker.errors import BrokerError
from broker.messages import Lease
from tests.places import Place
from tests.proof.invariants import broken
from tests.proof.report import Report
from tests.proof.task import Task
from tests.support import is_write_locked

MUST_NOT_BE = (
    "lost",
    "stale writes",
    "epochs fell",
    "time ran back",
    "leases cut off",
    "leases without end",
    "not told",
    "locks left",
    "rules broken",
    "undocumented errors",
)


@dataclass
class Scene:
    """Where a fault happens, and what is seen of it."""

    place: Place
    task: Task
    seed: int
    report: Report

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def met(self, count: int = 1) -> None:
        """Note faults."""
        self.report.counts["faults met"] += count

    def expect(self, is_so: bool, count: str, what: str) -> None:
        """Note a violation unless it is so."""
        if not is_so:
            self.report.counts[count] += 1
            self.report.broken(self.seed, what)

    def acknowledged(self, result: Any) -> Any:
        """Note a result that must not be lost."""
        self.report.counts["acknowledged"] += 1
        return result

    @contextmanager
    def refused(self, *kinds: type[BrokerError], what: str) -> Iterator[None]:
        """Expect one of these errors, whose message is one line that says something."""
        try:
            yield
        except Exception as error:
            self.report.counts["refused"] += 1
            is_one = isinstance(error, kinds) and "\n" not in str(error) and len(str(error)) > 20
            self.expect(is_one, "undocumented errors", f"{what}: {error!r}")
        else:
            self.expect(False, "not told", f"{what} was not told of")

    def rest(self) -> None:
        """See that the store is sound, and that nobody holds it."""
        for rule in broken(self.place):
            self.expect(False, "rules broken", rule)
        self.expect(not is_write_locked(self.place), "locks left", "a lock is left")


Scenario: TypeAlias = Callable[[Scene], None]


def play(task: Task, seed: int, name: str, scenario: Scenario) -> Report:
    """Let a fault happen in a place of its own."""
    report = Report()
    report.counts.update(dict.fromkeys(("faults met", "acknowledged", "refused", *MUST_NOT_BE), 0))
    with task.place() as place:
        scene = Scene(place, task, seed, report)
        try:
            scenario(scene)
            scene.rest()
        except Exception as error:
            last = "".join(traceback.format_exception(error)[-8:])
            scene.expect(False, "undocumented errors", f"{name}: {error!r}\n{last}")
    return report


def appended(store: Broker, lease: Lease, message_id: str, **others: Any) -> Any:
    """Commit an event at the revision at which the lease's stream is."""
    revision = store.get_stream_revision({"streamId": lease.stream_id})
    event = {"eventId": f"{message_id}-event", "eventType": "note", "payload": None}
    request: Mapping[str, Any] = {
        "messageId": message_id,
        "actorId": lease.actor_id,
        "lease": lease.credential,
        "streamId": lease.stream_id,
        "expectedRevision": revision,
        "events": [event],
    }
    return store.commit({**request, **others})
