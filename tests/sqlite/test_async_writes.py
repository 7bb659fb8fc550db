"""How tasks write: together, in order, cancelled at any moment, side by side with threads."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker import AsyncBroker, Broker
from broker.errors import (
    BrokerError,
    DatabaseBusy,
    OutcomeUnknown,
    StaleLease,
    StoreClosed,
)
from broker.messages import Lease
from tests.async_support import (
    Gate,
    acquiring,
    announce_waiting,
    become_idle,
    cancel,
    entered,
    is_idle,
    kept_busy,
    led_by_a_thread,
    with_store,
)
from tests.group_support import actors, control_statements
from tests.sqlite_support import connections_of, writes_of
from tests.support import (
    ManualClock,
    acquire,
    break_commit,
    commit_request,
    in_threads,
    is_write_locked,
    locked_by_a_process,
    write_locked,
)


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Grows with every BEGIN, COMMIT and so on of a `Broker`."""
    with control_statements() as listened:
        yield listened


# -------------------------------------------------------------------------------------- together


def test_tasks_that_wait_for_one_another_share_transactions(
    path: Path, clock: ManualClock, statements: list[str]
) -> None:
    async def work(store: AsyncBroker) -> None:
        with kept_busy(store):
            statements.clear()
            writing = [asyncio.create_task(acquiring(store, str(number))) for number in range(200)]
            await asyncio.sleep(0)
        await asyncio.gather(*writing)
        assert statements.count("COMMIT") <= 20
        await become_idle(store)

    with_store(path, clock, work)
    assert actors(path) == [str(number) for number in range(200)]


def test_a_lone_task_has_a_transaction_for_each_call(
    path: Path, clock: ManualClock, statements: list[str]
) -> None:
    async def work(store: AsyncBroker) -> None:
        statements.clear()
        for number in range(5):
            await acquiring(store, str(number))
        assert statements.count("COMMIT") == 5

    with_store(path, clock, work)


