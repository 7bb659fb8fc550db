"""The queue of writers: who runs with whom, who waits how long, and what an interrupt leaves behind."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from broker import Broker, leases
from broker.errors import (
    DatabaseBusy,
    RevisionConflict,
)
from broker.messages import Lease
from broker.sqlite.pending import Pending
from broker.sqlite.write_queue import MOST_BEYOND_A_LIGHT_LEADER, MOST_IN_A_GROUP
from broker.transaction import Transaction, Write
from tests.group_support import (
    PATIENCE,
    Caller,
    acquiring,
    actors,
    ask,
    assert_idle,
    control_statements,
    crowd,
    grouped,
    pending,
    queue_of,
    ready,
    together,
)
from tests.places import rows, url_of
from tests.support import (
    TTL_MS,
    ManualClock,
    acquire,
    commit_request,
    finish,
    in_threads,
    locked_by_a_process,
    open_store,
    start_python,
    wait_for,
    write_locked,
)


def noting(notes: list[str], name: str, weight: int = 0) -> Write[str]:
    """A write that stores nothing, and notes that it was done."""

    def apply(_transaction: Transaction) -> str:
        notes.append(name)
        return name

    return Write(apply, weight=weight)


# ------------------------------------------------------------------------------- who runs with whom


def test_those_who_wait_share_one_transaction_in_the_order_in_which_they_came(
    store: Broker, path: Path
) -> None:
    with control_statements() as statements:
        answers = together(store, *[ask(store, name) for name in "edcba"])
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"]
    assert [lease.nonce for lease in answers] == [f"nonce-{number}" for number in range(1, 6)]
    assert actors(path) == list("edcba")
    assert_idle(store, path)


def test_who_comes_while_a_group_runs_is_in_the_next(store: Broker, path: Path) -> None:
    late: list[Caller] = []

    def let_others_come(_transaction: Transaction) -> None:
        late.extend([waiting.join(ask(store, "late")), waiting.join(ask(store, "later"))])

    with control_statements() as statements, crowd(store) as waiting:
        early = waiting.join(lambda: queue_of(store).run(lambda: Write(let_others_come)))
        waiting.let_go()
        assert early.outcome() is None
        assert [caller.outcome().actor_id for caller in late] == ["late", "later"]
    assert statements == ["BEGIN IMMEDIATE", "COMMIT"] * 2
    assert_idle(store, path)


def groups_of(store: Broker, *weights: int) -> list[int]:
    """The sizes of the groups in which writes of these weights run that wait together."""
    groups: list[int] = []
    with control_statements() as statements:
        writes = [noting(statements, "write", weight) for weight in weights]
        assert grouped(queue_of(store), writes) == ["write"] * len(weights)
    for statement in statements:
        if statement == "BEGIN IMMEDIATE":
            groups.append(0)
        elif statement == "write":
            groups[-1] += 1
    return groups


KIB = 1_024
LIGHT = MOST_BEYOND_A_LIGHT_LEADER


def test_a_group_has_so_many_and_no_more(store: Broker) -> None:
    assert groups_of(store, *[0] * (2 * MOST_IN_A_GROUP + 3)) == [64, 64, 3]


@pytest.mark.parametrize(
    ("weights", "sizes"),
    [
        ([0, LIGHT, 0], [3]),
        ([0, LIGHT + 1, 0], [1, 2]),
        ([1, LIGHT // 2, LIGHT // 2, 1], [3, 1]),
        ([LIGHT, LIGHT, 1], [2, 1]),
        ([LIGHT + 1, 1023 * KIB - LIGHT, 1], [3]),
        ([LIGHT + 1, 1024 * KIB - LIGHT, 1], [1, 2]),
        ([2_000 * KIB, 1, 1], [1, 2]),
        ([1, 2_000 * KIB, 1], [1, 1, 1]),
    ],
)
def test_a_light_leader_is_not_kept_by_heavy_followers_and_no_group_is_too_heavy(
    store: Broker, weights: list[int], sizes: list[int]
) -> None:
    assert groups_of(store, *weights) == sizes


def test_nobody_overtakes(store: Broker) -> None:
    done: list[str] = []
    names = [str(number) for number in range(200)]
    weights = itertools.cycle([0, 2_000 * KIB, 10, LIGHT])
    writes = [noting(done, name, weight) for name, weight in zip(names, weights, strict=False)]
    grouped(queue_of(store), writes)
    assert done == names


# ------------------------------------------------------------------------------------- a full queue


def test_one_too_many_is_turned_away_at_once_and_there_is_room_again_afterwards(
    path: Path, clock: ManualClock
) -> None:
    with open_store(path, clock, queue_capacity=3) as store:
        with crowd(store) as waiting:  # one is about to begin
            callers = [waiting.join(ask(store, name)) for name in "ab"]
            with pytest.raises(DatabaseBusy, match=r"3 writes wait already.*queue_capacity"):
                acquire(store, "c", "c")
        assert [caller.outcome().actor_id for caller in callers] == ["a", "b"]
        assert acquire(store, "c", "c").epoch == 1
        assert actors(path) == ["a", "b", "c"]
        assert_idle(store, path)


# --------------------------------------------------------------------------------- who waits how long


def test_one_that_waits_too_long_is_not_done_and_told_so_and_the_others_are_done(
    store: Broker, path: Path
) -> None:
    queue = queue_of(store)
    first, hasty, patient = (
        pending(acquiring("first")),
        Pending(ready(acquiring("hasty")), monotonic()),
        pending(acquiring("patient")),
    )
    assert [queue.enter(each) for each in (first, hasty, patient)] == [True, False, False]
    with pytest.raises(
        DatabaseBusy, match=r"other writers kept the store busy; nothing was stored"
    ):
        queue._wait(hasty)
    queue.lead(first)
    assert not patient.is_settled or patient.outcome().actor_id == "patient"
    assert actors(path) == ["first", "patient"]
    assert_idle(store, path)


def test_a_thread_that_waits_too_long_for_another_is_told_so(
    path: Path, clock: ManualClock
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow_nonce() -> str:
        inside.set()
        assert go_on.wait(PATIENCE)
        return "nonce"

    with open_store(path, clock, nonce=slow_nonce, busy_timeout_ms=10) as store:
        slow = Caller(ask(store, "slow"))
        assert inside.wait(PATIENCE)
        with pytest.raises(DatabaseBusy, match="other writers"):
            acquire(store, "second", "second")
        assert store.get_lease({"actorId": "slow"}) is None
        go_on.set()
        assert slow.outcome().epoch == 1
        assert actors(path) == ["slow"]
        assert_idle(store, path)


def meanwhile(patch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen between the deadline of the next that waits, and its noticing it."""
    wait = Pending.wait

    def too_late(pending: Pending[Any], *, patiently: bool = False) -> bool:
        patch.setattr(Pending, "wait", wait)
        happens()
        return False

    patch.setattr(Pending, "wait", too_late)


