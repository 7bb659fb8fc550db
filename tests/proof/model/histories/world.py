"""One history: the store and the plain one side by side, and what tells them apart."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from broker import UnitOfWork
from tests.conformance import Failure, answer, differences
from tests.conformance_places import dump
from tests.places import Place, backend_of, rows
from tests.proof.model.histories.doors import AsyncProcess, Process, as_message, asked
from tests.proof.model.plain.database import Database
from tests.proof.model.plain.store import Answer, Limits, PlainStore
from tests.proof.model.plain.tables import cursors, tables
from tests.proof.model.plain.text import canonical
from tests.support import ManualClock

GRANTING = {"acquire_lease", "takeover_lease", "compare_and_swap_lease"}


class Difference(Exception):
    """The store does something else than the plain one."""


@dataclass(frozen=True)
class Asked:
    """What was asked for, and what the store answered."""

    operation: str
    request: Any
    request_id: Any
    answer: Answer


@dataclass
class World:
    """A place, the plain double of its database, and the processes that have it open.

    `past` is all that was asked and kept, in its order; `steps` are its lines, to be shown.
    """

    place: Place
    database: Database
    processes: list[Process]
    counts: Counter[str]
    limits: Limits
    past: list[Asked] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    @classmethod
    def begin(
        cls, place: Place, counts: Counter[str], walls: Sequence[int], limits: Limits
    ) -> World:
        """A new store, opened by a process for each wall clock; the last one awaits it."""
        world = cls(place, Database(), [], counts, limits)
        for name, wall_ms in zip("xyz", walls, strict=True):
            plain = PlainStore(world.database, ManualClock(wall_ms), name, limits)
            kind = AsyncProcess if len(world.processes) == 2 else Process
            world.processes.append(kind(place, plain))
        world.steps.append(f"three processes with clocks at {walls}, {limits}")
        return world

    # ------------------------------------------------------------------------------------- asking

    def ask(
        self,
        process: Process,
        operation: str,
        request: Any,
        request_id: Any = None,
        unit: Any = None,
        *,
        is_message: bool = False,
    ) -> Answer:
        """Ask both, the store by its own door or by a unit of work's, in one `message` if it is."""
        self._say(process, operation, request, request_id, "" if unit is None else ", in a unit")
        given = as_message(operation, request) if is_message else request
        if unit is None:
            actual = process.ask(operation, given, request_id)
        else:
            actual = answer(lambda: _walked(asked(unit, operation, given, request_id)))
        self._compare(process, Asked(operation, request, request_id, actual))
        return actual

    def ask_together(self, process: AsyncProcess, asks: Sequence[tuple[str, Any]]) -> None:
        """Ask the store for several writes at once, which then share transactions."""
        for operation, request in asks:
            self._say(process, operation, request, None, ", together")
        answers = process.ask_together(asks)
        for (operation, request), actual in zip(asks, answers, strict=True):
            self._compare(process, Asked(operation, request, None, actual))
        self.counts["shared transactions"] += 1

    def _say(
        self, process: Process, operation: str, request: Any, request_id: Any, how: str
    ) -> None:
        said = f"{process.name}{how}: {operation}({request!r}"
        self.steps.append(said + (")" if request_id is None else f", request_id={request_id!r})"))

    def _compare(self, process: Process, asked: Asked) -> None:
        operation, actual = asked.operation, asked.answer
        drawn = self._drawn(operation, actual)
        expected = process.plain.answer(operation, asked.request, asked.request_id, drawn)
        self._count(actual)
        if canonical(expected) != canonical(actual):
            raise Difference(
                f"{operation}: expected {json.dumps(expected)}, but was {json.dumps(actual)}"
            )
        self.past.append(asked)

    def _drawn(self, operation: str, actual: Answer) -> list[int] | None:
        """The cursors that a server gave, which need not be the next ones, and only grow."""
        result = actual.get("result")
        if operation != "commit" or not result or result["recovered"]:
            return None
        given: list[int] = result["eventCursors"]
        if backend_of(self.place) == "sqlite":
            return None
        last = self.database.last_cursor
        in_order = [last, *given]
        if any(before >= after for before, after in zip(in_order, given, strict=False)):
            raise Difference(f"cursors {given} do not grow after {last}")
        return given

    def _count(self, actual: Answer) -> None:
        self.counts["operations"] += 1
        result = actual.get("result")
        self.counts["refusals"] += "error" in actual
        self.counts["recovered"] += isinstance(result, dict) and bool(result.get("recovered"))

    @contextmanager
    def unit(self, process: Process, *, is_kept: bool) -> Iterator[UnitOfWork]:
        """A unit of work in a session, committed if it is `kept`, else rolled back."""
        self.steps.append(f"{process.name}: a unit of work begins")
        process.plain.begin_unit(on_server=backend_of(self.place) == "postgresql")
        with process.session() as unit, self._undoing(is_undone=not is_kept):
            yield unit
            (unit.session.commit if is_kept else unit.session.rollback)()
        process.plain.end_unit()
        self.counts["units of work"] += 1
        self.steps.append(f"{process.name}: it is {'committed' if is_kept else 'rolled back'}")

    @contextmanager
    def savepoint(self, unit: UnitOfWork, *, is_kept: bool) -> Iterator[None]:
        """A savepoint of the unit's session, released if it is `kept`, else rolled back to."""
        self.steps.append("a savepoint")
        nested = unit.session.begin_nested()
        with self._undoing(is_undone=not is_kept):
            yield
            (nested.commit if is_kept else nested.rollback)()
        self.steps.append(f"it is {'released' if is_kept else 'rolled back to'}")

    @contextmanager
    def _undoing(self, *, is_undone: bool) -> Iterator[None]:
        before, past = self.database.copy(), len(self.past)
        yield
        if is_undone:
            vars(self.database).update(vars(before))
            del self.past[past:]

    def restart(self, process: Process, *, is_crash: bool) -> None:
        """A process ends, or dies, and another takes its place."""
        self.steps.append(f"{process.name}: {'dies' if is_crash else 'ends'}, and begins anew")
        process.restart(is_crash=is_crash)
        self.counts["restarts"] += 1

    def pass_time(self, ms: int) -> None:
        """Time passes on all clocks."""
        self.steps.append(f"{ms} ms pass")
        for process in self.processes:
            process.plain.hands.advance(ms)

    def set_clock(self, process: Process, by_ms: int) -> None:
        """Somebody sets the wall clock of a process."""
        self.steps.append(f"{process.name}: the wall clock is set by {by_ms} ms")
        hands = process.plain.hands
        hands.wall_ms = max(0, hands.wall_ms + by_ms)

    # ------------------------------------------------------------------------------------- the end

    def compare_tables(self) -> None:
        """Everything that is stored, as another client reads it."""
        self.steps.append("at last, the tables")
        expected, actual = tables(self.database), dump(self.place)
        actual.pop("user_version", None)
        found = list(differences(expected, actual))
        order = rows(self.place, "SELECT event_id, rowid FROM events ORDER BY rowid")
        if order != cursors(self.database):
            found.append(Failure("the journal", cursors(self.database), order))
        if found:
            raise Difference("; ".join(f"{each.step}: {_shown(each)}" for each in found))

    def end(self) -> None:
        """Close what is open."""
        for process in self.processes:
            process.end()


def _walked(given: Any) -> Any:
    return list(given) if isinstance(given, Iterator) else given


def _shown(failure: Failure) -> str:
    return f"expected {failure.expected!r}, but was {failure.actual!r}"
