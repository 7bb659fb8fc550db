"""A process that does the work of a proof round by round, and another that watches it.

Whatever an input does to the process that meets it, the proof goes on: one that hangs is ended, one
that dies is replaced, and either is a violation with the seed of its round.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from tests.proof.report import Report

#: What a round is: a function of a module, a seed, and whatever it needs beside it.
Work = Callable[..., Report]


class Watched:
    """Does rounds in a process of its own, each within so many seconds."""

    def __init__(self, work: Work, seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._process: Any = None
        self._pipe: Connection | None = None

    def round(self, seed: int, *given: Any) -> Report:
        """What the round of a seed saw; if it came to no end, that is what was seen."""
        pipe = self._pipe or self._start()
        pipe.send((seed, given))
        report = Report()
        try:
            if pipe.poll(self._seconds):
                answer = pipe.recv()
                if isinstance(answer, Report):
                    return answer
                report.broken(seed, f"the round raised {answer}")
                return report
            report.counts["hung"] += 1
            report.broken(seed, f"no end within {self._seconds:g} s; standard error has its stack")
        except EOFError:
            self._process.join(10)
            report.counts["died"] += 1
            report.broken(seed, f"the process died, exit code {self._process.exitcode}")
        self.close()
        return report

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.kill()
            process.join()

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, self._work, self._seconds)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        return ours


@contextmanager
def watched(work: Work, seconds: float) -> Iterator[Watched]:
    """Rounds of `work`, each within so many seconds, in a process that is ended at the end."""
    made = Watched(work, seconds)
    try:
        yield made
    finally:
        made.close()


def _serve(pipe: Connection, work: Work, seconds: float) -> None:
    while True:
        try:
            seed, given = pipe.recv()
        except (EOFError, OSError):
            return
        faulthandler.dump_traceback_later(seconds * 0.9)
        try:
            answer: Report | str = work(seed, *given)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        faulthandler.cancel_dump_traceback_later()
        pipe.send(answer)
