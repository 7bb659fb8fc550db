"""Tasks that are cancelled: what was not started is not done, and nobody else notices."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker import AsyncBroker
from broker.transaction import Write
from tests.async_support import (
    Gate,
    acquiring,
    announce_waiting,
    become_idle,
    cancel,
    entered,
    kept_busy,
    led_by_a_thread,
    with_store,
)
from tests.group_support import actors
from tests.sqlite_support import writes_of
from tests.support import (
    ManualClock,
    acquire,
    locked_by_a_process,
)


def test_what_is_cancelled_before_it_was_prepared_is_neither_prepared_nor_done(
    path: Path, clock: ManualClock
) -> None:
    prepared: list[str] = []

    def prepare() -> Write[None]:
        prepared.append("prepared")
        return Write(lambda _transaction: prepared.append("done"))

    async def work(store: AsyncBroker) -> None:
        with kept_busy(store):
            waiting = asyncio.create_task(store._write(prepare))
            await asyncio.sleep(0)
            await cancel(waiting)
        await become_idle(store)
        assert prepared == []
        await store._write(prepare)
        assert prepared == ["prepared", "done"]

    with_store(path, clock, work)


def test_what_is_cancelled_in_the_queue_is_not_done(path: Path, clock: ManualClock) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        leading = await led_by_a_thread(store, gate)
        names = ["kept", "gone", "kept too", "gone too"]
        tasks = [asyncio.create_task(acquiring(store, name)) for name in names]
        await asyncio.sleep(0)
        await entered(store)
        await cancel(tasks[1], tasks[3])
        gate.open()
        await asyncio.gather(leading, tasks[0], tasks[2])
        await become_idle(store)

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["thread", "kept", "kept too"]


def test_a_queue_of_nothing_but_cancelled_tasks_is_left_empty(
    path: Path, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        leading = await led_by_a_thread(store, gate)
        tasks = [asyncio.create_task(acquiring(store, str(number))) for number in range(150)]
        await asyncio.sleep(0)
        await entered(store)
        await cancel(*tasks)
        gate.open()
        await leading
        await acquiring(store, "next")
        await become_idle(store)

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["thread", "next"]


def test_one_that_is_cancelled_when_it_was_chosen_to_lead_lets_the_next_one_lead(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, busy = Gate(), threading.Event()

    async def work(store: AsyncBroker) -> None:
        leading = await led_by_a_thread(store, gate)
        chosen = asyncio.create_task(acquiring(store, "chosen"))
        await asyncio.sleep(0)
        await entered(store)
        waits = announce_waiting(monkeypatch)
        behind = asyncio.ensure_future(
            asyncio.to_thread(acquire, store._broker, "behind", "behind")
        )
        assert await asyncio.to_thread(waits.wait, 60)
        occupied = writes_of(store)._thread.submit(busy.wait, 60)

        gate.open()
        await leading
        assert writes_of(store)._leader is not None
        await cancel(chosen)
        assert not behind.done()
        busy.set()
        await behind
        assert occupied.result()
        await become_idle(store)

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["thread", "behind"]


def test_what_is_cancelled_after_it_was_started_is_done_and_found_by_its_repetition(
    path: Path, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        started = asyncio.create_task(acquiring(store, request_id="once"))
        await gate.reached()
        await cancel(started)
        gate.open()
        clock.advance(5)
        again = await acquiring(store, request_id="once")
        assert (again.epoch, again.nonce) == (1, "nonce-1")
        await become_idle(store)

    with_store(path, clock, work, nonce=gate.nonce)


def test_what_is_cancelled_while_another_process_writes_is_not_done(
    path: Path, clock: ManualClock
) -> None:
    async def work(store: AsyncBroker) -> None:
        with locked_by_a_process(path):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await acquiring(store)
            waiting = [asyncio.create_task(acquiring(store, str(number))) for number in range(5)]
            await asyncio.sleep(0)
            await cancel(*waiting)
        await acquiring(store, "next")
        await become_idle(store)

    with_store(path, clock, work)
    assert actors(path) == ["next"]


def test_the_failure_of_a_task_group_takes_its_waiting_writes_along(
    path: Path, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        first = asyncio.create_task(acquiring(store, "first"))
        await gate.reached()
        with pytest.raises(ExceptionGroup) as caught:
            await fail_together(*(acquiring(store, str(number)) for number in range(20)))
        assert caught.group_contains(ZeroDivisionError)
        gate.open()
        await first
        await become_idle(store)

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["first"]


async def fail_together(*calls: Coroutine[Any, Any, object]) -> None:
    """Begin the calls in a task group, which fails then."""
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)
        await asyncio.sleep(0)
        raise ZeroDivisionError


def test_an_error_that_nobody_waits_for_any_more_is_not_complained_of(
    path: Path, clock: ManualClock
) -> None:
    gate = Gate()

    async def work(store: AsyncBroker) -> None:
        with kept_busy(store):
            group = [asyncio.create_task(acquiring(store, "same")) for _ in range(4)]
            await asyncio.sleep(0)
        await gate.reached()  # all have been started
        await cancel(*group[1:])
        gate.open()
        await group[0]
        await become_idle(store)

    with_store(path, clock, work, nonce=gate.nonce)
    assert actors(path) == ["same"]
