"""How tasks write to PostgreSQL: side by side, cancelled at any moment, turned away if too many."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker import AsyncBroker, Broker
from broker.errors import (
    BrokerError,
    DatabaseBusy,
    OutcomeUnknown,
    RevisionConflict,
    StaleLease,
    StoreClosed,
)
from broker.messages import Lease
from tests.async_support import acquiring, cancel, with_store
from tests.places import PostgresPlace, rows
from tests.postgresql.support_failures import held, in_use, is_waiting, sessions, until
from tests.postgresql.support_proxy import AFTER, COMMIT, losing
from tests.support import ManualClock, commit_request, in_threads, messages


class Gate:
    """A nonce that holds up every write that asks for one, until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._entered = threading.Semaphore(0)

    def nonce(self) -> str:
        """To be given to the store as `nonce`."""
        self._entered.release()
        assert self._open.wait(60)
        return "nonce"

    async def reached(self, count: int = 1) -> None:
        """Wait until so many writes are held up, each in the middle of its transaction."""
        for _ in range(count):
            assert await asyncio.to_thread(self._entered.acquire, timeout=60)

    def open(self) -> None:
        """Let all go on."""
        self._open.set()


def actors(place: PostgresPlace) -> list[str]:
    """Who has a lease, as another client reads it."""
    return [each for (each,) in rows(place, "SELECT actor_id FROM actor_leases ORDER BY 1")]


def starting(store: AsyncBroker, *names: str) -> list[asyncio.Task[Lease]]:
    """A task for each of these that acquires a lease."""
    return [asyncio.create_task(acquiring(store, name)) for name in names]


# --------------------------------------------------------------------------------- side by side


