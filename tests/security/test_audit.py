"""CI's audit of dependencies: what it finds fails, and where it could not look it says so aloud.

A stand-in for uv says what uv 0.13 was recorded to say, and ends as it ended.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.security.sql_in_source import ROOT

NOTHING_FOUND = "Found no known vulnerabilities and no adverse project statuses in 4 packages"
FOUND = """\
markdown-it-py 4.3.0 has 1 known vulnerability:

- TEST-2026-1: a hole

  No fix versions available
"""
OUT_OF_REACH = """\
error: Request failed after 3 retries
  cause: error sending request for url (https://advisories.invalid/v1/querybatch)
  cause: client error (Connect)
  cause: dns error
"""
BROKEN = "error: HTTP status server error (500 Internal Server Error) for url (https://a.invalid/)"
NO_SUCH_COMMAND = "error: unrecognized subcommand 'audit'"


def audit(folder: Path, said: str, code: int, *, seconds: int = 0) -> tuple[int, str]:
    """Exit code and output of CI's script."""
    stand_in = folder / "uv"
    stand_in.write_text(
        f"#!/bin/sh\necho \"$@\" > '{folder}/asked'\nsleep {seconds}\n"
        f"cat <<'END' >&2\n{said}\nEND\nexit {code}\n"
    )
    stand_in.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / ".ci/audit", "--no-group", "benchmarks"],
        env=os.environ | {"PATH": path, "BROKER_AUDIT_SECONDS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (folder / "asked").read_text().startswith("audit ")
    assert "--no-group benchmarks" in (folder / "asked").read_text()
    return done.returncode, done.stdout


def test_no_advisory_passes(tmp_path: Path) -> None:
    code, said = audit(tmp_path, NOTHING_FOUND, 0)
    assert (code, said.strip()) == (0, NOTHING_FOUND)


def test_an_advisory_fails_and_is_shown(tmp_path: Path) -> None:
    code, said = audit(tmp_path, FOUND, 1)
    assert code == 1
    assert "TEST-2026-1: a hole" in said
    assert "NOT audited" not in said


@pytest.mark.parametrize("answer", [OUT_OF_REACH, BROKEN], ids=["no network", "a server's error"])
def test_a_database_out_of_reach_passes_and_is_said_aloud(tmp_path: Path, answer: str) -> None:
    code, said = audit(tmp_path, answer, 2)
    assert code == 0
    assert f"NOT audited: the database of advisories is out of reach ({answer.split()[0]}" in said


def test_a_database_that_does_not_answer_is_out_of_reach_too(tmp_path: Path) -> None:
    code, said = audit(tmp_path, NOTHING_FOUND, 0, seconds=5)
    assert code == 0
    assert "NOT audited: the database of advisories is out of reach (no answer within 1" in said


@pytest.mark.parametrize(("answer", "code"), [(NO_SUCH_COMMAND, 2), ("killed", 137)])
def test_whatever_else_goes_wrong_fails(tmp_path: Path, answer: str, code: int) -> None:
    assert audit(tmp_path, answer, code)[0] == code


def test_ci_runs_it() -> None:
    assert "\n.ci/audit\n" in (ROOT / ".ci/run").read_text()
