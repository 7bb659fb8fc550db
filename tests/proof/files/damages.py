"""Files that were damaged: cut off, with bits changed, or made of something else."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.places import raw
from tests.proof.files import pages
from tests.proof.files.judging import UNDETECTED, Original, judge_operations, judge_reads, opened
from tests.proof.files.original import answers, commit_of, fill
from tests.proof.report import Report


def try_flip(report: Report, seed: int, whole: Original, rng: random.Random) -> None:
    """One bit of the file changed, structure more often than values.

    What SQLite itself could only notice by checksums that it has not is `undetectable`: another
    value in a row, and another key in an index, so that a row is not found or found in another
    place. So is the length, kind or place of a value, where it still is one.
    """
    data = bytearray(whole.path.read_bytes())
    plan = pages.map_of(bytes(data))
    at, use = _place(plan, len(data), rng)
    data[at] ^= 1 << rng.randrange(8)
    path = whole.copy()
    path.write_bytes(data)
    report.counts[f"bits changed in {_GROUPS.get(use, 'structure')}"] += 1
    is_noticed = _problems(path) != []
    judge_reads(report, seed, f"bit of {use} at {at}", path, whole.answers, lambda _: True)
    wrong = report.counts.pop(UNDETECTED, 0)
    if wrong:
        report.counts[_what_is_undetected(use, is_noticed=is_noticed)] += wrong
    path.write_bytes(data)
    judge_operations(report, seed, f"bit of {use} at {at}", path)


_GROUPS = {"value": "values", "key": "keys"}


def _what_is_undetected(use: str, *, is_noticed: bool) -> str:
    if use == "value":
        return "undetectable (a value's own bytes)"
    if is_noticed:
        return "undetected but by SQLite's integrity check"
    return "undetectable (the file is whole)"


def _place(plan: pages.FileMap, size: int, rng: random.Random) -> tuple[int, str]:
    for _ in range(100):
        at = rng.randrange(size)
        use = plan.use_of(at)
        if use not in {"value", "unused page"} or rng.random() < 0.2:
            return at, use
    return at, use


def _problems(path: Path) -> list[str]:
    """What SQLite's own check of the whole file finds, on a copy."""
    copy = path.with_name("checked.db")
    shutil.copyfile(path, copy)
    try:
        with raw(copy) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [str(error)]
    return [str(text) for (text,) in found if text != "ok"]


def try_cut(report: Report, seed: int, whole: Original, rng: random.Random) -> None:
    """The file cut off, at the end of a page as often as anywhere."""
    data = whole.path.read_bytes()
    size = rng.randrange(len(data))
    if rng.random() < 0.5:
        size -= size % pages.map_of(data).page_size
    path = whole.copy()
    path.write_bytes(data[:size])
    report.counts["files cut off"] += 1
    if size <= 1:  # an empty file, as SQLite has it, in which a new store is made
        judge_operations(report, seed, "cut off to nothing", path)
        return
    judge_reads(report, seed, f"cut off at {size}", path, whole.answers, lambda _: False)
    path.write_bytes(data[:size])
    judge_operations(report, seed, f"cut off at {size}", path)


