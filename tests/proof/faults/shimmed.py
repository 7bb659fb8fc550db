"""Faults at each call by which SQLite reaches its files, in a process with the shim."""

from __future__ import annotations

import json
import select
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from tests.places import raw
from tests.proof.edited import Edit, command
from tests.proof.invariants import broken
from tests.proof.report import Report
from tests.proof.shim import build, environment
from tests.support import ROOT, is_write_locked

PATIENCE = 120  # seconds after which a call is taken to hang
COUNTS = (
    "faults met",
    "acknowledged",
    "refused",
    "of unknown outcome",
    "repeated",
    "lost",
    "half stored",
    "refused but stored",
    "told otherwise",
    "not healed",
    "locks left",
    "rules broken",
    "undocumented errors",
    "hanging",
)


def meet_faults(
    seeds: Sequence[int], folder: Path, edits: Sequence[Edit] = (), *, about: str = ""
) -> Report:
    """Let a process meet a fault for each seed, and look at its files from another, this one.

    Each seed is one point of `all_points`, or of those whose names begin with `about`. `edits`
    break the store on purpose.
    """
    report = Report()
    report.counts.update(dict.fromkeys(COUNTS, 0))
    library = build(folder)
    if library is None:
        report.left_out.append("faults of system calls: there is no C compiler")
        return report
    rest = list(seeds)
    while rest:
        with _worker(library, folder, edits, about) as worker:
            while rest:
                seed = rest.pop(0)
                try:
                    _meet(worker, seed, report)
                except Stuck as stuck:  # another process goes on with the rest
                    report.counts["hanging"] += 1
                    report.broken(seed, f"{stuck}")
                    break
    return report


class Stuck(Exception):
    """A process does not answer, or is gone."""


def _meet(worker: subprocess.Popen[str], seed: int, report: Report) -> None:
    _tell(worker, str(seed))
    met = _hear(worker)
    path, point = Path(met["look at"]), met["point"]
    if is_write_locked(path):
        report.counts["locks left"] += 1
        report.broken(seed, f"{point}: a lock is left")
    for rule in broken(path) if _is_of_its_own(path) else ():
        report.counts["rules broken"] += 1
        report.broken(seed, f"{point}: {rule}")
    _tell(worker, "")
    seen = _hear(worker)
    report.counts.update(seen["counts"])
    for violation in seen["violations"]:
        report.broken(seed, violation)


def _is_of_its_own(path: Path) -> bool:
    """Whether only the store's own operations have written: in a migrated one other rules hold."""
    with raw(path) as connection:
        try:
            found = connection.execute("SELECT 1 FROM inbox WHERE message_id = 'before-0'")
            return found.fetchone() is not None
        except sqlite3.OperationalError:  # nothing is there
            return False


@contextmanager
def _worker(
    library: Path, folder: Path, edits: Sequence[Edit], about: str
) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryDirectory(dir=folder, prefix="faults-") as own:
        worker = subprocess.Popen(
            command(edits, "tests.proof.faults.worker", own, about),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(library, own),
        )
        try:
            _hear(worker)
            yield worker
        finally:
            worker.kill()
            worker.communicate()


def _tell(worker: subprocess.Popen[str], line: str) -> None:
    pipe = cast(IO[str], worker.stdin)
    try:
        pipe.write(f"{line}\n")
        pipe.flush()
    except BrokenPipeError:
        raise Stuck("the process is gone") from None


def _hear(worker: subprocess.Popen[str]) -> dict[str, Any]:
    pipe = cast(IO[str], worker.stdout)
    if not select.select([pipe], [], [], PATIENCE)[0]:
        raise Stuck(f"no answer within {PATIENCE} s")
    line = pipe.readline()
    if not line:
        raise Stuck(f"the process is gone, with exit code {worker.wait()}")
    return cast(dict[str, Any], json.loads(line))