def test_one_that_is_made_leader_at_its_deadline_leads(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, holder = queue_of(store), pending(acquiring("holder"))
    assert queue.enter(holder)
    meanwhile(monkeypatch, lambda: queue.abandon(holder))
    assert queue.run(lambda: acquiring("actor")).actor_id == "actor"
    assert actors(path) == ["actor"]
    assert_idle(store, path)


def test_one_that_is_started_at_its_deadline_gets_its_result(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, leader = queue_of(store), pending(acquiring("leader"))
    assert queue.enter(leader)
    meanwhile(monkeypatch, lambda: queue.lead(leader))
    assert queue.run(lambda: acquiring("actor")).actor_id == "actor"
    assert actors(path) == ["leader", "actor"]
    assert_idle(store, path)


def test_while_another_process_writes_all_who_wait_are_told_so_after_their_time(
    path: Path, clock: ManualClock
) -> None:
    with open_store(path, clock, busy_timeout_ms=50) as store:
        with locked_by_a_process(path):
            answers = together(store, *[ask(store, name) for name in "abc"])
        assert [type(answer) for answer in answers] == [DatabaseBusy] * 3
        assert len(set(map(id, answers))) == 3
        assert actors(path) == []
        assert_idle(store, path)
        assert acquire(store).epoch == 1


def test_while_another_process_writes_what_is_repeated_is_answered_in_its_turn(
    path: Path, clock: ManualClock
) -> None:
    request = {"actorId": "actor", "holderId": "holder", "ttlMs": TTL_MS}
    with open_store(path, clock, busy_timeout_ms=0) as store:
        lease = store.acquire_lease(request, request_id="receipt")
        again = leases.acquire(request, "receipt")
        with write_locked(path):
            answers = grouped(queue_of(store), [again, acquiring("new"), again])
        assert [answers[0], answers[2]] == [lease, lease]
        assert isinstance(answers[1], DatabaseBusy)
        assert_idle(store, path)


# --------------------------------------------------------------------------- threads and processes


def append(store: Broker, lease: Lease, name: str, count: int) -> list[int]:
    """Append events to a stream that others write to as well; the cursors they got."""
    cursors: list[int] = []
    for number in range(count):
        request = commit_request(lease, f"{name}-{number}")
        while True:
            request["expectedRevision"] = store.get_stream_revision({"streamId": lease.stream_id})
            try:
                cursors += store.commit(request).event_cursors
                break
            except RevisionConflict:
                continue
    return cursors


def append_together(store: Broker, lease: Lease, name: str) -> list[list[int]]:
    """Append with three threads; the cursors that each of them got."""
    callers = [Caller(partial(append, store, lease, f"{name}{number}", 7)) for number in range(3)]
    return [caller.outcome() for caller in callers]


def test_threads_that_write_to_one_stream_leave_no_gap(store: Broker, path: Path) -> None:
    lease, cursors = acquire(store), dict[str, list[int]]()

    def work(name: str) -> None:
        cursors[name] = append(store, lease, name, 15)

    in_threads(*[lambda name=name: work(name) for name in "abcd"])

    found = rows(path, "SELECT revision, rowid FROM events ORDER BY rowid")
    assert found == [(number, number) for number in range(1, 61)]
    assert all(each == sorted(each) for each in cursors.values())
    assert sorted(chain.from_iterable(cursors.values())) == list(range(1, 61))


def test_threads_that_write_to_their_own_streams_do_not_mix(store: Broker, path: Path) -> None:
    leases = {name: acquire(store, name, name) for name in "abcd"}
    in_threads(*[lambda name=name: append(store, leases[name], name, 15) for name in "abcd"])
    for name in "abcd":
        assert rows(
            path, "SELECT revision, message_id FROM events WHERE stream_id = ? ORDER BY rowid", name
        ) == [(number + 1, f"{name}-{number}") for number in range(15)]
    assert rows(path, "SELECT count(DISTINCT rowid) FROM events") == [(60,)]


APPEND = """
import json, sys
from broker import Broker
from broker.messages import Lease
from tests.sqlite.test_write_queue import append_together
with Broker.open(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    cursors = append_together(store, Lease.from_json(json.loads(sys.argv[2])), sys.argv[3])
print(json.dumps(cursors))
"""


def test_processes_that_write_to_one_stream_with_threads_each_leave_no_gap(path: Path) -> None:
    with Broker.open(url_of(path)) as store:
        lease = acquire(store)
        form = json.dumps(lease.to_json())
        processes = [start_python(APPEND, url_of(path), form, name) for name in ("p", "q")]
        for process in processes:
            wait_for(process, "ready")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        cursors = append_together(store, lease, "mine")
        for process in processes:
            cursors += json.loads(finish(process))
        assert_idle(store, path)

    found = rows(path, "SELECT revision, rowid FROM events ORDER BY rowid")
    assert found == [(number, number) for number in range(1, 64)]
    assert all(each == sorted(each) for each in cursors)
    assert sorted(chain.from_iterable(cursors)) == list(range(1, 64))
