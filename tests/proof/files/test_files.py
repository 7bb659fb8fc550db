"""The short form of the proof about hostile files and schemas, and that it sees what is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.errors import CorruptRow, DatabaseUnavailable
from broker.schema import intruders
from broker.shapes import Shape
from tests.places import PlaceOn, raw
from tests.proof.files import damages, judging, pages, try_schema
from tests.proof.files.judging import Original, Whole, judge_operations, judge_reads, judge_writes
from tests.proof.files.original import fill
from tests.proof.files.postgres_schemas import SCHEMAS as POSTGRES_SCHEMAS
from tests.proof.files.postgres_schemas import try_schema as try_schema_on_postgresql
from tests.proof.files.schemas import SCHEMAS, damage, value
from tests.proof.report import Report


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Original:
    """A file that is whole, and what it answers."""
    return Original(tmp_path_factory.mktemp("files"))


Try = Callable[[Report, int, Original, random.Random], None]


@pytest.mark.parametrize(
    ("try_one", "runs"),
    [(damages.try_flip, 30), (damages.try_cut, 20), (damages.try_log, 8), (damages.try_other, 40)],
    ids=["bits", "cut off", "logs", "others"],
)
def test_a_damaged_file_is_refused_or_answers_what_is_right(
    path: Path, whole: Original, try_one: Try, runs: int
) -> None:
    report = Report()
    for seed in range(runs):
        try_one(report, seed, whole, random.Random(seed))
    assert report.violations == []
    assert report.counts["refused"] + report.counts["right answers"] > runs


@pytest.mark.parametrize("part", range(4))
def test_a_hostile_schema_is_refused_or_harmless(path: Path, tmp_path: Path, part: int) -> None:
    report = Report()
    for number in range(part, len(SCHEMAS), 4):
        report.add(try_schema(number, tmp_path / "schemas"))
    assert report.violations == []
    assert report.counts["refused"] > report.counts["hostile schemas"]


@pytest.fixture(scope="module")
def whole_on_server(place_on: PlaceOn) -> Iterator[Whole]:
    """What a store on a server answers."""
    with place_on("postgresql") as place:
        fill(place)
        yield Whole(place)


@pytest.mark.parametrize("number", range(0, len(POSTGRES_SCHEMAS), 4))
def test_a_hostile_schema_on_a_server_is_refused_or_harmless(
    place_on: PlaceOn, whole_on_server: Whole, number: int
) -> None:
    report = Report()
    with place_on("postgresql") as place:
        try_schema_on_postgresql(report, number, place, whole_on_server)
    assert report.violations == []
    assert report.counts["refused"] + report.counts["right answers"] > 0


# ------------------------------------------------------------------------ what is wrong is seen


def _never(_question: str) -> bool:
    return False


def test_another_value_is_a_wrong_answer(path: Path, whole: Original) -> None:
    copy, report = whole.copy(), Report()
    damage(copy, value("projections", "value_json", "'0'"))
    judge_reads(report, 7, "another value", copy, whole.answers, _never)
    assert [each.seed for each in report.violations] == [7]
    assert report.violations[0].what.endswith("a wrong answer taken for right")


def test_without_looking_for_intruders_wrong_answers_are_seen(
    path: Path, whole: Original, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.opening.refuse_intruders", lambda _connection: None)
    copy, report = whole.copy(), Report()
    damage(copy, SCHEMAS["trigger that deletes outbox messages"])
    judge_writes(report, 7, "trigger", copy, whole)
    assert report.counts["wrong answers"] > 0
    assert intruders.refuse_intruders is not None


def test_without_shapes_bare_errors_are_seen(
    path: Path, whole: Original, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shape, "require", lambda *_: None)
    copy, report = whole.copy(), Report()
    damage(copy, value("events", "message_id", "7"))
    judge_reads(report, 7, "a number", copy, whole.answers, _never)
    assert report.counts["bare errors"] > 0
    assert "TypeError" in report.violations[0].what


def test_a_file_that_is_refused_and_changed_is_seen(
    path: Path, whole: Original, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, report = whole.copy(), Report()

    def upgrade(changed: Path) -> Any:
        with raw(changed) as connection:
            connection.execute("PRAGMA application_id=7")
        raise DatabaseUnavailable("refused")

    monkeypatch.setattr(judging, "upgraded", upgrade)
    judge_operations(report, 7, "upgrade", copy)
    assert "refused, and changed" in report.violations[0].what


def test_a_documented_error_is_no_violation(path: Path, whole: Original) -> None:
    copy, report = whole.copy(), Report()
    damage(copy, value("projections", "value_json", "x'00'"))
    judge_reads(report, 7, "a BLOB", copy, whole.answers, _never)
    assert report.violations == []
    assert report.counts["answers that are errors"] == 1
    assert CorruptRow.code == "corrupt_row"


def test_the_map_of_a_file_tells_values_from_keys_and_structure(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE t (k TEXT PRIMARY KEY, v TEXT)")
        connection.execute("INSERT INTO t VALUES ('the-key', ?)", ("the-value" * 1_000,))
    data = path.read_bytes()
    plan = pages.map_of(data)
    uses = {plan.use_of(at) for at in _places(data, b"the-key")}
    assert uses == {"value", "key"}
    assert {plan.use_of(at) for at in _places(data, b"the-value")} == {"value"}
    assert plan.use_of(17) == "file header"
    assert set(plan.kinds.values()) == {"table leaf", "index leaf", "overflow"}


def _places(data: bytes, text: bytes) -> list[int]:
    found = [data.find(text)]
    while found[-1] >= 0:
        found.append(data.find(text, found[-1] + 1))
    return found[:-1]
