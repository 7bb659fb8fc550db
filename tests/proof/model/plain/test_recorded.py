"""The plain store answers what was recorded: so it may stand for the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conformance import OPERATIONS, Case, differences, expected_answer, read_cases, same
from tests.proof.model.plain.database import Database, Refused
from tests.proof.model.plain.owners import is_runtime_event, owner_after
from tests.proof.model.plain.store import Limits, PlainStore
from tests.proof.model.plain.tables import tables
from tests.proof.model.plain.text import canonical, sha256, stored
from tests.support import ManualClock

VECTORS = Path(__file__).parents[3] / "vectors"


def cases(*names: str) -> list[Any]:
    """The recorded cases of some files."""
    return [
        pytest.param(case, id=name)
        for file in names
        for name, case in read_cases(VECTORS / f"{file}.jsonl")
    ]


class Asked:
    """Stands where a store would be, and answers what the plain one does."""

    def __init__(self, plain: PlainStore) -> None:
        self._plain = plain

    def __getattr__(self, operation: str) -> Any:
        return lambda request, request_id=None: self._plain.answer(operation, request, request_id)


def replay(case: Case) -> tuple[Database, list[tuple[Case, Case]]]:
    """What is stored after a history, and what its steps should have answered and did not."""
    hands = ManualClock(case["start"]["now"], case["start"]["mono"])
    capacity = case.get("options", {}).get("receiptCapacity", 4_096)
    plain = PlainStore(Database(), hands, "nonce", Limits(receipt_capacity=capacity))
    wrong = []
    for step in case["steps"]:
        hands.wall_ms, hands.monotonic_ms = step["now"], step["mono"]
        if step["op"] == "restart":
            plain.open()
            continue
        expected = expected_answer(step["expect"])
        answer: Any = OPERATIONS[step["op"]](Asked(plain), step)  # type: ignore[arg-type]
        if not same(expected, answer):
            wrong.append((expected, answer))
    return plain.database, wrong


@pytest.mark.parametrize("file", ["leases", "commits", "reads", "validation"])
def test_histories_are_answered_and_stored_as_they_were_recorded(file: str) -> None:
    for name, case in read_cases(VECTORS / f"{file}.jsonl"):
        database, wrong = replay(case)
        assert wrong == [], name
        found = tables(database) | {"user_version": 3}
        assert list(differences(case["final"], found)) == [], name


def test_json_is_written_as_it_was_recorded() -> None:
    for name, case in read_cases(VECTORS / "canonical_json.jsonl"):
        value = case["value"]
        assert (canonical(value), sha256(value)) == (case["canonical"], case["sha256"]), name
        assert stored(value) == case.get("stored", stored(value)), name


def test_owners_are_found_as_they_were_recorded() -> None:
    for name, case in read_cases(VECTORS / "workspaces.jsonl"):
        try:
            answer: Case = {"result": owner_after(None, case["streamId"], [case["payload"]])}
        except Refused as refused:
            answer = {"error": {"code": refused.code, "details": refused.details}}
        assert same(expected_answer(case["expect"]), answer), name
        is_nobodys = case["expect"].get("undefined", False)
        assert is_runtime_event(case["payload"]) is not is_nobodys, name
