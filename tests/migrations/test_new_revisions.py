"""`alembic revision` in a copy of the folder: what it writes compiles, and changes nothing by itself."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest

from broker import schema
from tests.migrations import postgres_support
from tests.migrations.support import ROOT, assert_one_line, run_alembic, run_sql, url
from tests.places import PostgresPlace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the revisions with an alembic.ini, in which a command can be run."""
    copy = tmp_path / "checkout"
    shutil.copytree(
        ROOT / "alembic", copy / "alembic", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "alembic.ini", copy)
    return copy


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "new.db"
    schema.upgrade(url(path))
    return path


def new(
    folder: Path, database: Path | PostgresPlace, *arguments: str, message: str = "more"
) -> subprocess.CompletedProcess[str]:
    target = database.url if isinstance(database, PostgresPlace) else url(database)
    options = ("-c", str(folder / "alembic.ini"), "-x", f"url={target}")
    return run_alembic(*options, "revision", "--rev-id", "0005", "-m", message, *arguments)


def written(folder: Path) -> str:
    (file,) = (folder / "alembic" / "versions").glob("0005_*.py")
    text = file.read_text()
    compile(text, str(file), "exec")
    return text


def statements(text: str) -> list[str]:
    """What `upgrade` and `downgrade` do, comments left out."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert [function.name for function in functions] == ["upgrade", "downgrade"]
    blocks = [function.body[0] for function in functions]
    return [
        ast.unparse(line) for block in blocks if isinstance(block, ast.With) for line in block.body
    ]


NOTHING = ["current.execute()", "current.execute()"]


@pytest.mark.parametrize("arguments", [[], ["--autogenerate"]], ids=["plain", "autogenerate"])
def test_a_revision_without_drift_is_an_empty_frame(
    arguments: list[str], folder: Path, database: Path
) -> None:
    answer = new(folder, database, *arguments)

    assert answer.returncode == 0, answer.stderr
    text = written(folder)
    assert statements(text) == NOTHING
    assert "#" not in text


def test_drift_is_written_down_as_comments_where_the_statements_belong(
    folder: Path, database: Path
) -> None:
    run_sql(
        database,
        """
        DROP TRIGGER streams_no_delete;
        CREATE INDEX mine ON inbox(applied_at);
        CREATE TABLE made (a TEXT DEFAULT 'x');
        DROP INDEX outbox_pending_idx;
        CREATE INDEX outbox_pending_idx ON outbox(delivered_at)
          WHERE destination <> 'a
        import os; os.abort() # \"\"\" :
b';
        """,
    )
    before = database.read_bytes()

    answer = new(folder, database, "--autogenerate")

    assert answer.returncode == 0, answer.stderr
    text = written(folder)
    assert statements(text) == NOTHING
    lines = text.splitlines()
    assert "        # drift: inbox: index mine is not one of ours" in lines
    assert "        # drift: streams: trigger streams_no_delete is missing" in lines
    assert text.count("# drift: ") == text[: text.index("def downgrade")].count("# drift: ") == 4
    assert all(line.startswith("        #") for line in lines if "abort" in line)
    assert database.read_bytes() == before


@pytest.mark.parametrize("message", ['say "hello"', "back\\slash\\", 'x"""y', "two\nlines"])
def test_any_message_compiles(message: str, folder: Path, database: Path) -> None:
    assert new(folder, database, message=message).returncode == 0

    assert ast.get_docstring(ast.parse(written(folder)), clean=False) == message


def test_a_new_revision_can_be_run(folder: Path, database: Path) -> None:
    new(folder, database, "--autogenerate")
    at = ("-c", str(folder / "alembic.ini"), "-x", f"url={url(database)}")

    # The package knows no 0005, and says so instead of committing it.
    assert_one_line(run_alembic(*at, "upgrade", "head"), 1, "0005")
    assert schema.current(url(database)).at_head


def test_a_database_that_is_not_there_has_no_drift_to_write_down(
    folder: Path, tmp_path: Path
) -> None:
    answer = new(folder, tmp_path / "missing.db", "--autogenerate")

    assert_one_line(answer, 1, "no database at")
    assert not list((folder / "alembic" / "versions").glob("0005_*.py"))


def test_drift_on_postgresql_is_written_down_too(folder: Path, server: PostgresPlace) -> None:
    postgres_support.run(
        server,
        "CREATE INDEX mine ON inbox (applied_at);"
        " UPDATE broker_alembic_version SET version_num = '0003'",
    )

    answer = new(folder, server, "--autogenerate")

    assert answer.returncode == 0, answer.stderr
    text = written(folder)
    assert statements(text) == NOTHING
    assert "        # drift: inbox: index mine is not one of ours\n" in text
    assert (
        "        # drift: broker_alembic_version: recorded version is 0003 instead of 0004\n"
        in text
    )
