"""The short forms of the proofs in the suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proof.task import Task


@pytest.fixture
def task_of(
    request: pytest.FixtureRequest, backend: str, tmp_path: Path
) -> Callable[[int, int], Task]:
    """Makes a task on each backend: `task_of(runs, seed)`."""

    def make(runs: int, seed: int) -> Task:
        if backend == "sqlite":
            return Task(runs, seed, tmp_path)
        return Task(runs, seed, tmp_path, request.getfixturevalue("postgres_databases"))

    return make
