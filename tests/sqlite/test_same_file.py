"""A file that is deleted or replaced while a store has it open: nothing goes on in the old one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from broker import Broker
from broker.errors import DatabaseUnavailable
from tests.places import rows
from tests.support import ManualClock, acquire, commit_request, in_threads, open_store

GONE = "deleted or replaced while it was open"


def delete(path: Path) -> None:
    path.unlink()


def delete_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    other.write_bytes(path.read_bytes())
    other.rename(path)


@pytest.mark.parametrize("lose", [delete, delete_folder, replace])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    store: Broker, path: Path, lose: Callable[[Path], None]
) -> None:
    lease = acquire(store)
    lose(path)
    left = sorted(path.parent.glob("*"))
    for name in ("one", "two"):
        with pytest.raises(DatabaseUnavailable, match=GONE):
            store.commit(commit_request(lease, name))
    with pytest.raises(DatabaseUnavailable, match=GONE), Session(store.engine) as session:
        acquire(store.unit_of_work(session))
    assert {each.name for each in path.parent.glob("*.db")} == {
        each.name for each in left if each.suffix == ".db"
    }


def test_all_that_wait_are_told(store: Broker, path: Path) -> None:
    told: list[str] = []

    def ask(actor: str) -> None:
        with pytest.raises(DatabaseUnavailable, match=GONE):
            acquire(store, actor, actor)
        told.append(actor)

    path.unlink()
    in_threads(*[lambda name=name: ask(name) for name in "abcdef"])
    assert sorted(told) == list("abcdef")


def test_a_file_that_is_put_back_is_the_same(store: Broker, path: Path) -> None:
    lease = acquire(store)
    away = path.rename(path.with_name("away.db"))
    with pytest.raises(DatabaseUnavailable, match=GONE):
        store.commit(commit_request(lease))
    away.rename(path)
    assert store.commit(commit_request(lease)).revision == 1


def test_closing_leaves_what_came_in_its_place_alone(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    acquire(store)
    replace(path)
    for end in ("-wal", "-shm"):
        Path(f"{path}{end}").unlink()
    with open_store(path, clock) as other:
        lease = acquire(other, "other", "other")
        store.close()
        assert other.commit(commit_request(lease)).revision == 1
    assert rows(path, "SELECT message_id FROM inbox") == [("message",)]


def test_a_relative_name_stays_that_of_the_same_file(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with open_store(Path(path.name), clock) as store:
        monkeypatch.chdir("/")
        lease = acquire(store)
        assert store.commit(commit_request(lease)).revision == 1
