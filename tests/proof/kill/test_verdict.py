"""The verdict finds what was lost, doubled, half done or stale, in a store that somebody has changed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.places import raw
from tests.proof.kill import requests
from tests.proof.kill.aftermath import examine
from tests.proof.kill.doors import Client, opened
from tests.proof.kill.evidence import Evidence
from tests.proof.kill.ledger import Answer, Book
from tests.proof.kill.stages import NOTHING
from tests.proof.kill.verdict import Verdict, judge


@pytest.fixture
def book(place: Path, path: Path) -> Book:
    """What was asked of a store: two leases, three commits, one of them unanswered, a delivery."""
    book, chance = Book(), random.Random(4)
    door = opened(place)
    client = Client(door, book.ledger("worker"))
    lease = client.ask("acquire_lease", requests.acquire("a", "stream"), "r1").value
    first = requests.commit(lease, "m1", 0, chance, events=2)
    first |= {"outbox": [{"outboxId": "o1", "destination": "mail", "payload": 1}]}
    first |= {"projections": [{"projectionId": "p", "value": 1}]}
    client.ask("commit", first)
    client.ask("mark_outbox_delivered", {"outboxId": "o1"})
    swapped = client.ask("compare_and_swap_lease", requests.swap(lease), "r2").value
    client.ask("commit", requests.commit(swapped, "m2", 2, chance, events=1))
    client.ask("commit", requests.commit(swapped, "m3", 3, chance, events=1))
    book.asks[-1].answer = None  # as if the worker had been killed
    client.ask("commit", requests.commit(lease, "stale", 4, chance))
    door.close()
    return book


def _verdict(path: Path, book: Book) -> Verdict:
    verdict = Verdict()
    judge(verdict, book, NOTHING, Evidence.of(path))
    return verdict


def test_a_store_as_it_was_left_is_sound_and_repetitions_are_recovered(
    path: Path, book: Book
) -> None:
    verdict = examine(path, None, book, NOTHING, "s0")
    assert verdict.faults == []
    assert dict(verdict.counts) == {"acknowledged": 5, "unacknowledged and stored": 1}
    repeated = [ask for ask in book.asks if ask.worker == "after" and ask.key == "m3"]
    assert [ask.answer and ask.answer.value["recovered"] for ask in repeated] == [True, True]


def test_what_is_not_acknowledged_may_be_missing(path: Path, book: Book) -> None:
    with raw(path) as connection:
        _without_guards(connection)
        connection.executescript(
            "DELETE FROM events WHERE message_id = 'm3'; DELETE FROM outbox WHERE message_id = 'm3';"
            "DELETE FROM inbox WHERE message_id = 'm3'; DELETE FROM projections"
            " WHERE projection_id <> 'p'; UPDATE streams SET revision = 3"
        )
    verdict = _verdict(path, book)
    assert verdict.counts["unacknowledged and not stored"] == 1
    assert [kind for kind, _ in verdict.faults if kind != "lost"] == []


# What somebody did, and what the verdict calls it.
CHANGES = {
    "DELETE FROM inbox WHERE message_id = 'm2'": "lost",
    "UPDATE inbox SET result_json = replace(result_json, '2', '3') WHERE message_id = 'm2'": "lost",
    "DELETE FROM mutation_receipts WHERE request_id = 'r1'": "lost",
    "UPDATE projections SET value_json = '7' WHERE projection_id = 'p'": "lost",
    "DELETE FROM events WHERE message_id = 'm2'": "half done",
    "DELETE FROM outbox WHERE outbox_id = 'o1'": "half done",
    "UPDATE events SET payload_json = '0'": "half done",
    "UPDATE events SET producer_epoch = 1": "half done",
    "INSERT INTO inbox SELECT 'other', request_hash, stream_id, applied_revision, result_json,"
    " applied_at FROM inbox LIMIT 1": "doubled",
    "INSERT INTO inbox SELECT 'stale', request_hash, stream_id, applied_revision, result_json,"
    " applied_at FROM inbox LIMIT 1": "stale writes",
    "UPDATE outbox SET attempts = 2": "doubled",
    "UPDATE outbox SET attempts = 0": "doubled",
    "UPDATE actor_leases SET epoch = 1": "epochs gone back",
}


@pytest.mark.parametrize("sql", CHANGES)
def test_what_somebody_has_changed_is_found(path: Path, book: Book, sql: str) -> None:
    with raw(path) as connection:
        _without_guards(connection)
        connection.execute(sql)
    assert CHANGES[sql] in {kind for kind, _ in _verdict(path, book).faults}


def _without_guards(connection: Any) -> None:
    triggers = "SELECT name FROM sqlite_schema WHERE type = 'trigger'"
    for (name,) in connection.execute(triggers).fetchall():
        connection.execute(f"DROP TRIGGER {name}")


def _again(book: Book, key: str, **changes: Any) -> Answer:
    """The answer of the first ask with a key, changed, as that of another."""
    first = next(ask for ask in book.asks if ask.key == key)
    assert first.answer is not None
    at = max(ask.at for ask in book.asks) + 1
    answer = Answer(first.answer.kind, first.answer.value | changes, at + 1)
    book.asks.append(replace(first, worker="other", at=at, answer=answer))
    return answer


def test_a_message_that_takes_effect_twice_is_found(path: Path, book: Book) -> None:
    _again(book, "m2")
    kinds = {kind for kind, _ in _verdict(path, book).faults}
    assert kinds == {"doubled", "wrong answers"}


def test_a_commit_after_its_lease_has_ended_is_found(path: Path, book: Book) -> None:
    for ask in book.asks:
        if ask.operation == "compare_and_swap_lease" and ask.answer is not None:
            ask.answer.value["expiresAt"] = ask.answer.value["acquiredAt"]
    faults = [fault for kind, fault in _verdict(path, book).faults if kind == "stale writes"]
    assert [fault.split()[0] for fault in faults] == ["m2", "m3"]


def test_a_recovered_result_that_differs_is_found(path: Path, book: Book) -> None:
    _again(book, "m2", recovered=True, revision=9)
    assert [kind for kind, _ in _verdict(path, book).faults] == ["lost"]


def test_an_epoch_that_was_granted_twice_is_found(path: Path, book: Book) -> None:
    _again(book, "r2", nonce="another")
    faults = [fault for kind, fault in _verdict(path, book).faults if kind == "epochs gone back"]
    assert faults == ["epoch 2 of stream was granted twice"]


def test_an_error_that_nobody_may_get_is_found(path: Path, book: Book) -> None:
    book.asks[-1].answer = Answer.error(ValueError("of a driver"))
    faults = _verdict(path, book).faults
    assert faults == [("wrong answers", "commit raised ValueError: of a driver")]


def test_a_part_of_a_unit_of_work_is_found(path: Path, book: Book) -> None:
    for ask in book.asks[-2:]:  # of which one is stored
        ask.unit = "unit"
    assert ("half done", "of unit, one transaction, a part is stored") in _verdict(
        path, book
    ).faults


def test_a_lock_that_is_left_is_found(path: Path, book: Book) -> None:
    with raw(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        verdict = examine(path, None, book, NOTHING, "s0", patience_ms=50)
    assert [kind for kind, _ in verdict.faults] == ["locks left"]
