"""What became of a file that was changed: refused, right, or a wrong answer taken for right."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from broker import Broker
from broker.errors import BrokerError
from tests.places import Place, url_of
from tests.proof.files import original
from tests.proof.files.original import (
    Answer,
    Found,
    answer,
    answers,
    drift,
    fill,
    options,
    upgraded,
)
from tests.proof.fuzz.settings import Words, run
from tests.proof.report import Report

COUNTS = ("refused", "answers that are errors", "right answers", "wrong answers", "bare errors")
UNDETECTED = "undetected"  # answers that are wrong, and are excused
_SUFFIXES = ("", "-wal", "-shm", "-journal")

#: Whether a wrong answer to a question is one that nobody could have noticed.
Excused = Callable[[str], bool]


class Whole:
    """What a store answers that is whole, before a write and after it, and what the write answers."""

    def __init__(self, place: Place) -> None:
        with opened(place) as store:
            self.answers = answers(store)
            self.written = answer(lambda: original.write(store))
            self.answers_after = answers(store)
        assert not isinstance(self.written, Exception)


class Original(Whole):
    """A file that is whole, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "original.db"
        fill(self.path)
        super().__init__(self.copy("written.db"))

    def copy(self, name: str = "changed.db") -> Path:
        """A copy to be changed, with nothing beside it that an earlier one has left."""
        path = self.folder / name
        for suffix in _SUFFIXES:
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        shutil.copyfile(self.path, path)
        return path


@contextlib.contextmanager
def opened(place: Place, *, migrate: bool = True) -> Iterator[Broker]:
    """A store on a clock that stands still."""
    with Broker.open(url_of(place), migrate=migrate, options=options()) as store:
        yield store


def judge_reads(
    report: Report, seed: int, what: str, place: Place, wanted: dict[str, Answer], excused: Excused
) -> None:
    """Open a store and compare all that it answers."""
    found = answer(lambda: _asked(place))
    if isinstance(found, Exception):
        _note_error(report, seed, f"{what}, opening", found, "refused")
        return
    for question, right in wanted.items():
        _compare(report, seed, f"{what}, {question}", found[question], right, excused(question))


def _asked(place: Place) -> Any:
    with opened(place) as store:
        found = answers(store)
    return Found(found)


def judge_writes(report: Report, seed: int, what: str, place: Place, whole: Whole) -> None:
    """Open a store, write, and compare what is acknowledged and what is answered then."""
    found = answer(lambda: _written(place))
    if isinstance(found, Exception):
        _note_error(report, seed, f"{what}, writing", found, "refused")
        return
    said, after = found["said"], found["after"]
    _compare(report, seed, f"{what}, commits", said, whole.written, False)
    if isinstance(said, Exception):  # some were done, and some were not: those that were are right
        return
    for question, right in whole.answers_after.items():
        _compare(report, seed, f"{what}, {question} afterwards", after[question], right, False)


def _written(place: Place) -> Any:
    with opened(place) as store:
        return Found(said=answer(lambda: original.write(store)), after=answers(store))


def judge_operations(report: Report, seed: int, what: str, path: Path) -> None:
    """Every other way in: an error of ours or an end, and a file that is refused keeps every byte."""
    operations: dict[str, Callable[[], Any]] = {
        "opening without migration": lambda: _closed(path),
        "drift": lambda: drift(path),
        "broker check": lambda: _command("check", path),
        "upgrade": lambda: upgraded(path),
    }
    for name, operate in operations.items():
        before = _bytes(path)
        found = answer(operate)
        if isinstance(found, Exception):
            _note_error(report, seed, f"{what}, {name}", found, "refused")
            if _bytes(path) != before and not _has_journal(path):
                report.counts["wrong answers"] += 1
                report.broken(seed, f"{what}, {name}: the file was refused, and changed")


def _bytes(path: Path) -> tuple[int, bytes] | None:
    """Its size and its bytes, of a huge one the first; None if it is no file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return path.stat().st_size, file.read(2**21)


def _has_journal(path: Path) -> bool:
    return any(Path(f"{path}{suffix}").exists() for suffix in ("-wal", "-journal"))


def _closed(path: Path) -> None:
    with opened(path, migrate=False):
        pass


def _command(name: str, path: Path) -> int:
    code, output, errors = run(Words((name, "--url", url_of(path)), {}), path.parent)
    if "Traceback" in output + errors:
        raise AssertionError("a traceback")
    return code


def _compare(
    report: Report, seed: int, what: str, found: Answer, right: Answer, is_excused: bool
) -> None:
    if isinstance(found, Exception):
        _note_error(report, seed, what, found, "answers that are errors")
    elif found == right:
        report.counts["right answers"] += 1
    elif is_excused:
        report.counts[UNDETECTED] += 1
    else:
        report.counts["wrong answers"] += 1
        report.broken(seed, f"{what}: a wrong answer taken for right")


def _note_error(report: Report, seed: int, what: str, error: Exception, count: str) -> None:
    if isinstance(error, BrokerError):
        report.counts[count] += 1
        return
    report.counts["bare errors"] += 1
    report.broken(seed, f"{what}: a bare {type(error).__name__}: {error}"[:500])
