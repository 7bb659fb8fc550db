"""What was attempted under a fault, what was told of it, and whether that is so."""

from __future__ import annotations

import shutil
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.errors import BrokerError, DatabaseBusy, DatabaseUnavailable, OutcomeUnknown
from tests.places import contents
from tests.proof.faults.ground import Call, Ground, rows_there
from tests.proof.faults.operations import Operation
from tests.proof.faults.points import Point
from tests.proof.shim import Calls

# What may be told of a fault in which calls.
_EXPECTED: dict[Calls, tuple[type[BrokerError], ...]] = {
    Calls.WRITE: (DatabaseUnavailable, OutcomeUnknown),
    Calls.SYNC: (DatabaseUnavailable, OutcomeUnknown),
    Calls.TRUNCATE: (DatabaseUnavailable, OutcomeUnknown),
    Calls.LOCK: (DatabaseBusy, DatabaseUnavailable),
    Calls.READ: (DatabaseUnavailable,),
    Calls.OPEN: (DatabaseUnavailable,),
    Calls.REMOVE: (DatabaseUnavailable, OutcomeUnknown),
}


@dataclass
class Attempts:
    """The calls of one operation, and what each came to: its result or its error."""

    ground: Ground
    operation: Operation
    point: Point | None = None
    outcomes: dict[str, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        opens = self.operation.opens
        self._before = contents(self.ground.path) if opens and self.ground.path.exists() else {}
        self.calls = list(self.operation.calls(self.ground))

    def make(self, call: Call) -> None:
        """Make a call and remember what it came to."""
        try:
            self.outcomes[call.name] = call.do(self.ground.store)  # type: ignore[arg-type]
        except Exception as error:
            self.outcomes[call.name] = error

    def require_success(self) -> None:
        """Raise the first error there is: for where nothing goes wrong."""
        for outcome in self.outcomes.values():
            if isinstance(outcome, Exception):
                raise outcome

    # ------------------------------------------------------------------------------ once it is healed

    def judge(self) -> None:
        """Look at every outcome, and whether the same store goes on, now that nothing fails."""
        for call in self.calls:
            outcome = self.outcomes[call.name]
            if isinstance(outcome, Exception):
                self._judge_error(call, outcome)
            self._count(call)
        if not self.operation.opens:
            with _as_after_a_crash(self.ground.path) as crashed:
                for call in self.calls:
                    self._judge_rows(call, crashed, "after a crash")
            for call in self.calls:
                self._judge_rows(call, self.ground.path, "at once")
        elif self.ground.store is None:
            self._judge_refused_opening()
        self._go_on("the same store")
        for call in self.calls:
            if call.stored and rows_there(self.ground.path, call) != {True}:
                self._break("lost", f"{call.name} is not there after its repetition")

    def start_afresh(self) -> None:
        """Close the store, open another, and see that all that was promised is there."""
        if self.ground.store is not None:
            self.ground.store.close()
        self.ground.store = None
        if not self._go_on("a fresh store"):
            return
        for call, result in self.ground.kept:
            if rows_there(self.ground.path, call) != {True}:
                self._break("lost", f"{call.name} of before is not there")
            self._repeat(call, result, "a fresh store")
        if "events" in self._before:
            self._judge_old_rows()

    def _judge_error(self, call: Call, error: Exception) -> None:
        assert self.point is not None
        expected = _EXPECTED[self.point.calls]
        if self.operation.opens:  # SQLite reads within a COMMIT that is not logged ahead
            expected = (*expected, OutcomeUnknown)
        is_expected = isinstance(error, expected)
        if isinstance(error, OutcomeUnknown) and not call.is_keyed:
            is_expected = False
        if not is_expected or "\n" in str(error):
            last = traceback.format_exception(error)[-12:]
            self._break("undocumented errors", f"{call.name}: {error!r}\n{''.join(last)}")

    def _judge_rows(self, call: Call, path: Path, when: str) -> None:
        """What was acknowledged is there, what was refused is not, and nothing is half there."""
        outcome = self.outcomes[call.name]
        if not call.stored:
            return
        there = rows_there(path, call)
        if len(there) > 1:
            self._break("half stored", f"{call.name}, {when}")
        elif not isinstance(outcome, Exception):
            if there != {True}:
                self._break("lost", f"{call.name} was acknowledged and is not there {when}")
        elif not isinstance(outcome, OutcomeUnknown) and there != {False}:
            self._break("refused but stored", f"{call.name} {when}: {outcome!r}")

    def _count(self, call: Call) -> None:
        outcome = self.outcomes[call.name]
        if isinstance(outcome, OutcomeUnknown):
            self.counts["of unknown outcome"] += 1
        elif isinstance(outcome, Exception):
            self.counts["refused"] += 1
        else:
            self.counts["acknowledged"] += bool(call.stored) or self.operation.opens

    def _judge_refused_opening(self) -> None:
        """A database that could not be opened, or not be migrated, is as it was, or migrated."""
        if not self.ground.path.exists():
            return
        now = contents(self.ground.path)
        before = {name: len(rows) for name, rows in self._before.items()}
        after = {name: len(rows) for name, rows in now.items()}
        if now != self._before and "mutation_receipts" not in now:
            self._break("half stored", f"tables {before} became {after}")

    def _go_on(self, where: str) -> bool:
        """Repeat every call; of what took effect the same is told. Whether there is a store."""
        ground = self.ground
        if ground.store is None:
            try:
                ground.store = ground.open()
            except Exception as error:
                self._break("not healed", f"{where} cannot be opened: {error!r}")
                return False
        for call in self.calls:
            if self.operation.opens or self.operation.closes:
                break
            earlier = self.outcomes[call.name]
            self.outcomes[call.name] = self._repeat(call, earlier, where)
        self._use(where)
        return True

    def _repeat(self, call: Call, earlier: Any, where: str) -> Any:
        store = self.ground.store
        assert store is not None
        try:
            answer = call.do(store)
        except Exception as error:
            last = traceback.format_exception(error)[-12:]
            self._break("not healed", f"{call.name} on {where}: {error!r}\n{''.join(last)}")
            return earlier
        self.counts["repeated"] += 1
        if not isinstance(earlier, Exception) and not call.agrees(earlier, answer):
            self._break("told otherwise", f"{call.name}: {earlier!r}, on {where} {answer!r}")
        return answer

    def _use(self, where: str) -> None:
        """Do something new of each kind."""
        store = self.ground.store
        assert store is not None
        name = f"new on {where}"
        try:
            lease = store.acquire_lease({"actorId": name, "holderId": "h", "ttlMs": 60_000})
            event = {"eventId": name, "eventType": "note", "payload": None}
            request = {"messageId": name, "actorId": name, "lease": lease.credential}
            store.commit(request | {"streamId": name, "expectedRevision": 0, "events": [event]})
            assert store.get_stream_revision({"streamId": name}) == 1
        except Exception as error:
            last = traceback.format_exception(error)[-12:]
            self._break("not healed", f"something new on {where}: {error!r}\n{''.join(last)}")

    def _judge_old_rows(self) -> None:
        """What is nobody's to change has come through a migration."""
        now = contents(self.ground.path)
        for table in ("events", "inbox", "outbox", "projections"):
            missing = [row for row in self._before[table] if row not in now[table]]
            if missing:
                self._break("lost", f"of {table}: {missing[:2]!r}")

    def _break(self, count: str, what: str) -> None:
        self.counts[count] += 1
        self.violations.append(f"{self.point}: {what}")


@contextmanager
def _as_after_a_crash(path: Path) -> Iterator[Path]:
    """A copy of what is in the files at this moment: a process that died keeps no more."""
    crashed = path.with_name("crashed.db")
    for end in ("", "-wal"):
        if (file := Path(f"{path}{end}")).exists():
            shutil.copyfile(file, f"{crashed}{end}")
    yield crashed
    for file in path.parent.glob("crashed.db*"):
        file.unlink()
