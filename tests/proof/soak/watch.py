"""Processes under load, and what is seen of them a window after another."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.places import Place, url_of
from tests.proof.edited import command
from tests.proof.soak.places import of_process, watched
from tests.proof.soak.tally import merged, percentile
from tests.support import ROOT

PATIENCE_S = 60
_NOTES = "CREATE TABLE soak_notes (name text PRIMARY KEY, n integer NOT NULL)"
COMMITS = ("commit", "unit", "task's commit")


@dataclass(frozen=True)
class Plan:
    """Which processes play which roles, and how often they are looked at.

    `mortal` are those of one more process that is killed each `lifetime` windows, and another takes
    its place; empty for none. `pause_s` is how long each thread rests between two steps.
    """

    processes: Sequence[Sequence[str]]
    mortal: Sequence[str] = ()
    window_s: float = 5
    lifetime: int = 5
    pause_s: float = 0


FULL = Plan(
    (
        ("commits", "commits", "commits", "contending"),
        ("tasks", "contending", "visits"),
        ("units", "units", "delivery", "delivery", "delivery"),
        ("pages", "journal", "journal", "visits"),
    ),
    mortal=("commits", "contending", "journal"),
)


@dataclass
class Seen:
    """What was seen: by series the time in minutes and the value of each sample."""

    series: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


class _Process:
    """One process under load, and what it says."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._popen = subprocess.Popen(
            command((), "tests.proof.soak.process", json.dumps(told)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.pid = self._popen.pid
        self._lines: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._has_begun = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self) -> None:
        """Wait until it is at work, or has ended."""
        self._has_begun.wait(PATIENCE_S)

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            with suppress(json.JSONDecodeError):  # cut short, when it was killed
                said = json.loads(line)
                with self._lock:
                    self._lines.append(said)
                self._has_begun.set()
        self._has_begun.set()

    def said(self) -> list[dict[str, Any]]:
        """What it has said since the last time."""
        with self._lock:
            said, self._lines = self._lines, []
        return said

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        self._popen.kill()
        self._end()

    def stop(self) -> int:
        """Let it end; its exit code."""
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):
            self._popen.stdin.close()
        self._end()
        return self._popen.returncode

    def _end(self) -> None:
        try:
            self._popen.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._reader.join()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


class Soak:
    """A load on a place, and what is seen of it. If `is_leaking`, its first process loses
    memory, open files and threads on purpose."""

    def __init__(self, place: Place, seed: int, plan: Plan, *, is_leaking: bool = False) -> None:
        self.seen = Seen()
        self._place = place
        self._seed = seed
        self._plan = plan
        self._is_leaking = is_leaking
        self._started = time.monotonic()

    def run(self, windows: int) -> Seen:
        """Load it for so many windows of time."""
        plan, mortal = self._plan, None
        with watched(self._place) as place:
            place.execute(_NOTES)
            processes = [self._start(*each) for each in enumerate(plan.processes)]
            try:
                for process in processes:
                    process.wait()
                self._started = time.monotonic()
                for window in range(windows):
                    if plan.mortal and window % plan.lifetime == 0:
                        mortal = self._replaced(mortal, place.last_cursor())
                    time.sleep(plan.window_s)
                    self._sample(processes, mortal, place.look())
                    if self.seen.failures:
                        break
            finally:
                self._stop([*processes, mortal] if mortal else processes)
        return self.seen

    def _replaced(self, mortal: _Process | None, cursor: int) -> _Process:
        if mortal is not None:
            mortal.kill()
            self._hear([mortal])
            self.seen.counts["restarts"] += 1
        return self._start(len(self._plan.processes), self._plan.mortal, cursor)

    def _start(self, number: int, roles: Sequence[str], cursor: int = 0) -> _Process:
        told = {
            "url": url_of(self._place),
            "name": f"p{number}",
            "seed": self._seed,
            "roles": roles,
            "window_s": self._plan.window_s,
            "pause_s": self._plan.pause_s,
            "cursor": cursor,
            "is_leaking": self._is_leaking and number == 0,
        }
        return _Process(told)

    def _stop(self, processes: Sequence[_Process]) -> None:
        for number, process in enumerate(processes):
            code = process.stop()
            if code != 0:
                self.seen.failures.append(f"p{number} ended with {code}")
        self._hear(processes)

    def _sample(
        self, processes: Sequence[_Process], mortal: _Process | None, place: Mapping[str, float]
    ) -> None:
        """Look at everything once."""
        minutes = (time.monotonic() - self._started) / 60
        values = dict(place)
        for number, process in enumerate(processes):
            if not process.is_running:
                self.seen.failures.append(f"p{number} ended before its time")
            for name, value in of_process(process.pid).items():
                values[f"{name} of p{number}"] = value
        values |= self._hear([*processes, mortal] if mortal else processes)
        for name, value in values.items():
            self.seen.series[name].append((minutes, value))
        self.seen.counts["samples"] += 1

    def _hear(self, processes: Sequence[_Process]) -> dict[str, float]:
        """Take over what the processes have counted; throughput and latencies of commits."""
        said = [line for process in processes for line in process.said()]
        self.seen.failures += [line["failed"] for line in said if "failed" in line]
        counts: Counter[str] = Counter()
        for line in said:
            counts.update(line.get("counts", {}))
        self.seen.counts.update(counts)
        latencies = merged(
            line["latencies"][kind]
            for line in said
            for kind in COMMITS
            if kind in line.get("latencies", {})
        )
        p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
        if p50 is None or p99 is None:
            return {}
        rate = sum(counts[kind] for kind in COMMITS) / self._plan.window_s
        return {
            "commits a second": rate,
            "latency of commits, p50": p50,
            "latency of commits, p99": p99,
        }
