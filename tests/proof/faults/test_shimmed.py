"""Faults of system calls, in short; and stores that are broken on purpose, which are found out."""

from __future__ import annotations

import pathlib

import pytest

from tests.proof.edited import Edit
from tests.proof.faults.shimmed import COUNTS, meet_faults

MUST_NOT_BE = COUNTS[COUNTS.index("lost") :]


@pytest.mark.parametrize("part", range(2))
def test_no_fault_of_a_system_call_breaks_a_promise(tmp_path: pathlib.Path, part: int) -> None:
    report = meet_faults(range(part * 40, part * 40 + 40), tmp_path)
    if report.left_out:
        pytest.skip(report.left_out[0])
    assert report.violations == []
    assert {name: report.counts[name] for name in MUST_NOT_BE} == dict.fromkeys(MUST_NOT_BE, 0)
    assert report.counts["faults met"] > 30
    assert min(report.counts["acknowledged"], report.counts["refused"]) > 10


# What a store does that tells lies, what then breaks, and where.
BROKEN = {
    "a COMMIT that failed is acknowledged": (
        Edit("broker.sqlite.writer", "each.fail(translate_commit(error), error)", "pass"),
        "commit, WRITE",
        "lost",
    ),
    "an unknown outcome is told as a refusal": (
        Edit("broker.sqlite.engine", "return OutcomeUnknown(", "return DatabaseUnavailable("),
        "commit, SYNC",
        "refused but stored",
    ),
    "SQLite's codes are not looked at": (
        Edit("broker.sqlite.engine", "if code in _OUT_OF_REACH:", "if False:"),
        "outbox, WRITE",
        "undocumented errors",
    ),
    "a connection that can only read is kept": (
        Edit("broker.sqlite.engine", "== sqlite3.SQLITE_READONLY", "== -1"),
        "unit of work, OPEN",
        "not healed",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_store_that_is_broken_on_purpose_is_found_out(tmp_path: pathlib.Path, what: str) -> None:
    edit, about, count = BROKEN[what]
    report = meet_faults(range(6), tmp_path, [edit], about=about)
    if report.left_out:
        pytest.skip(report.left_out[0])
    assert report.counts[count] > 0
    assert report.violations
