"""Faults between a store and its server, each in short."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof.faults import OF_SERVERS
from tests.proof.faults.scene import play
from tests.proof.task import Task


@pytest.mark.parametrize("name", OF_SERVERS)
def test_nothing_around_a_server_breaks_a_promise(
    task_of: Callable[[int, int], Task], name: str
) -> None:
    report = play(task_of(1, 3), 3, name, OF_SERVERS[name])
    assert report.violations == []
    assert report.counts["faults met"] > 0