def test_as_many_writes_run_at_once_as_there_are_connections(
    place: PostgresPlace, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        tasks = starting(store, "a", "b", "c", "d")
        await gate.reached(3)
        await asyncio.sleep(0)
        assert in_use(store._broker) == 3
        assert not any(task.done() for task in tasks)
        gate.open()
        assert {lease.epoch for lease in await asyncio.gather(*tasks)} == {1}
        assert in_use(store._broker) == 0

    with_store(place, clock, work, nonce=gate.nonce, pool_size=3)
    assert actors(place) == ["a", "b", "c", "d"]


def test_each_gets_its_own_result_or_error(place: PostgresPlace, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        stale: Any = {"actorId": "a", "lease": {"epoch": 9, "nonce": "no"}}
        lease = await acquiring(store, "known")
        late = commit_request(lease, streamId="known", expectedRevision=7)
        calls = [acquiring(store, "a"), store.release_lease(stale), store.commit(late)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Lease, StaleLease, RevisionConflict]

    with_store(place, clock, work)
    assert actors(place) == ["a", "known"]


def test_the_loop_and_reads_go_on_while_a_write_waits_for_a_lock(
    place: PostgresPlace, clock: ManualClock
) -> None:
    async def work(store: AsyncBroker) -> None:
        lease = await acquiring(store)
        with held(place):
            request = commit_request(lease, streamId="actor")
            writing = asyncio.create_task(store.commit(request))
            await asyncio.to_thread(until, lambda: is_waiting(place))
            assert await store.get_stream_revision({"streamId": "actor"}) == 0
            assert not writing.done()
        assert (await writing).revision == 1

    with_store(place, clock, work)
    assert messages(place) == ["message"]


def test_tasks_that_come_at_once_append_to_one_stream_each_exactly_once(
    place: PostgresPlace, clock: ManualClock
) -> None:
    async def work(store: AsyncBroker) -> None:
        lease = await acquiring(store)
        requests = [
            commit_request(lease, f"m-{number // 2}", streamId="actor") for number in range(20)
        ]
        answers = await asyncio.gather(*map(store.commit, requests), return_exceptions=True)
        done = [each for each in answers if not isinstance(each, BaseException)]
        assert len({each.message_id for each in done}) == 1
        assert sum(not each.recovered for each in done) == 1
        refused = [each for each in answers if isinstance(each, BaseException)]
        assert {type(each) for each in refused} <= {RevisionConflict}

    with_store(place, clock, work)
    assert len(messages(place)) == 1


# -------------------------------------------------------------------------------------- cancelled


def test_a_task_cancelled_before_its_write_has_started_leaves_nothing_done(
    place: PostgresPlace, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        (first,) = starting(store, "first")
        await gate.reached()
        waiting, other = starting(store, "waiting", "other")
        await asyncio.sleep(0)
        await cancel(waiting)
        gate.open()
        await asyncio.gather(first, other)

    with_store(place, clock, work, nonce=gate.nonce, pool_size=1)
    assert actors(place) == ["first", "other"]


def test_what_was_started_by_a_task_that_is_cancelled_is_done_and_gets_its_recorded_result(
    place: PostgresPlace, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        task = asyncio.create_task(acquiring(store, request_id="request"))
        await gate.reached()
        await cancel(task)
        gate.open()
        lease = await acquiring(store, request_id="request")
        assert (lease.epoch, lease.nonce) == (1, "nonce")
        assert in_use(store._broker) == 0

    with_store(place, clock, work, nonce=gate.nonce)
    assert rows(place, "SELECT actor_id, epoch FROM actor_leases") == [("actor", 1)]


def test_many_that_are_cancelled_leave_neither_a_lock_nor_a_connection(
    place: PostgresPlace, clock: ManualClock
) -> None:
    async def work(store: AsyncBroker) -> None:
        tasks = starting(store, *[str(number) for number in range(60)])
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, Lease) for each in answers[1::2])
        await asyncio.to_thread(until, lambda: in_use(store._broker) == 0)
        assert (await acquiring(store, "next")).epoch == 1

    with_store(place, clock, work)
    assert {str(number) for number in range(1, 60, 2)} <= set(actors(place))
    until(lambda: sessions(place) == [])


# -------------------------------------------------------------------------------------- too many


def test_who_would_wait_behind_too_many_is_turned_away_and_later_there_is_room(
    place: PostgresPlace, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        running = starting(store, "one", "two")
        await gate.reached(2)
        waiting = starting(store, "a", "b")
        await asyncio.sleep(0)
        with pytest.raises(DatabaseBusy, match="queue_capacity"):
            await acquiring(store, "refused")
        await cancel(waiting[0])
        later = starting(store, "later")
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(*running, waiting[1], *later)

    with_store(place, clock, work, nonce=gate.nonce, queue_capacity=2, pool_size=2)
    assert actors(place) == ["b", "later", "one", "two"]


def test_with_no_patience_at_all_tasks_that_come_one_by_one_are_served(
    place: PostgresPlace, clock: ManualClock
) -> None:
    async def work(store: AsyncBroker) -> None:
        for number in range(20):
            await acquiring(store, str(number))

    with_store(place, clock, work, busy_timeout_ms=0)
    assert len(actors(place)) == 20


def test_whom_others_keep_waiting_for_longer_than_his_patience_is_told(
    place: PostgresPlace, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        (first,) = starting(store, "first")
        await gate.reached()
        (late,) = starting(store, "late")
        await asyncio.sleep(0)
        gate.open()
        await first
        with pytest.raises(DatabaseBusy, match="other writes"):
            await late
        await acquiring(store, "next")

    with_store(place, clock, work, nonce=gate.nonce, busy_timeout_ms=0, pool_size=1)
    assert actors(place) == ["first", "next"]


# ----------------------------------------------------------------------------------------- failures


def test_an_outcome_that_is_unknown_is_told_to_the_task_and_its_repetition_is_recovered(
    place: PostgresPlace, clock: ManualClock
) -> None:
    with losing(place) as (proxy, through):

        async def work(store: AsyncBroker) -> None:
            lease = await acquiring(store)
            request = commit_request(lease, streamId="actor")
            proxy.lose(COMMIT, AFTER)
            with pytest.raises(OutcomeUnknown):
                await store.commit(request)
            assert (await store.commit(request)).recovered

        with_store(through, clock, work)
    assert messages(place) == ["message"]


def test_a_clock_that_raises_stop_iteration_leaves_no_task_waiting(
    place: PostgresPlace, clock: ManualClock
) -> None:
    def nonce() -> str:
        raise StopIteration

    async def work(store: AsyncBroker) -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await acquiring(store)
        assert in_use(store._broker) == 0

    with_store(place, clock, work, nonce=nonce)
    assert actors(place) == []


# ------------------------------------------------------------------------------------------ closing


def test_closing_finishes_what_was_started_and_refuses_what_waits(
    place: PostgresPlace, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        first, second = starting(store, "first", "second")
        await gate.reached(2)
        waiting = starting(store, *[str(number) for number in range(50)])
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        while not store._broker._connections._closed:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(first, second)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreClosed}
        await closing

    with_store(place, clock, work, nonce=gate.nonce, pool_size=2)
    assert actors(place) == ["first", "second"]
    until(lambda: sessions(place) == [])


@pytest.mark.parametrize("count", [1, 70])
def test_closing_at_any_moment_leaves_no_task_waiting(
    place: PostgresPlace, clock: ManualClock, count: int
) -> None:
    async def work(store: AsyncBroker) -> list[Any]:
        writing = starting(store, *[str(number) for number in range(count)])
        await asyncio.wait(writing, return_when=asyncio.FIRST_COMPLETED)
        await store.close()
        return await asyncio.gather(*writing, return_exceptions=True)

    answers = with_store(place, clock, work)
    refused = [answer for answer in answers if isinstance(answer, BrokerError)]
    assert all(type(answer) is StoreClosed for answer in refused)
    assert len(actors(place)) == count - len(refused)


def test_loops_of_several_threads_share_a_store(store: Broker, place: PostgresPlace) -> None:
    async def work(name: str) -> None:
        awaited = AsyncBroker(store)
        await asyncio.gather(*(acquiring(awaited, f"{name}-{number}") for number in range(20)))

    in_threads(*[lambda name=name: asyncio.run(work(name)) for name in "abc"])
    assert actors(place) == sorted(f"{name}-{number}" for name in "abc" for number in range(20))
    assert in_use(store) == 0