def test_what_a_task_asks_for_at_once_is_done_in_its_order(path: Path, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        lease = await acquiring(store)
        results = await asyncio.gather(
            *(
                store.commit(
                    commit_request(lease, f"m-{at}", streamId="actor", expectedRevision=at)
                )
                for at in range(150)
            )
        )
        assert [result.revision for result in results] == list(range(1, 151))

    with_store(path, clock, work)


def test_one_that_is_refused_in_the_middle_of_a_group_is_the_only_one(
    path: Path, clock: ManualClock, statements: list[str]
) -> None:
    async def work(store: AsyncBroker) -> None:
        stale: Any = {"actorId": "a", "lease": {"epoch": 9, "nonce": "no"}}
        calls = [acquiring(store, "a"), store.release_lease(stale), acquiring(store, "b")]
        with kept_busy(store):
            statements.clear()
            group = asyncio.gather(*calls, return_exceptions=True)
            await asyncio.sleep(0)
        answers = await group
        assert [type(answer) for answer in answers] == [Lease, StaleLease, Lease]
        assert statements.count("COMMIT") == 1

    with_store(path, clock, work)
    assert actors(path) == ["a", "b"]


@pytest.mark.parametrize("takes_effect", [False, True])
def test_if_commit_fails_every_task_of_the_group_is_told(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    async def work(store: AsyncBroker) -> None:
        def calls() -> list[Coroutine[Any, Any, Lease]]:
            return [acquiring(store, str(each), request_id=str(each)) for each in range(9)]

        with kept_busy(store):
            group = asyncio.gather(*calls(), return_exceptions=True)
            await asyncio.sleep(0)
            broken = sqlite3.OperationalError("disk I/O error")
            break_commit(monkeypatch, broken, takes_effect=takes_effect)
        answers = await group
        assert {type(answer) for answer in answers} == {OutcomeUnknown}
        assert len({id(answer) for answer in answers}) == 9

        leases = await asyncio.gather(*calls())
        assert {lease.epoch for lease in leases} == {1}
        await become_idle(store)

    with_store(path, clock, work)
    assert actors(path) == [str(each) for each in range(9)]


# ----------------------------------------------------------------------------- full, busy, closed


def test_a_full_queue_turns_away_who_comes_next_and_has_room_again(
    path: Path, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        first = asyncio.create_task(acquiring(store, "first"))
        await gate.reached()
        waiting = [asyncio.create_task(acquiring(store, name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        with pytest.raises(DatabaseBusy, match="queue_capacity"):
            await acquiring(store, "refused")
        await cancel(waiting[0])
        later = asyncio.create_task(acquiring(store, "later"))
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(first, waiting[1], later)

    with_store(path, clock, work, nonce=gate.nonce, queue_capacity=2)
    assert actors(path) == ["first", "b", "later"]


def test_tasks_that_wait_behind_a_thread_fill_the_same_queue(
    path: Path, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        leading = await led_by_a_thread(store, gate)
        waiting = [asyncio.create_task(acquiring(store, name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        await entered(store)
        with pytest.raises(DatabaseBusy, match="queue_capacity"):
            await acquiring(store, "refused")
        with pytest.raises(DatabaseBusy, match="queue_capacity"):
            await asyncio.to_thread(acquire, store._broker, "refused", "refused")
        gate.open()
        await asyncio.gather(leading, *waiting)

    with_store(path, clock, work, nonce=gate.nonce, queue_capacity=2)
    assert actors(path) == ["thread", "a", "b"]


def test_who_waits_for_longer_than_the_busy_timeout_is_told(path: Path, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        with write_locked(path):
            calls = [acquiring(store, str(number)) for number in range(100)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(answer) for answer in answers} == {DatabaseBusy}
        await acquiring(store, "next")
        await become_idle(store)

    with_store(path, clock, work, busy_timeout_ms=20)
    assert actors(path) == ["next"]


def test_with_no_patience_at_all_tasks_that_come_one_by_one_are_served(
    path: Path, clock: ManualClock
) -> None:
    async def work(store: AsyncBroker) -> None:
        for number in range(20):
            await acquiring(store, str(number))

    with_store(path, clock, work, busy_timeout_ms=0)
    assert actors(path) == [str(number) for number in range(20)]


def test_whom_other_tasks_keep_waiting_for_longer_than_that_is_told(
    path: Path, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        first = asyncio.create_task(acquiring(store, "first"))
        await gate.reached()
        late = asyncio.create_task(acquiring(store, "late"))
        await asyncio.sleep(0)
        gate.open()
        await first
        with pytest.raises(DatabaseBusy, match="other writers"):
            await late
        await acquiring(store, "next")

    with_store(path, clock, work, nonce=gate.nonce, busy_timeout_ms=0)
    assert actors(path) == ["first", "next"]


def test_the_loop_goes_on_while_another_process_writes(path: Path, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        with locked_by_a_process(path):
            waiting = [asyncio.create_task(acquiring(store, str(number))) for number in range(9)]
            assert await store.table_names()  # reads go on too
            assert not any(task.done() for task in waiting)
        await asyncio.gather(*waiting)

    with_store(path, clock, work)
    assert actors(path) == [str(number) for number in range(9)]


def test_closing_finishes_what_was_started_and_refuses_what_waits(
    path: Path, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        first = asyncio.create_task(acquiring(store, "first"))
        await gate.reached()
        waiting = [asyncio.create_task(acquiring(store, str(number))) for number in range(150)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        while not connections_of(store._broker).writes._is_closed:
            await asyncio.sleep(0)
        gate.open()
        assert (await first).epoch == 1
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreClosed}
        await closing

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["first"]


def test_closing_refuses_tasks_that_wait_behind_a_thread(path: Path, clock: ManualClock) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        leading = await led_by_a_thread(store, gate)
        waiting = [asyncio.create_task(acquiring(store, str(number))) for number in range(9)]
        await asyncio.sleep(0)
        await entered(store)
        closing = asyncio.create_task(store.close())
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreClosed}
        gate.open()
        await asyncio.gather(leading, closing)

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["thread"]


@pytest.mark.parametrize("count", [1, 70, 300])
def test_closing_at_any_moment_leaves_no_task_waiting(
    path: Path, clock: ManualClock, count: int
) -> None:
    async def work(store: AsyncBroker) -> list[Any]:
        writing = [asyncio.create_task(acquiring(store, str(number))) for number in range(count)]
        await asyncio.wait(writing, return_when=asyncio.FIRST_COMPLETED)
        await store.close()
        return await asyncio.gather(*writing, return_exceptions=True)

    answers = with_store(path, clock, work)
    refused = [answer for answer in answers if isinstance(answer, BrokerError)]
    assert all(type(answer) is StoreClosed for answer in refused)
    assert len(actors(path)) == count - len(refused)


# -------------------------------------------------------------------------------------- threads


def test_leadership_goes_from_a_thread_to_a_task_and_back(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        leading = await led_by_a_thread(store, gate)
        task = asyncio.create_task(acquiring(store, "task"))
        await asyncio.sleep(0)
        await entered(store)
        gate.open()
        await asyncio.gather(leading, task)

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["thread", "task"]


def test_leadership_goes_from_a_task_to_a_thread(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, waits = Gate(), announce_waiting(monkeypatch)

    async def work(store: AsyncBroker) -> None:
        task = asyncio.create_task(acquiring(store, "task"))
        await gate.reached()
        thread = asyncio.ensure_future(
            asyncio.to_thread(acquire, store._broker, "thread", "thread")
        )
        assert await asyncio.to_thread(waits.wait, 60)
        gate.open()
        await asyncio.gather(task, thread)

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["task", "thread"]


def test_loops_of_several_threads_share_a_store(store: Broker, path: Path) -> None:
    async def work(name: str) -> None:
        awaited = AsyncBroker(store)
        await asyncio.gather(*(acquiring(awaited, f"{name}-{number}") for number in range(100)))

    in_threads(*(partial(asyncio.run, work(name)) for name in "abc"))
    for name in "abc":
        mine = [actor for actor in actors(path) if actor.startswith(name)]
        assert mine == [f"{name}-{number}" for number in range(100)]


def test_no_one_is_forgotten_among_many_threads_and_tasks(path: Path, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        async def task(name: int) -> None:
            for number in range(40):
                await acquiring(store, f"task-{name}-{number}")

        def thread(name: int) -> None:
            for number in range(40):
                acquire(store._broker, f"thread-{name}-{number}", f"thread-{name}-{number}")

        with ThreadPoolExecutor(8) as pool:
            loop = asyncio.get_running_loop()
            threads = [loop.run_in_executor(pool, thread, name) for name in range(8)]
            async with asyncio.timeout(120):
                await asyncio.gather(*threads, *(task(name) for name in range(40)))
        await become_idle(store)

    with_store(path, clock, work)
    assert len(actors(path)) == 48 * 40


def test_cancelled_at_random_nobody_else_is_forgotten(path: Path, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> set[str]:
        done: set[str] = set()

        async def task(name: int) -> None:
            for number in range(30):
                actor = f"{name}-{number}"
                await acquiring(store, actor)
                done.add(actor)

        def thread() -> None:
            for number in range(100):
                acquire(store._broker, f"thread-{number}", f"thread-{number}")

        beside = asyncio.ensure_future(asyncio.to_thread(thread))
        tasks = [asyncio.create_task(task(name)) for name in range(60)]
        for victim in tasks[::2]:
            await acquiring(store, f"canceller-{tasks.index(victim)}")
            victim.cancel()
        async with asyncio.timeout(120):
            await asyncio.wait(tasks)
            await beside
        await become_idle(store)
        return done

    done = with_store(path, clock, work)
    assert done <= set(actors(path))
    assert {f"{name}-29" for name in range(1, 60, 2)} <= done


# ------------------------------------------------------------------------------------- the worst


def test_an_exit_that_a_clock_asks_for_ends_the_program_and_leaves_no_lock(
    path: Path, clock: ManualClock
) -> None:
    def nonce() -> str:
        raise SystemExit(3)

    async def work(store: AsyncBroker) -> None:
        calls = (acquiring(store, str(number)) for number in range(9))
        await asyncio.gather(*calls, return_exceptions=True)

    with pytest.raises(SystemExit) as caught:
        with_store(path, clock, work, nonce=nonce)
    assert caught.value.code == 3
    assert actors(path) == []
    assert not is_write_locked(path)


def test_an_exit_that_a_request_asks_for_reaches_its_caller_and_nobody_else(
    path: Path, clock: ManualClock
) -> None:
    def make() -> Any:
        raise SystemExit(3)

    async def work(store: AsyncBroker) -> None:
        try:
            await store._write(make)
        except SystemExit as error:
            assert error.code == 3  # noqa: PT017  # asyncio would end the program
        await acquiring(store)
        await become_idle(store)

    with_store(path, clock, work)
    assert actors(path) == ["actor"]


def test_a_thread_leads_for_tasks_when_no_other_can_be_started(
    path: Path, clock: ManualClock
) -> None:
    # As when the interpreter is about to end while a loop runs on another thread.
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        leading = await led_by_a_thread(store, gate)
        tasks = [asyncio.create_task(acquiring(store, str(number))) for number in range(3)]
        await asyncio.sleep(0)
        await entered(store)
        store._writes.close()
        gate.open()
        await asyncio.gather(leading, *tasks)
        with pytest.raises(StoreClosed):
            await acquiring(store, "late")
        assert is_idle(store)

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["thread", "0", "1", "2"]


def test_a_loop_that_was_closed_with_a_write_in_the_queue_harms_no_thread(
    store: Broker, path: Path
) -> None:
    async def make() -> AsyncBroker:
        return AsyncBroker(store)

    async def ask() -> None:
        waiting.append(loop.create_task(acquiring(awaited)))
        await asyncio.sleep(0)

    waiting: list[asyncio.Task[Lease]] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # a pending task was destroyed
    awaited = loop.run_until_complete(make())
    with ThreadPoolExecutor(1) as pool:
        with write_locked(path):
            leading = pool.submit(acquire, store, "thread", "thread")
            while not connections_of(store).writes._is_led:
                pass
            loop.run_until_complete(ask())
            writes_of(awaited)._thread.submit(int).result()  # it is in the queue
            loop.close()
        assert leading.result().epoch == 1
    awaited._close()
    assert set(actors(path)) <= {"actor", "thread"}
