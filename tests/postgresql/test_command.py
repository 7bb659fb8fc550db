"""The command on a server: the same lines, and a store in a schema of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import run
from tests.places import Place, rows, url_of

LINES = [
    {"method": "lease.acquire", "params": {"actorId": "a", "holderId": "h", "ttlMs": 1_000}},
    {"method": "journal.events", "params": {}},
]


def test_lines_are_served_from_a_store_in_a_schema(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines"
    file.write_text("\n".join(map(json.dumps, LINES)))

    code, out, _ = run(capsys, "apply", str(file), "--url", url_of(place), "--schema", "mine")

    assert code == 0
    assert [json.loads(line)["ok"] for line in out.splitlines()] == [True, True]
    assert rows(place, "SELECT actor_id FROM mine.actor_leases") == [("a",)]
    assert rows(place, "SELECT actor_id FROM actor_leases") == []


def test_a_server_that_is_not_there_is_said_in_one_line_without_the_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = "postgresql+psycopg://someone:secret@127.0.0.1:1/store"

    code, out, err = run(capsys, "check", "--url", url)

    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert "out of reach" in line
    assert "secret" not in line


def test_a_driver_that_is_not_ours_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "upgrade", "--url", "postgresql+asyncpg://someone@127.0.0.1/store")

    assert code == 2
    assert "write postgresql+psycopg://" in err
