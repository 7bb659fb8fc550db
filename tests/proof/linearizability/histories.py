"""Histories of real processes on one database, judged one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random

from tests.places import Client, Place, PostgresPlace, client, url_of
from tests.proof.edited import Edit
from tests.proof.linearizability.calls import listing, prepared
from tests.proof.linearizability.crew import Crew, Failed, Member, Offset, Records, crew, work
from tests.proof.linearizability.doors import DOORS
from tests.proof.linearizability.model import step
from tests.proof.linearizability.programs import Order, Program, draw
from tests.proof.linearizability.search import TooLarge, failing_answer, is_linearizable
from tests.proof.linearizability.state import State
from tests.proof.report import Report
from tests.proof.task import Task

KILLED = 0.15  # of all histories: a process is killed in them
CUT = 0.25  # of those on a server: connections are cut in them
LATEST_S = 0.008  # how long after the start that happens at the latest
CLOCK_SET_MS = 5

_SERVER_TIME = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS double precision)"
_CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def try_histories(task: Task, edits: Sequence[Edit] = (), *, until_broken: bool = False) -> Report:
    """Record and judge a history for each seed; `until_broken` stops at the first that is wrong.

    `edits` are for the processes that work on the store.
    """
    report = Report()
    for name in COUNTS:
        report.counts[name] = 0
    with task.place() as place, crew(edits) as workers, _site(place, workers) as site:
        for seed in task.seeds:
            site.try_one(seed, report)
            if until_broken and report.violations:
                break
    return report


COUNTS = (
    "operations",
    "processes killed",
    "connections cut",
    "unanswered",
    "answered that nothing was stored",
    "left out as the clock was set",
    "too large",
    "not linearizable",
)


@contextmanager
def _site(place: Place, workers: Crew) -> Iterator[_Site]:
    with client(place) as control:
        yield _Site(place, workers, control, _offset(place, control))


@dataclass
class _Site:
    """Where histories happen."""

    place: Place
    workers: Crew
    control: Client
    offset: Offset

    def try_one(self, seed: int, report: Report) -> None:
        try:
            records = self._record(draw(seed), Random(f"disturb {seed}"), report)
        except Failed as failure:
            report.broken(seed, f"an error that no operation may end with: {failure}")
            return
        report.counts["operations"] += len(records.calls)
        report.counts["unanswered"] += records.unknown + records.cut_off
        report.counts["answered that nothing was stored"] += records.nothing
        offset = _offset(self.place, self.control)
        if abs(offset.ms - self.offset.ms) > CLOCK_SET_MS + offset.error + self.offset.error:
            report.counts["left out as the clock was set"] += 1
            self.offset = offset
            return
        is_serial = not isinstance(self.place, PostgresPlace)
        judge(records, seed, report, State(is_serial))

    def _record(self, program: Program, random: Random, report: Report) -> Records:
        members = self.workers.members(len(program.processes))
        how = {"url": url_of(self.place), "patience": program.patience}
        records = work(members[:1], [[program.setup]], self.offset, credentials={}, **how)
        disturb = self._disturbance(members, random, report)
        during = work(
            members,
            program.processes,
            self.offset,
            disturb=disturb,
            credentials=records.credentials,
            **how,
        )
        one = self.workers.members(1)
        last = [*during.pending(), *_last_look(program)]
        after = work(
            one,
            [[[each | {"door": DOORS[0]} for each in last]]],
            self.offset,
            credentials={},
            **how | {"patience": 5_000},
        )
        return _joined([records, during, after])

    def _disturbance(
        self, members: Sequence[Member], random: Random, report: Report
    ) -> Callable[[int], None] | None:
        """What goes wrong meanwhile, if anything does."""
        delays = sorted(random.uniform(0, LATEST_S) for _ in range(3))
        victim = random.choice(members)
        is_killed, is_cut = random.random() < KILLED, random.random() < CUT

        def kill(start: int) -> None:
            _sleep_until(start, delays[0])
            victim.kill()
            report.counts["processes killed"] += 1

        def cut(start: int) -> None:
            for delay in delays:
                _sleep_until(start, delay)
                ((count,),) = self.control.execute(_CUT).fetchall()
                report.counts["connections cut"] += count

        if is_killed:
            return kill
        return cut if is_cut and isinstance(self.place, PostgresPlace) else None


def judge(records: Records, seed: int, report: Report, initial: State) -> None:
    """Whether what was recorded is linearizable: a violation if not, a count if that is not known."""
    history = prepared(records.calls)
    try:
        if is_linearizable(history, initial, step):
            return
    except TooLarge:
        report.counts["too large"] += 1
        return
    report.counts["not linearizable"] += 1
    wrong = ""
    with suppress(TooLarge):
        wrong = ", from this answer on:\n" + listing([failing_answer(history, initial, step)])
    report.broken(seed, f"a history is not linearizable{wrong}\nof:\n{listing(history)}")


def _joined(parts: Sequence[Records]) -> Records:
    """What happened one part after another."""
    return Records(
        [each for part in parts for each in part.calls],
        sum(part.nothing for part in parts),
        sum(part.unknown for part in parts),
        sum(part.cut_off for part in parts),
    )


def _last_look(program: Program) -> list[Order]:
    leases: list[Order] = [
        {"method": "get_lease", "request": {"actorId": actor}} for actor in program.actors
    ]
    events: list[Order] = [
        {"method": "read_events", "request": {"streamId": stream}} for stream in program.streams
    ]
    return leases + events


def _offset(place: Place, control: Client) -> Offset:
    """What the clock of broker time is ahead of the monotonic one."""
    found = []
    for _ in range(3):
        before = time.monotonic_ns() / 1e6
        if isinstance(place, PostgresPlace):
            ((now,),) = control.execute(_SERVER_TIME).fetchall()
        else:
            now = time.time_ns() / 1e6
        after = time.monotonic_ns() / 1e6
        found.append(Offset((after - before) / 2, now - (before + after) / 2))
    return min(found)


def _sleep_until(start: int, delay: float) -> None:
    time.sleep(max(0, start / 1e9 + delay - time.monotonic()))
