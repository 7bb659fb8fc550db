"""What a database says is printed as text: no character of it is a command to a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker import schema
from broker.schema.printable import one_line, printable
from tests.cli.support import run
from tests.migrations.support import on
from tests.places import execute, url_of

HOSTILE = "orders\x1b[2J\x1b]0;owned\x07\u202e[red]\r\nno drift"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A store whose table has an index of a name that is commands to a terminal."""
    path = tmp_path / "broker.db"
    schema.upgrade(url_of(path))
    execute(path, f'CREATE INDEX "{HOSTILE}" ON streams (created_at)')
    return path


def test_text_is_printed_as_it_is_and_whatever_else_as_its_escape() -> None:
    assert printable("größe — 大きさ [red]") == "größe — 大きさ [red]"
    assert printable("\x1b[2J\x9b\u202e\ud800\U000e0001") == (
        "\\x1b[2J\\x9b\\u202e\\ud800\\U000e0001"
    )
    assert one_line(" a\r\nb\u2028c\x00 ") == "a b c\\x00"


def test_broker_check_prints_facts_that_are_text(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = run(capsys, "check", "--url", url_of(hostile))
    assert code == 1
    assert "orders\\x1b[2J\\x1b]0;owned\\x07\\u202e[red]" in said
    assert all(line.isprintable() for line in said.split("\n"))
    assert "no drift" not in said.splitlines()


def test_alembic_check_prints_facts_that_are_text(hostile: Path) -> None:
    answer = on(hostile, "check")
    assert answer.returncode == 1
    assert "orders\\x1b[2J" in answer.stdout
    assert all(line.isprintable() for line in answer.stdout.split("\n"))


def test_an_error_is_a_line_of_text_from_either_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/missing{HOSTILE}.db"
    said = [run(capsys, "check", "--url", url)[2], on(Path(url[10:]), "check").stderr]
    for line in said:
        assert line.startswith("error: there is no database at ")
        assert line.rstrip("\n").isprintable()
