"""Power cuts, in short; and stores that do not flush, which are found out."""

from __future__ import annotations

import pathlib
import random

import pytest

from tests.proof.edited import Edit
from tests.proof.faults.power import Deed, Disk, lose_power

FLUSHED = '"synchronous": 2,'


def test_no_power_cut_loses_what_was_acknowledged(tmp_path: pathlib.Path) -> None:
    report = lose_power([3], tmp_path, cuts=30)
    if report.left_out:
        pytest.skip(report.left_out[0])
    assert report.violations == []
    assert report.counts["power cuts"] == 30
    assert report.counts["kept over a cut"] > 100


def test_a_store_that_flushes_now_and_then_is_found_out(tmp_path: pathlib.Path) -> None:
    edit = Edit("broker.sqlite.engine", FLUSHED, '"synchronous": 1,')
    report = lose_power([3], tmp_path, [edit], cuts=12)
    if report.left_out:
        pytest.skip(report.left_out[0])
    assert report.counts["lost"] > 0


def test_what_was_flushed_is_left_and_of_the_rest_any_part() -> None:
    disk = Disk("/disk")
    disk.do(Deed("W", "/disk/a", 0, b"one"))
    disk.do(Deed("S", "/disk/a", 0, b""))
    disk.do(Deed("S", "/disk", 0, b""))
    disk.do(Deed("W", "/disk/a", 3, b"two"))
    disk.do(Deed("U", "/disk/a", 0, b""))
    left = [disk.after_a_cut(random.Random(seed)).get("/disk/a") for seed in range(40)]
    assert set(left) == {b"one", b"onetwo", None}


def test_a_removal_that_was_flushed_with_its_folder_is_certain() -> None:
    disk = Disk("/disk")
    disk.do(Deed("W", "/disk/a", 0, b"one"))
    disk.do(Deed("S", "/disk/a", 0, b""))
    disk.do(Deed("U", "/disk/a", 0, b""))
    disk.do(Deed("S", "/disk", 0, b""))
    assert {str(disk.after_a_cut(random.Random(seed))) for seed in range(40)} == {"{}"}
