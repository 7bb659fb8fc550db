"""A server that is killed, under a store that trusts it too much."""

from __future__ import annotations

from pathlib import Path

from tests.places import Databases
from tests.proof.edited import Edit
from tests.proof.kill.runs import Killing
from tests.proof.task import Task

_LEFT_AT_OFF = Edit(
    "broker.postgresql.sql",
    "set_config('synchronous_commit', 'on', {is_local})",
    "set_config('synchronous_commit', 'off', {is_local})",
)


def test_a_store_that_lets_the_server_acknowledge_early_is_found_out(
    postgres_databases: Databases, tmp_path: Path
) -> None:
    with Killing(Task(0, 0, tmp_path, postgres_databases), [_LEFT_AT_OFF]) as killing:
        for seed in range(9, 100, 10):  # in which the server is killed
            killing.run(seed)
            if killing.report.counts["lost"]:
                break
    assert killing.report.counts["lost"] > 0
