"""The command as a whole: version, help, schemas, the environment, and a user's mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import broker as package
from broker.messages import json_schemas
from tests.cli.support import BROKER, ROOT, broker, environment, run


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    done = broker("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"broker {package.__version__}\n")


def test_without_a_command_the_commands_are_listed(tmp_path: Path) -> None:
    done = broker(cwd=tmp_path)
    assert done.returncode == 2
    for command in ("demo", "upgrade", "check", "apply", "schemas"):
        assert f" {command} " in done.stdout


def test_it_runs_as_a_module_of_the_cli_as_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli", "--version"],
        cwd=tmp_path,
        capture_output=True,
        env=environment(),
        check=True,
    )
    assert done.stdout.startswith(b"broker ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("--nonsense",),
        ("check", "--nonsense"),
        ("check", "--url"),
        ("upgrade", "head", "more"),
        ("upgrade", "nonsense"),
        ("schemas", "Nonsense"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")


def test_the_url_comes_from_the_environment_and_the_option_comes_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'one.db'}"
    assert broker("upgrade", cwd=tmp_path, BROKER_DATABASE_URL=url).returncode == 0
    assert broker("check", cwd=tmp_path, BROKER_DATABASE_URL=url).returncode == 0
    other = ("check", "--url", "sqlite:///two.db")
    assert broker(*other, cwd=tmp_path, BROKER_DATABASE_URL=url).returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["one.db"]


def test_the_schemas_are_printed_as_one_document_or_one_by_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = run(capsys, "schemas")
    assert (code, json.loads(out)) == (0, json_schemas())
    code, out, _ = run(capsys, "schemas", "CommitRequest")
    assert (code, json.loads(out)) == (0, json_schemas()["CommitRequest"])


def test_a_process_without_standard_streams_is_served_as_well(tmp_path: Path) -> None:
    command = f"{' '.join(BROKER)} apply - <&- && {' '.join(BROKER)} check >&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, env=environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_reader_who_has_seen_enough_is_no_reason_for_a_traceback(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*BROKER, "schemas"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    with process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, stderr = process.communicate(timeout=20)
    assert stderr == b""


def test_importing_the_package_imports_nothing_of_the_command() -> None:
    code = "import broker, sys; print(sorted({'typer', 'rich', 'alembic'} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_command_itself_is_light_until_it_has_work() -> None:
    code = (
        "import broker.cli, sys; print(sorted({'rich.progress', 'alembic'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
