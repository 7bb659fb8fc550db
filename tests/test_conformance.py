"""The recorded cases pass, and the runner that says so can say otherwise."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.sqlite.channel import SQLiteChannel
from tests.conformance import Case, main, read_cases, run_case, same
from tests.conformance_groups import GroupReplay
from tests.conformance_places import NotApplicable
from tests.group_support import control_statements
from tests.places import Place, PostgresPlace


def as_case(parameter: Any) -> Case:
    case: Case = parameter.values[0]
    return case


VECTORS = sorted((Path(__file__).parent / "vectors").glob("*.jsonl"))
CASES = [pytest.param(case, id=name) for path in VECTORS for name, case in read_cases(path)]
HISTORIES = [each for each in CASES if "steps" in as_case(each)]
MIGRATIONS = [each for each in CASES if "script" in as_case(each)]
OTHERS = [each for each in CASES if not {"steps", "script"} & as_case(each).keys()]
ROOT = Path(__file__).parents[1]


def test_there_are_recorded_cases_of_all_seven_kinds() -> None:
    assert [path.stem for path in VECTORS] == [
        "canonical_json",
        "commits",
        "leases",
        "migrations",
        "reads",
        "validation",
        "workspaces",
    ]
    assert len(CASES) == 393


@pytest.mark.parametrize("case", OTHERS)
def test_a_recorded_case_without_a_store_goes_as_it_was_recorded(case: Case, path: Path) -> None:
    assert list(run_case(case, path)) == []


@pytest.mark.parametrize("case", HISTORIES)
def test_a_recorded_history_goes_as_it_was_recorded(case: Case, place: Place) -> None:
    assert list(run_case(case, place)) == []


# Files of no version of the reference's, which a database of PostgreSQL's is not either.
NOT_ON_POSTGRES = {
    "v0-metadata-only",
    "v1-lease-column-missing",
    "v1-table-missing",
    "v1-table-not-strict",
    "v2-column-order",
    "v2-column-type",
    "v2-nullable-column",
    "v3-extra-tables",
    "v3-lease-index-missing",
    "v3-lease-index-not-unique",
    "v3-receipts-missing",
    "v3-trigger-missing",
    "v3-trigger-weak",
    "v3-workspace-index-columns",
    "metadata-missing",
    "metadata-not-strict",
    "version-mismatch",
    "version-newer",
    "version-row-missing",
    "version-text-+1",
    "version-text--1",
    "version-text-01",
    "version-text-1.5",
    "version-text-9007199254740993",
    "version-text-empty",
    "version-text-x",
    "versioned-but-empty",
}


@pytest.mark.parametrize("case", MIGRATIONS)
def test_a_recorded_migration_goes_as_it_was_recorded(case: Case, empty_place: Place) -> None:
    if isinstance(empty_place, PostgresPlace) and case["name"] in NOT_ON_POSTGRES:
        with pytest.raises(NotApplicable):
            list(run_case(case, empty_place))
    else:
        assert list(run_case(case, empty_place)) == []


@pytest.mark.parametrize("case", HISTORIES)
def test_a_recorded_history_goes_the_same_way_with_its_writes_in_groups(
    case: Case, path: Path
) -> None:
    assert list(run_case(case, path, replaying=GroupReplay)) == []


# --- The runner -------------------------------------------------------------------------------

Suits = Callable[[Case], bool]
Bend = Callable[[Case], None]


def _result_step(case: Case) -> Any:
    return next(step for step in case["steps"] if step["expect"].get("result"))


def _error_step(case: Case) -> Any:
    return next(step for step in case["steps"] if "details" in step["expect"].get("error", {}))


def _bend_result(case: Case) -> None:
    step = _result_step(case)
    step["expect"] = {"result": {"something": "else"}}


def _bend_details(case: Case) -> None:
    _error_step(case)["expect"]["error"]["details"]["surprise"] = 1


def _bend_row(case: Case) -> None:
    case["final"]["metadata"][0]["value"] += "0"


def _bend_version(case: Case) -> None:
    case["final"]["user_version"] = 4


def _add_row(case: Case) -> None:
    case["final"]["streams"].append({"stream_id": "never written"})


def _bend_upgraded(case: Case) -> None:
    case["expect"]["upgraded"]["streams"].append({"stream_id": "never written"})


def _bend_refusal(case: Case) -> None:
    case["expect"] = {"upgraded": {}}


def _refuse_upgrade(case: Case) -> None:
    case["expect"] = {"error": "refused"}


def _change(name: str) -> Bend:
    return lambda case: case.update({name: case[name] + " "})


def _bend_workspace(case: Case) -> None:
    case["expect"] = {"result": "nobody"}


def _has_result(case: Case) -> bool:
    return any(step.get("expect", {}).get("result") for step in case["steps"]) and all(
        "expect" in step for step in case["steps"]
    )


def _has_details(case: Case) -> bool:
    return any("details" in step.get("expect", {}).get("error", {}) for step in case["steps"])


def _without_restarts(case: Case) -> bool:
    return all("expect" in step for step in case["steps"])


def _any(_case: Case) -> bool:
    return True


BENT: dict[str, tuple[str, Suits, Bend]] = {
    "lease result": ("leases", _has_result, _bend_result),
    "lease row": ("leases", _any, _bend_row),
    "commit result": ("commits", _has_result, _bend_result),
    "commit row": ("commits", _any, _add_row),
    "read result": ("reads", _has_result, _bend_result),
    "read version": ("reads", _any, _bend_version),
    "validation details": (
        "validation",
        lambda case: _has_details(case) and _without_restarts(case),
        _bend_details,
    ),
    "canonical form": ("canonical_json", _any, _change("canonical")),
    "hash": ("canonical_json", _any, _change("sha256")),
    "stored form": ("canonical_json", lambda case: "stored" in case, _change("stored")),
    "workspace": ("workspaces", _any, _bend_workspace),
    "migrated row": ("migrations", lambda case: "upgraded" in case["expect"], _bend_upgraded),
    "migration refused": ("migrations", lambda case: "upgraded" in case["expect"], _refuse_upgrade),
    "migration done": ("migrations", lambda case: "error" in case["expect"], _bend_refusal),
}


def bent_case(stem: str, suits: Suits, bend: Bend) -> Case:
    """The first case of a file that suits, with a wrong expectation put into it."""
    (path,) = [path for path in VECTORS if path.stem == stem]
    case = copy.deepcopy(next(case for _, case in read_cases(path) if suits(case)))
    bend(case)
    return case


@pytest.mark.parametrize("bent", BENT.values(), ids=BENT)
def test_a_wrong_expectation_of_any_kind_is_reported(
    bent: tuple[str, Suits, Bend], tmp_path: Path
) -> None:
    failures = list(run_case(bent_case(*bent), tmp_path / "case.db"))
    assert failures
    assert all(failure.step for failure in failures)


IN_GROUPS = [name for name in BENT if name.split()[0] in {"lease", "commit", "read"}]


@pytest.mark.parametrize("name", IN_GROUPS)
def test_a_wrong_expectation_is_reported_with_groups_too(name: str, tmp_path: Path) -> None:
    assert list(run_case(bent_case(*BENT[name]), tmp_path / "case.db", replaying=GroupReplay))


def test_the_writes_of_a_recorded_history_are_in_groups_that_are_done_again(
    tmp_path: Path,
) -> None:
    (path,) = [path for path in VECTORS if path.stem == "commits"]
    with control_statements() as statements:
        for number, (_, case) in enumerate(read_cases(path)):
            assert list(run_case(case, tmp_path / str(number), replaying=GroupReplay)) == []
    assert statements.count("ROLLBACK") > 40
    assert statements.count("SAVEPOINT broker_effects") > 1.5 * statements.count("ROLLBACK")


def test_a_store_that_keeps_something_of_a_refused_companion_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = SQLiteChannel.control

    def keep(channel: SQLiteChannel, sql: str) -> None:
        if not sql.startswith("ROLLBACK TO"):
            control(channel, sql)

    monkeypatch.setattr(SQLiteChannel, "control", keep)
    (path,) = [path for path in VECTORS if path.stem == "commits"]
    _, case = next(read_cases(path))
    failures = list(run_case(case, tmp_path / "case.db", replaying=GroupReplay))
    assert "finally, streams" in [failure.step for failure in failures]


def test_a_failure_names_case_step_expected_and_actual(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bent.jsonl"
    file.write_text(json.dumps(bent_case(*BENT["lease result"])) + "\n")
    assert main([str(file)]) == 1
    first, expected, actual, last = capsys.readouterr().out.splitlines()
    assert first.startswith("bent.jsonl:1 ")
    assert ": step " in first
    assert expected == '  expected {"result": {"something": "else"}}'
    assert actual.startswith('  actual   {"result": ')
    assert last == "0 passed, 1 failed"


def test_a_case_of_no_known_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no known kind"):
        run_case({"name": "?", "surprise": 1}, tmp_path / "case.db")


def test_an_error_that_should_have_been_a_result_is_reported(tmp_path: Path) -> None:
    case = bent_case("leases", _has_result, _bend_result)
    _result_step(case)["expect"] = {"error": {"code": "stale_lease", "details": {}}}
    assert list(run_case(case, tmp_path / "case.db"))


def test_an_expected_error_without_details_has_none(tmp_path: Path) -> None:
    case = bent_case(
        "validation", lambda case: _has_details(case) and _without_restarts(case), _bend_details
    )
    del _error_step(case)["expect"]["error"]["details"]
    assert list(run_case(case, tmp_path / "case.db"))


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        ([1, {"a": 1}], [1.0, {"a": 1.0}], True),
        ([1], [1, 1], False),
        ({"a": None}, {}, False),
        (None, 0, False),
        ({"a": [True]}, {"a": [1]}, False),
        ("1", 1, False),
    ],
)
def test_values_are_compared_as_json(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) is equal
    assert same(other, one) is equal


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.conformance", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_runs_files_of_any_kind_and_ends_with_the_count(tmp_path: Path) -> None:
    small = [path for path in VECTORS if path.stem in {"canonical_json", "workspaces"}]
    mixed = tmp_path / "mixed.jsonl"
    lines = [path.read_text().splitlines()[0] for path in VECTORS]
    mixed.write_text("\n".join(lines) + "\n\n")
    count = len(lines) + sum(len(path.read_text().splitlines()) for path in small)
    ran = run(str(mixed), *map(str, small))
    assert ran.stdout.splitlines()[-1] == f"{count} passed, 0 failed"
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_command_ends_with_1_if_anything_failed(tmp_path: Path) -> None:
    file = tmp_path / "bent.jsonl"
    good = VECTORS[0].read_text().splitlines()[0]
    file.write_text(f"{good}\n{json.dumps(bent_case(*BENT['hash']))}\n")
    ran = run(str(file))
    assert ran.stdout.splitlines()[-1] == "1 passed, 1 failed"
    assert ran.returncode == 1


def test_the_command_without_files_has_nothing_to_fail() -> None:
    ran = run()
    assert (ran.stdout, ran.returncode) == ("0 passed, 0 failed\n", 0)
