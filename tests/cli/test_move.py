"""`broker move`: exit codes, JSON, a progress bar, and that a refusal leaves both sides alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker import schema
from broker.cli.demo import legacy
from tests.cli.support import broker, environment, run
from tests.moving_support import dump, make_full, make_wide
from tests.places import PlaceOn, url_of
from tests.support import ManualClock


@pytest.fixture
def full(tmp_path: Path, clock: ManualClock) -> Path:
    """A store with rows of every kind, in a file."""
    return make_full(tmp_path / "full.db", clock)


def test_a_store_is_moved_and_each_table_counted_and_hashed(full: Path, tmp_path: Path) -> None:
    done = broker("move", "sqlite:///full.db", "sqlite:///moved.db", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:8]] == [
        ["metadata", "2"],
        ["actor_leases", "3"],
        ["streams", "2"],
        ["inbox", "2"],
        ["mutation_receipts", "1"],
        ["events", "5"],
        ["outbox", "3"],
        ["projections", "1"],
    ]
    assert all(len(line.split()[2]) == 64 for line in lines[:8])
    assert "clock floor: 61000; last cursor: 2000" in lines
    assert lines[-1] == "moved: both databases hold the same rows"
    assert dump(tmp_path / "moved.db") == dump(full)


@pytest.mark.parametrize("kind", ["empty sqlite", "empty postgresql"])
def test_json_has_all_that_was_verified(
    full: Path, place_on: PlaceOn, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with place_on(kind) as target:
        code, out, err = run(capsys, "move", url_of(full), url_of(target), "--json")
    answer = json.loads(out)
    assert (code, err, answer["ok"]) == (0, "", True)
    assert answer["tables"].keys() == dump(full).keys()
    assert answer["tables"]["events"]["rows"] == 5
    assert answer["revisions"].keys() == answer["epochs"].keys() == {"rows", "sha256"}
    assert (answer["floor"], answer["last_cursor"]) == (61_000, 2_000)


def test_a_store_goes_into_a_schema_of_postgresql_and_back(
    full: Path, tmp_path: Path, place_on: PlaceOn, capsys: pytest.CaptureFixture[str]
) -> None:
    back = f"sqlite:///{tmp_path / 'back.db'}"
    with place_on("empty postgresql") as target:
        url = url_of(target)
        assert run(capsys, "move", url_of(full), url, "--schema", "tenant")[0] == 0
        code, _, err = run(capsys, "move", url, back)
        assert (code, err.count("\n")) == (2, 1)  # there is none in the usual schema
        assert not (tmp_path / "back.db").exists()
        assert run(capsys, "move", url, back, "--schema", "tenant")[0] == 0
    assert dump(tmp_path / "back.db") == dump(full)


def test_a_target_that_is_not_empty_is_one_line_and_exit_code_2(
    full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    used = make_wide(tmp_path / "used.db", 3)
    before = used.read_bytes()
    code, out, err = run(capsys, "move", url_of(full), url_of(used))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the target holds a store already" in err
    code, out, err = run(capsys, "move", url_of(full), url_of(used), "--json")
    error = json.loads(out)["error"]
    assert (code, err, error["code"]) == (2, "", "schema_error")
    assert error["details"] == {"table": "streams"}
    assert used.read_bytes() == before


def test_an_older_source_is_to_be_upgraded_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    legacy.make(tmp_path / "old.db")
    target = tmp_path / "target.db"
    code, out, err = run(capsys, "move", url_of(tmp_path / "old.db"), url_of(target))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "broker upgrade" in err
    assert not target.exists()


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://user:secret@host/name", "sqlite://:secret@/x.db"]
)
def test_a_url_that_is_refused_is_not_shown(
    full: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ((url_of(full), url), (url, url_of(full))):
        code, out, err = run(capsys, "move", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "secret" not in err


@pytest.mark.parametrize("arguments", [(), ("sqlite:///one.db",), ("a", "b", "c")])
def test_both_databases_have_to_be_named(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "move", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_progress_bar_is_shown_to_a_terminal_only(tmp_path: Path) -> None:
    make_wide(tmp_path / "wide.db", 1_000)
    schema.upgrade(f"sqlite:///{tmp_path / 'moved.db'}")
    reader, terminal = os.openpty()
    subprocess.run(
        [sys.executable, "-m", "broker", "move", "sqlite:///wide.db", "sqlite:///moved.db"],
        cwd=tmp_path,
        stderr=terminal,
        stdout=subprocess.DEVNULL,
        env=environment(TERM="xterm"),
        check=True,
    )
    os.close(terminal)
    shown = os.read(reader, 65_536)
    os.close(reader)
    assert b"verifying rows" in shown
    assert b"2002/2002" in shown
