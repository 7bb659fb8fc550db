"""Processes are killed at any moment, in the short form for every change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.proof.edited import Edit
from tests.proof.kill.deeds import DEEDS, OF_FILES
from tests.proof.kill.runs import FAULTS, SEEN, Killing
from tests.proof.task import Task

BATCHES = 10
RUNS = {"sqlite": 50, "postgresql": 10}  # in a batch


@pytest.fixture(scope="module")
def killing(
    request: pytest.FixtureRequest, backend: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Killing]:
    """What the batches of a backend share."""
    is_file = backend == "sqlite"
    databases = None if is_file else request.getfixturevalue("postgres_databases")
    with Killing(Task(0, 0, tmp_path_factory.mktemp("kill"), databases)) as made:
        yield made


@pytest.mark.parametrize("batch", range(BATCHES))
def test_what_was_acknowledged_survives_a_kill(killing: Killing, backend: str, batch: int) -> None:
    report, runs = killing.report, RUNS[backend]
    acknowledged, violations = report.counts["acknowledged"], len(report.violations)
    for seed in range(batch * runs, (batch + 1) * runs):
        killing.run(seed)
    assert report.violations[violations:] == []
    assert report.counts["acknowledged"] > acknowledged


def test_the_counts_have_what_was_seen_and_what_must_not_happen(killing: Killing) -> None:
    killing.run(7)  # under load on either backend
    counts = killing.conclude().counts
    assert list(counts)[: len(SEEN + FAULTS)] == [*SEEN, *FAULTS]
    assert not any(counts[fault] for fault in FAULTS)


# Stores that break a promise, and what is said of them.
BROKEN = {
    "acknowledges before COMMIT": (
        "lost",
        [
            Edit(
                "broker.sqlite.writer",
                'channel.control("COMMIT" if unsettled else "ROLLBACK")',
                'unsettled or channel.control("ROLLBACK")',
            ),
            Edit(
                "broker.sqlite.writer",
                '        try:\n            channel.control("BEGIN IMMEDIATE")\n        except',
                "        try:\n"
                '            in_transaction(channel.connection) and channel.control("COMMIT")\n'
                '            channel.control("BEGIN IMMEDIATE")\n'
                "        except",
            ),
        ],
    ),
    "asks for no lease": (
        "stale writes",
        [
            Edit(
                "broker.journal",
                "require_authority(row[7:], commit.actor_id, commit.lease, commit.stream_id, now)",
                "pass",
            )
        ],
    ),
    "lets leases live on": (
        "stale writes",
        [Edit("broker.leases", "expires_at > now\n        and epoch", "True\n        and epoch")],
    ),
    "does not look at the inbox": (
        "wrong answers",
        [Edit("broker.journal", "    if request_hash is not None:", "    if False:")],
    ),
    "grants the same epoch again": (
        "epochs gone back",
        [Edit("broker.leases", "found.of_stream.epoch + 1", "found.of_stream.epoch")],
    ),
}


def _is_found(killing: Killing, fault: str, runs: Iterable[None]) -> bool:
    """Whether one of the runs finds a fault of this kind; those after it are left out."""
    return any(killing.report.counts[fault] for _ in runs)


@pytest.mark.parametrize("name", BROKEN)
def test_a_store_that_breaks_a_promise_is_found_out(
    path: object, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fault, edits = BROKEN[name]
    with Killing(Task(0, 0, tmp_path_factory.mktemp("kill")), edits) as killing:
        under_load = (7, 8, 9, 17, 18, 19, 27, 28, 29)
        assert _is_found(killing, fault, map(killing.run, under_load))
    assert any(each.what.startswith(f"{fault}: ") for each in killing.report.violations)


# Those that nobody finds out who does not kill in the middle of a commit.
TORN = {
    "has no log": (
        "rules broken",
        [
            Edit("broker.sqlite.engine", "PRAGMA journal_mode=WAL", "PRAGMA journal_mode=OFF"),
            Edit("broker.sqlite.engine", 'if mode != "wal":', "if False:"),
        ],
    ),
    "commits in two steps": (
        "half done",
        [
            Edit(
                "broker.drafts",
                "        insert_outbox(transaction, rows.outbox)",
                "        transaction.channel.control('COMMIT')\n"
                "        transaction.channel.control('BEGIN IMMEDIATE')\n"
                "        insert_outbox(transaction, rows.outbox)",
            )
        ],
    ),
}


@pytest.mark.parametrize("name", TORN)
def test_a_store_that_may_do_half_a_commit_is_found_out(
    path: object, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fault, edits = TORN[name]
    with Killing(Task(0, 0, tmp_path_factory.mktemp("kill")), edits) as killing:
        if not killing.has_shim:
            pytest.skip("there is no C compiler")
        deeds = list(DEEDS | OF_FILES)
        turns = range(deeds.index("commit"), 500, len(deeds))
        assert _is_found(killing, fault, map(killing._die_in_a_call, turns, turns))
