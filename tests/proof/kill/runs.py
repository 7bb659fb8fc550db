"""Runs: each kills once, where and when its seed says, and looks at what is left."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Self

from tests.places import Place, PostgresPlace, url_of
from tests.proof.edited import Edit
from tests.proof.kill.aftermath import examine
from tests.proof.kill.backends import OwnServer, crash, terminate
from tests.proof.kill.crew import Crew
from tests.proof.kill.deeds import DEEDS, OF_FILES, opens
from tests.proof.kill.evidence import Evidence
from tests.proof.kill.ledger import Book
from tests.proof.kill.nursery import Nursery
from tests.proof.kill.points import Point, Points
from tests.proof.kill.stages import Stages
from tests.proof.kill.worker import Job, Log
from tests.proof.report import Report
from tests.proof.shim import build
from tests.proof.task import Task

#: What is counted, in the order in which it is shown; the latter must not happen.
SEEN = (
    "acknowledged",
    "unacknowledged and stored",
    "unacknowledged and not stored",
    "unacknowledged without a key",
    "told to try again",
    "outcomes unknown",
)
FAULTS = (
    "lost",
    "doubled",
    "half done",
    "stale writes",
    "epochs gone back",
    "wrong answers",
    "rules broken",
    "locks left",
    "hangs and crashes",
)

# What a killed process has written stays with the system, flushed or not: on a file that flushes are
# not left out is for the proof of faults.
_POWER = "a power failure of the server: what it has written stays with the system, flushed or not"
_CALLS_OF_SERVERS = (
    "single system calls: clients die at each statement, processes of the server at any moment"
)

_LOGS: dict[str, tuple[Log, ...]] = {
    "sqlite": ("kept", "kept", "copied", "cut"),
    "postgresql": ("kept",),
}

Run = Callable[[int, int], None]


class Killing:
    """Everything that runs share: the nursery, the places, how many places there are to die in.

    With `edits` the workers have another store than ours.
    """

    def __init__(self, task: Task, edits: Sequence[Edit] = ()) -> None:
        self.report = Report(counts=Counter(dict.fromkeys((*SEEN, *FAULTS), 0)))
        self._task = task
        self._stages = Stages(task)
        self._server = OwnServer()
        is_file = task.backend == "sqlite"
        shim = build(task.folder) if is_file else None
        self.has_shim = shim is not None
        if not is_file:
            self.report.left_out += [_POWER, _CALLS_OF_SERVERS]
        elif shim is None:
            self.report.left_out.append("dying in system calls: there is no C compiler")
        self._nursery = Nursery(shim, str(task.folder), edits)
        deeds = DEEDS | OF_FILES if is_file else DEEDS
        self._calls = Points("call", deeds, self._count)
        self._statements = Points("statement", deeds, self._count)
        self._counted = self._seed = 0
        # How to kill, and in how many of ten runs.
        self._slots = self._slots_of_files() if is_file else self._slots_of_servers()

    def _slots_of_files(self) -> list[tuple[Run, int]]:
        at_calls = [(self._die_in_a_call, 5)] if self.has_shim else []
        at_statements = [(self._die_at_a_statement, 2 if self.has_shim else 7)]
        return [*at_calls, *at_statements, (self._die_under_load, 3)]

    def _slots_of_servers(self) -> list[tuple[Run, int]]:
        clients: list[tuple[Run, int]] = [(self._die_at_a_statement, 6), (self._die_under_load, 2)]
        return [*clients, (self._end_sessions, 1), (self._crash_server, 1)]

    def __enter__(self) -> Self:
        with self._task.place() as place:
            self._nursery.warm_up(self._job(place, "warm", 0))
        return self

    def __exit__(self, *_: object) -> None:
        with self._stages, self._server, self._nursery:
            pass

    def run(self, seed: int) -> None:
        """Kill once, and note what is wrong then."""
        self._seed = seed
        turn, slot = divmod(seed, sum(share for _, share in self._slots))
        for run, share in self._slots:
            if slot < share:
                run(seed, turn * share + slot)
                return
            slot -= share

    def conclude(self) -> Report:
        """All that was seen."""
        for name, points in (("calls", self._calls), ("statements", self._statements)):
            if points.tried:
                self.report.counts[f"of {points.known:,} {name} died in"] = len(points.tried)
        return self.report

    # --------------------------------------------------------------------------- at chosen places

    def _die_in_a_call(self, seed: int, turn: int) -> None:
        self._die_at(seed, self._calls.of(turn))

    def _die_at_a_statement(self, seed: int, turn: int) -> None:
        self._die_at(seed, self._statements.of(turn))

    def _die_at(self, seed: int, point: Point) -> None:
        with self._stages.one(point.deed) as (place, base):
            with Crew(self._nursery, Book()) as crew:
                child = crew.start(self._job(place, f"s{seed}", seed, point))
                crew.expect_death(child)
                crew.read(lambda: "survived" in crew.book.notes)
                crew.kill(child)
            self._judge(seed, place, point.deed, crew, base)

    def _count(self, point: Point) -> int:
        """How many places there are to die in, found out by not dying."""
        self._counted += 1
        with self._stages.one(point.deed) as (place, _), Crew(self._nursery, Book()) as crew:
            crew.start(self._job(place, f"counted{self._counted}", 0, point))
            crew.read(lambda: "survived" in crew.book.notes)
        self._note(self._seed, [("hangs and crashes", fault) for fault in crew.faults])
        return int(crew.book.notes.get("survived", 0))

    def _job(self, place: Place, name: str, seed: int, point: Point | None = None) -> Job:
        backend = self._task.backend
        job = Job(url_of(place), backend, name, seed, looks=backend == "sqlite")
        if point is None:
            return job  # on a server the look takes longer than all the rest
        deed, how, mode, at = point
        return replace(job, deed=deed, how=how, mode=mode, at=at, looks=opens(deed))

    # --------------------------------------------------------------------------------- under load

    def _die_under_load(self, seed: int, _turn: int) -> None:
        chance = random.Random(seed)
        with self._stages.one(None) as (place, base):
            with Crew(self._nursery, Book()) as crew:
                doors = ("threads", "threads", "tasks", "units")
                children = [crew.start(job) for job in self._loads(place, seed, chance, doors)]
                victims = children if chance.random() < 0.2 else [chance.choice(children)]
                self._let_work(crew, chance.choice((0, 1, 3, chance.randrange(150))))
                time.sleep(chance.uniform(0, 0.003))
                for child in victims:
                    crew.kill(child)
                self._let_work(crew, chance.randrange(30))
            self._judge(seed, place, None, crew, base)

    def _let_work(self, crew: Crew, answers: int) -> None:
        enough = crew.book.answers + answers
        crew.read(lambda: crew.book.answers >= enough)

    def _loads(
        self, place: Place, seed: int, chance: random.Random, doors: Sequence[str]
    ) -> Iterator[Job]:
        streams = [f"s{seed}/stream{number}" for number in range(chance.randint(2, 4))]
        for number in range(chance.choice((1, 2, 2, 3))):
            door, hands = chance.choice(doors), chance.randint(2, 4)
            job = self._job(place, f"s{seed}w{number}h", seed)
            log = chance.choice(_LOGS[self._task.backend])
            yield replace(job, door=door, hands=hands, streams=streams, log=log)

    # ------------------------------------------------------------------- processes of the server's

    def _end_sessions(self, seed: int, _turn: int) -> None:
        with self._stages.one(None) as (place, base):
            self._work_on(seed, place, base, terminate)

    def _crash_server(self, seed: int, _turn: int) -> None:
        place = self._server.place()
        self._work_on(seed, place, Evidence.of(place), crash)

    def _work_on(
        self,
        seed: int,
        place: Place,
        base: Evidence,
        end: Callable[[PostgresPlace, random.Random], int],
    ) -> None:
        """Workers go on while the server's processes end: they are told, and ask again."""
        assert isinstance(place, PostgresPlace)
        chance = random.Random(seed)
        with Crew(self._nursery, Book()) as crew:
            for job in self._loads(place, seed, chance, ("threads", "tasks")):
                crew.start(job)
            self._let_work(crew, 1 + chance.randrange(100))
            time.sleep(chance.uniform(0, 0.003))
            crew.kills += end(place, chance)
            self._let_work(crew, 10 + chance.randrange(30))
        self._judge(seed, place, None, crew, base)

    # ------------------------------------------------------------------------------- what is left

    def _judge(self, seed: int, place: Place, deed: str | None, crew: Crew, base: Evidence) -> None:
        verdict = examine(place, deed, crew.book, base, f"s{seed}")
        verdict.find("hangs and crashes", crew.faults)
        if crew.kills == 0:
            verdict.find("hangs and crashes", ["nobody was killed"])
        self.report.counts.update(verdict.counts)
        self._note(seed, verdict.faults)

    def _note(self, seed: int, faults: Sequence[tuple[str, str]]) -> None:
        for kind, fault in faults:
            self.report.counts[kind] += 1
            self.report.broken(seed, f"{kind}: {fault}")


def try_kills(task: Task) -> Report:
    """The proof."""
    with Killing(task) as killing:
        for seed in task.seeds:
            killing.run(seed)
        return killing.conclude()
