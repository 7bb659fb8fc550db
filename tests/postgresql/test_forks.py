"""Forks of a process that has a store open: both go on, each with connections of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial

from broker import Broker
from tests.places import PostgresPlace, rows
from tests.postgresql.support_failures import held, in_use, is_waiting, sessions, until, warm_up
from tests.support import ManualClock, acquire, commit_request, messages, open_store


def in_a_child(work: Callable[[], object]) -> None:
    """Do something in a fork of this process; it must go well."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_parent_and_child_go_on(store: Broker, place: PostgresPlace) -> None:
    lease = acquire(store)
    warm_up(store, 3)
    before = sessions(place)

    def work() -> None:
        assert store.commit(commit_request(lease, "child")).revision == 1
        assert acquire(store, "of child", "of child").epoch == 1

    in_a_child(work)
    assert store.commit(commit_request(lease, "parent", expectedRevision=1)).revision == 2
    assert set(before) <= set(sessions(place))  # of which the child has closed none
    assert messages(place) == ["child", "parent"]


def test_the_childs_end_and_its_close_leave_the_parents_connections_alone(
    store: Broker, place: PostgresPlace
) -> None:
    warm_up(store, 3)
    before = sessions(place)

    def work() -> None:
        acquire(store)
        store.close()

    in_a_child(work)
    assert sessions(place) == before
    assert store.get_lease({"actorId": "actor"}) is not None


def test_a_fork_while_another_thread_is_in_the_middle_of_a_write(
    store: Broker, place: PostgresPlace
) -> None:
    lease = acquire(store)
    results: list[int] = []

    def write() -> None:
        results.append(store.commit(commit_request(lease, "thread")).revision)

    writing = threading.Thread(target=write)
    with held(place):
        writing.start()
        until(lambda: is_waiting(place))
        in_a_child(lambda: acquire(store, "child", "child"))
    writing.join()
    assert results == [1]
    assert in_use(store) == 0
    assert rows(place, "SELECT actor_id FROM actor_leases ORDER BY 1") == [("actor",), ("child",)]
    assert messages(place) == ["thread"]


def test_a_fork_in_the_middle_of_a_write_of_the_same_thread(
    place: PostgresPlace, clock: ManualClock
) -> None:
    numbers = iter(range(9))

    def nonce() -> str:
        number = next(numbers)
        if number == 1:
            in_a_child(lambda: acquire(store, "child", "child"))
        return f"nonce-{number}"

    with open_store(place, clock, nonce=nonce) as store:
        acquire(store, "first", "first")
        acquire(store, "second", "second")
    found = rows(place, "SELECT actor_id FROM actor_leases ORDER BY 1")
    assert found == [("child",), ("first",), ("second",)]


def test_many_children_one_after_another_write_side_by_side_with_the_parent(
    store: Broker, place: PostgresPlace
) -> None:
    for number in range(4):
        in_a_child(partial(acquire, store, f"child-{number}", f"child-{number}"))
        acquire(store, f"parent-{number}", f"parent-{number}")
    assert rows(place, "SELECT count(*), sum(epoch) FROM actor_leases") == [(8, 8)]
