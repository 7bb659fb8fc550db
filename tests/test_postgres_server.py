"""The server for the tests: found, started, stopped, and gone with whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from tests import postgres_server
from tests.postgres_server import HOW_TO_GET_IT, URL_VARIABLE, copied, find_binaries, running
from tests.support import ROOT, start_python

needs_binaries = pytest.mark.skipif(
    find_binaries() is None and "CI" not in os.environ, reason=HOW_TO_GET_IT
)


def make_binaries(folder: Path) -> Path:
    """What looks like an installation."""
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (folder / name).touch()
    return folder


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system without PostgreSQL."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(postgres_server, "SYSTEM", tmp_path / "postgresql")
    monkeypatch.setattr(postgres_server, "WHEELS", {})
    return tmp_path


# -------------------------------------------------------------------------------------- finding it


def test_without_any_there_is_none(system: Path) -> None:
    assert find_binaries() is None
    with pytest.raises(FileNotFoundError, match="postgres-binaries"), running():
        pass


def test_the_newest_version_of_the_system_is_taken(system: Path) -> None:
    for version in ("9", "15", "common", "14"):
        make_binaries(system / "postgresql" / version / "bin")
    assert find_binaries() == system / "postgresql" / "15" / "bin"


def test_a_version_without_the_server_is_passed_over(system: Path) -> None:
    make_binaries(system / "postgresql" / "15" / "bin")
    (system / "postgresql" / "17" / "bin").mkdir(parents=True)
    assert find_binaries() == system / "postgresql" / "15" / "bin"


def test_what_pg_config_tells_comes_first(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_binaries(system / "postgresql" / "15" / "bin")
    elsewhere = make_binaries(system / "elsewhere")
    pg_config = system / "pg_config"
    pg_config.write_text(f"#!/bin/sh\necho {elsewhere}\n")
    pg_config.chmod(0o755)
    monkeypatch.setenv("PATH", str(system))
    assert find_binaries() == elsewhere


def test_those_of_a_wheel_are_found_without_importing_it(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries = make_binaries(system / "the_wheel" / "pginstall" / "bin")
    (system / "the_wheel" / "__init__.py").write_text("raise ImportError('it was imported')")
    monkeypatch.syspath_prepend(system)
    monkeypatch.setattr(postgres_server, "WHEELS", {"missing": "x", "the_wheel": "pginstall"})
    assert find_binaries() == binaries
    make_binaries(system / "postgresql" / "15" / "bin")
    assert find_binaries() != binaries


def test_a_copy_keeps_the_libraries_where_the_binaries_look_for_them(tmp_path: Path) -> None:
    binaries = make_binaries(tmp_path / "site" / "wheel" / "pginstall" / "bin")
    (tmp_path / "site" / "wheel.libs").mkdir()
    (tmp_path / "site" / "wheel.libs" / "libpq.so").touch()
    copy = copied(binaries, tmp_path / "copy")
    assert (copy / "postgres").exists()
    assert (copy / ".." / ".." / ".." / "wheel.libs" / "libpq.so").exists()


# ---------------------------------------------------------------------------------------- using it


def folders() -> set[Path]:
    """Those of servers, wherever they may be made."""
    places = {Path(tempfile.gettempdir()), Path("/tmp")}  # noqa: S108
    return {folder for place in places for folder in place.glob("brokerpg-*")}


def ask(url: str, sql: str) -> object:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        cursor = connection.execute(sql)
        row = cursor.fetchone() if cursor.description else None
        return row and row[0]


@needs_binaries
def test_it_answers_listens_on_no_port_and_leaves_nothing() -> None:
    before = folders()
    with running(lock_timeout="1234") as server:
        assert ask(server.url, "SHOW listen_addresses") == ""
        assert ask(server.url, "SHOW lock_timeout") == "1234ms"
        assert ask(server.url, "SHOW server_encoding") == "UTF8"
        data = Path(str(ask(server.url, "SHOW data_directory")))
        assert data.parent == server.folder
        assert folders() >= before | {server.folder}
    assert server.folder not in folders()
    with pytest.raises(psycopg.OperationalError):
        ask(server.url, "SELECT 1")


@needs_binaries
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_it_can_be_stopped_and_started_again(how: signal.Signals) -> None:
    with running(synchronous_commit="on") as server:
        ask(server.url, "CREATE TABLE kept (x int)")
        server.stop(how)
        with pytest.raises(psycopg.OperationalError):
            ask(server.url, "SELECT 1")
        server.start()
        assert ask(server.url, "SELECT count(*) FROM kept") == 0


@needs_binaries
def test_what_it_cannot_start_with_is_said_and_nothing_is_left() -> None:
    before = folders()
    with pytest.raises(RuntimeError, match="no_such_setting"), running(no_such_setting="1"):
        pass
    assert folders() <= before | folders_of_others()


def folders_of_others() -> set[Path]:
    """Of servers that other tests use at this moment."""
    return {each for each in folders() if (each / "data" / "postmaster.pid").exists()}


KEEP = """
import sys
from tests.postgres_server import Keeper
keeper = Keeper.start()
print(keeper.url, flush=True)
sys.stdin.readline()
keeper.end()
"""


@needs_binaries
@pytest.mark.parametrize("killed", [False, True])
def test_it_ends_with_the_process_that_had_it_started_even_if_that_is_killed(killed: bool) -> None:
    process = start_python(KEEP)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    folder = Path(url.partition("host=")[2])
    assert ask(url, "SELECT 1") == 1
    if killed:
        process.kill()
    process.communicate("end\n" if not killed else None)
    deadline = time.monotonic() + 60
    while folder.exists() and time.monotonic() < deadline:
        os.sched_yield()
    assert not folder.exists()


# ------------------------------------------------------------------------------------ doing without

WITHOUT_BINARIES = """
from tests import postgres_server
postgres_server.SYSTEM = postgres_server.Path("/nowhere")
postgres_server.WHEELS = {}
"""


def run_a_test(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a test on PostgreSQL where there is none."""
    (tmp_path / "without_binaries.py").write_text(WITHOUT_BINARIES)
    kept = {name: value for name, value in os.environ.items() if name not in {"CI", URL_VARIABLE}}
    environment |= {"PATH": "", "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    environment |= {"BROKER_TEST_BACKENDS": "postgresql"}
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "without_binaries"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "tests/test_projections.py", "-k", "unknown"],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_it_tests_are_skipped_with_a_line_that_says_how_to_get_it(tmp_path: Path) -> None:
    ran = run_a_test(tmp_path)
    assert HOW_TO_GET_IT in ran.stdout
    assert "4 skipped" in ran.stdout.splitlines()[-1]
    assert ran.returncode == 0


def test_without_it_tests_fail_where_ci_is_set(tmp_path: Path) -> None:
    ran = run_a_test(tmp_path, CI="1")
    assert HOW_TO_GET_IT in ran.stdout
    assert "4 error" in ran.stdout.splitlines()[-1]
    assert ran.returncode == 1
