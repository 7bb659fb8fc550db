"""Histories tell a store that is broken from the plain one: proof that they can fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from broker.leases import _proves
from broker.messages import Lease
from broker.receipts import Receipt
from broker.statements import Row
from broker.transaction import Transaction
from tests.proof.model.histories.machine import difference
from tests.proof.task import Task

MOST_HISTORIES = 60


def _nothing(*_: Any) -> None:
    return None


def _forget_the_epoch(transaction: Transaction, lease: Lease) -> None:
    connection = transaction.channel.connection
    connection.execute("DELETE FROM actor_leases WHERE actor_id = ?", [lease.actor_id])


def _whatever_was_asked(receipt: Receipt, row: Row) -> Any:
    return _MATCH(receipt, (receipt.method, receipt.params_hash, row[2]))


_MATCH = Receipt.match


def _all(rows: Iterable[Row], _max_bytes: int) -> list[Row]:
    return list(rows)


def _by_the_epoch_alone(credential: Any, epoch: int, nonce: str, *times: int) -> bool:
    return _proves(credential.model_copy(update={"nonce": nonce}), epoch, nonce, *times)


def _only_in_memory(transaction: Transaction, *floor: Any) -> int:
    return transaction.observe(*floor)


BROKEN: dict[str, Callable[..., Any]] = {
    "broker.journal._require_revision": _nothing,
    "broker.journal._owner_after": lambda _commit, owner: owner,
    "broker.leases._leave_behind": _forget_the_epoch,
    "broker.leases._proves": _by_the_epoch_alone,
    "broker.receipts.Receipt.match": _whatever_was_asked,
    "broker.reads._fitting_or_first": _all,
    "broker.transaction.Transaction.advance": _only_in_memory,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_store_is_found_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name, BROKEN[name])
    task = Task(MOST_HISTORIES, 0, tmp_path)
    found = (difference(task, seed, Counter(), shrink=False) for seed in task.seeds)
    assert any(found)
