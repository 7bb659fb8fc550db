"""Builds of the store that are broken where PostgreSQL needs more than SQLite does: found out too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proof.edited import Edit
from tests.proof.linearizability.histories import try_histories
from tests.proof.task import Task

MOST = 200  # histories in which a broken build has to be found out; it takes a race of two

_SQL = "broker.postgresql.sql"
BROKEN = {
    "a mutation locks no lease": Edit(
        _SQL, "ORDER BY stream_id FOR NO KEY UPDATE", "ORDER BY stream_id"
    ),
    "a stream that was not there is written as it was found": Edit(
        _SQL,
        "CASE WHEN s.revision <= excluded.revision THEN excluded.revision END",
        "excluded.revision",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_store_that_breaks_a_promise_is_found_out(
    task_of: Callable[[int, int], Task], name: str
) -> None:
    report = try_histories(task_of(MOST, 1), [BROKEN[name]], until_broken=True)
    assert len(report.violations) == 1
