"""Builds that are broken on purpose."""

from __future__ import annotations

import subprocess

import pytest

from tests.proof.edited import Edit, command, install
from tests.support import ROOT


def _run(*edits: Edit) -> subprocess.CompletedProcess[str]:
    # `this` of the standard library prints a poem, which it has in its source.
    return subprocess.run(
        command(edits, "this"), capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_a_module_runs_with_its_edits_in_a_process_of_its_own() -> None:
    assert "Beautiful is better than ugly." in _run().stdout
    assert _run(Edit("this", "Gur Mra", "Guvf")).stdout.startswith("This of Python")


def test_an_edit_that_finds_nothing_to_edit_is_an_error() -> None:
    broken = _run(Edit("this", "no such text", ""))
    assert broken.returncode != 0
    assert "this has 'no such text' 0 times" in broken.stderr


def test_what_is_imported_already_cannot_be_edited() -> None:
    with pytest.raises(ImportError, match="before it could be edited"):
        install([Edit("broker.leases", "epoch + 1", "epoch")])
