"""The `alembic` command, as an operator or a CI job runs it; once as a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker import schema
from tests.migrations.support import (
    ROOT,
    assert_one_line,
    on,
    rows,
    run_alembic,
    run_alembic_process,
    run_sql,
    schema_of,
    url,
    version_1,
)


def test_upgrade_says_what_each_step_changed_and_current_where_it_stands(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")

    upgraded = run_alembic_process("-x", f"url={url(path)}", "upgrade", "head")
    current = on(path, "current")

    assert (upgraded.returncode, upgraded.stderr) == (0, "")
    assert [line[:4] for line in upgraded.stdout.splitlines()] == ["0002", "0003", "0004"]
    assert "events read: 6" in upgraded.stdout
    assert current.stdout == "0004 (head)\n"


def test_the_environment_may_name_the_database_and_the_command_may_run_elsewhere(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new.db"

    answer = run_alembic(
        "-c", str(ROOT / "alembic.ini"), "upgrade", "head", cwd=tmp_path, database=url(path)
    )

    assert (answer.returncode, answer.stderr) == (0, "")
    assert schema.current(url(path)).at_head


def test_history_needs_no_database() -> None:
    answer = run_alembic("history")

    assert answer.returncode == 0
    assert len(answer.stdout.splitlines()) == 4


def test_current_tells_the_version_of_an_adopted_database_without_writing(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    before = path.read_bytes()

    answer = on(path, "current")

    assert answer.stdout == "0001\n"
    assert path.read_bytes() == before


def test_b18_check_exits_0_when_there_is_no_drift(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path))

    answer = on(path, "check")

    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("no drift")


def test_b18_check_exits_1_with_a_line_for_each_fact(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path))
    run_sql(path, "DROP TRIGGER streams_no_delete; CREATE INDEX mine ON inbox(applied_at)")

    answer = on(path, "check")

    assert answer.returncode == 1
    assert answer.stdout.splitlines() == [
        "inbox: index mine is not one of ours",
        "streams: trigger streams_no_delete is missing",
    ]


def test_b18_check_exits_2_when_it_cannot_look(tmp_path: Path) -> None:
    missing = tmp_path / "missing.db"
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear Sir or Madam, " * 100)

    assert_one_line(on(missing, "check"), 2, "no database at")
    assert_one_line(on(letter, "check"), 2, "not an SQLite database")
    assert_one_line(run_alembic("check"), 2, "which database?")
    assert not missing.exists()


@pytest.mark.parametrize("command", ["upgrade", "downgrade"])
def test_b21_offline_mode_is_refused_before_anything_is_printed(
    command: str, tmp_path: Path
) -> None:
    path = tmp_path / "new.db"

    answer = on(path, command, "0001:0003" if command == "upgrade" else "0003:0001", "--sql")

    assert_one_line(answer, 1, "need the live database")
    assert not path.exists()


def test_downgrade_loses_data_only_on_request(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    schema.upgrade(url(path))

    assert_one_line(on(path, "downgrade", "0002"), 1, "owners of streams: 2")
    answer = on(path, "-x", "lose-data=yes", "downgrade", "0002")

    assert answer.returncode == 0
    assert "owners of streams lost: 2" in answer.stdout
    assert schema.current(url(path)).version == 2


def test_a_shared_database_has_to_be_called_shared(tmp_path: Path) -> None:
    path = run_sql(tmp_path / "app.db", "CREATE TABLE orders (id INTEGER)")

    assert_one_line(on(path, "upgrade", "head"), 1, "shared=yes")
    answer = on(path, "-x", "shared=yes", "upgrade", "head")

    assert answer.returncode == 0
    assert ("orders",) in rows(path, "SELECT name FROM sqlite_schema")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["current"], "which database?"),
        (["-x", "url=nonsense", "current"], "not a database URL"),
        (["-x", "url=mysql://host/db", "upgrade", "head"], "is not supported by this version"),
        (["-x", "uri=sqlite:///x.db", "current"], "there is no other -x than"),
        (["-x", "url=sqlite:///x.db", "-x", "shared=1", "current"], "yes or no"),
        (["-x", "url=sqlite:////dev/null/x.db", "upgrade", "head"], "folder of"),
    ],
)
def test_a_mistake_is_answered_with_one_line(arguments: list[str], text: str) -> None:
    assert_one_line(run_alembic(*arguments), 1, text)


def test_an_unknown_revision_is_answered_without_a_traceback(tmp_path: Path) -> None:
    answer = on(tmp_path / "new.db", "upgrade", "nope")

    assert answer.returncode != 0
    assert "nope" in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_false_stamp_is_refused_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    schema.upgrade(url(path), "0002")
    before = path.read_bytes()

    assert_one_line(on(path, "stamp", "head"), 1, "0004")
    assert path.read_bytes() == before


def test_the_commands_leave_no_temporary_table_behind(tmp_path: Path) -> None:
    path = version_1(tmp_path / "1.db")
    before = schema_of(path)

    on(path, "current")
    on(path, "check")
    on(path, "history", "--indicate-current")

    assert schema_of(path) == before