def try_log(report: Report, seed: int, whole: Original, rng: random.Random) -> None:
    """A bit of the log or of its shared memory changed, after a process died.

    A frame whose checksum is wrong ends the log, and the commit in it is lost, as if it had never
    been: all answers have to be those of before, or all of them those of after.
    """
    path = whole.copy()
    _leave_a_log(path)
    with opened(path) as store:
        after = answers(store)
    path = whole.copy()
    _leave_a_log(path)
    victim = Path(f"{path}{rng.choice(['-wal', '-wal', '-shm'])}")
    data = bytearray(victim.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    victim.write_bytes(data)
    report.counts["bits changed in logs"] += 1
    tried = Report()
    judge_reads(tried, seed, f"bit of {victim.suffix}", path, after, lambda _: False)
    if tried.counts["wrong answers"]:
        tried = Report()
        judge_reads(tried, seed, f"bit of {victim.suffix}", path, whole.answers, lambda _: False)
        tried.counts["logs that ended early"] += 1
    report.add(tried)


def _leave_a_log(path: Path) -> None:
    """A commit that is in the log alone, as if its process had died."""
    with raw(path) as keeper:  # so that closing the store does not write the log into the file
        keeper.execute("PRAGMA journal_mode=WAL")
        keeper.execute("BEGIN")
        keeper.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        with opened(path) as store:
            store.commit(commit_of("s0", 12))
        kept = {each: Path(f"{path}{each}").read_bytes() for each in ("", "-wal", "-shm")}
    for suffix, data in kept.items():
        Path(f"{path}{suffix}").write_bytes(data)


# --------------------------------------------------------------------------------- other files


def _garbage(path: Path, rng: random.Random) -> None:
    path.write_bytes(rng.randbytes(rng.choice([2, 99, 100, 512, 4_096, 50_000])))


def _garbage_behind_a_header(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[:100] + rng.randbytes(20_000))


def _other_application(path: Path, _rng: random.Random) -> None:
    path.unlink()
    with raw(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1)")


def _pages_of(size: int) -> Callable[[Path, random.Random], None]:
    def change(path: Path, _rng: random.Random) -> None:
        with raw(path) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute(f"PRAGMA page_size={size}")
            connection.execute("VACUUM")

    return change


def _log_of_another(path: Path, rng: random.Random) -> None:
    other = path.with_name("other.db")
    other.unlink(missing_ok=True)
    fill(other)
    _leave_a_log(other)
    shutil.copyfile(f"{other}-wal", f"{path}-wal")
    if rng.random() < 0.5:
        shutil.copyfile(f"{other}-shm", f"{path}-shm")


def _sparse(path: Path, _rng: random.Random) -> None:
    os.truncate(path, 2**40)


def _utf_16(path: Path, _rng: random.Random) -> None:
    path.unlink()
    with raw(path) as connection:
        connection.execute("PRAGMA encoding='UTF-16le'")
        connection.execute(
            "CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT"
        )


#: Files by what they are; those that answer nothing right must be refused.
FILES: Mapping[str, Callable[[Path, random.Random], None]] = {
    "garbage": _garbage,
    "garbage behind a header": _garbage_behind_a_header,
    "another application's file": _other_application,
    "a huge sparse file": _sparse,
    "UTF-16": _utf_16,
    "pages of 512 bytes": _pages_of(512),
    "pages of 65,536 bytes": _pages_of(65_536),
    "a garbage journal": lambda path, rng: _beside(path, "-journal", rng),
    "a garbage log": lambda path, rng: _beside(path, "-wal", rng),
    "garbage for shared memory": lambda path, rng: _beside(path, "-shm", rng),
}

#: What is no file at all; each must be refused at once.
NO_FILES: Mapping[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "/dev/null": lambda path: path.symlink_to("/dev/null"),
    "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nowhere": lambda path: path.symlink_to(path.with_name("no") / "where"),
}


def _beside(path: Path, suffix: str, rng: random.Random) -> None:
    Path(f"{path}{suffix}").write_bytes(rng.randbytes(rng.choice([0, 8, 600, 40_000])))


def try_other(report: Report, seed: int, whole: Original, rng: random.Random) -> None:
    """Something else in the file's place, or beside it."""
    name = rng.choice([*FILES, *NO_FILES])
    path = whole.copy()
    report.counts["other files"] += 1
    if name in FILES:
        FILES[name](path, rng)
        judge_operations(report, seed, name, path)
        judge_reads(report, seed, name, path, whole.answers, lambda _: False)
        return
    suffix = rng.choice(["", "-journal", "-wal", "-shm"])
    victim = Path(f"{path}{suffix}")
    victim.unlink(missing_ok=True)
    NO_FILES[name](victim)
    try:
        judge_operations(report, seed, f"{name} for {suffix or 'the file'}", path)
        judge_reads(report, seed, name, path, whole.answers, lambda _: False)
    finally:
        if victim.is_dir() and not victim.is_symlink():
            victim.rmdir()
        else:
            victim.unlink(missing_ok=True)
