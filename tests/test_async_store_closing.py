"""Opening and closing the async store: what is refused, what is waited for, what stays open."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from broker import AsyncBroker, Broker
from broker.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    StoreClosed,
)
from tests.async_support import (
    SlowRead,
    acquiring,
    is_idle,
    on_a_loop,
    operate,
    with_store,
)
from tests.places import Place, url_of
from tests.sqlite_support import connections_of
from tests.support import (
    ManualClock,
    open_files,
    open_store,
    operation_names,
    operation_requests,
)


def test_opening_refuses_what_broker_open_refuses(tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(DatabaseUnavailable):
            await AsyncBroker.open(url_of(tmp_path / "missing.db"), migrate=False)

    on_a_loop(work)


@pytest.mark.parametrize("name", sorted(operation_names()))
def test_after_close_every_operation_says_that_the_store_is_closed(
    place: Place, clock: ManualClock, name: str
) -> None:
    with open_store(place, clock) as store:
        request = operation_requests(store, clock)[name]

    async def work(store: AsyncBroker) -> None:
        await store.close()
        with pytest.raises(StoreClosed):
            await operate(store, name, request)

    with_store(place, clock, work)


def test_closing_lets_go_of_every_file_and_thread_and_can_be_repeated(
    path: Path, clock: ManualClock
) -> None:
    async def work(store: AsyncBroker) -> None:
        await acquiring(store)
        await store.get_lease({"actorId": "actor"})
        assert open_files(path)
        await asyncio.gather(store.close(), store.close())
        await store.close()
        assert open_files(path) == []
        assert [each for each in threading.enumerate() if each.name.startswith("broker")] == []

    with_store(path, clock, work)
    assert list(path.parent.iterdir()) == [path]


def test_leaving_the_context_closes_also_after_an_error(path: Path, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        await acquiring(store)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        with_store(path, clock, work)
    assert open_files(path) == []


def test_closing_waits_for_the_reads_that_run_and_refuses_those_that_wait(
    path: Path, clock: ManualClock
) -> None:
    async def work(store: AsyncBroker) -> None:
        slow = [SlowRead() for _ in range(4)]
        running = [asyncio.create_task(store._read(each.make)) for each in slow]
        for each in slow:
            assert await asyncio.to_thread(each.inside.wait, 60)
        waiting = asyncio.create_task(store.get_lease({"actorId": "actor"}))
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await until_closed(store)
        for each in slow:
            each.go_on.set()
        assert await asyncio.gather(*running) == [1, 1, 1, 1]
        with pytest.raises(StoreClosed):
            await waiting
        await closing

    with_store(path, clock, work)
    assert open_files(path) == []


async def until_closed(store: AsyncBroker) -> None:
    """Wait until the store refuses what is called."""
    while not connections_of(store._broker)._closed:
        await asyncio.sleep(0)


def test_what_meets_the_closing_of_the_threads_is_told_that_the_store_is_closed(
    place: Place, clock: ManualClock
) -> None:
    # The call has seen an open store, and finds the threads gone.
    async def work(store: AsyncBroker) -> None:
        store._writes.close()
        store._reading.shutdown()
        with pytest.raises(StoreClosed):
            await acquiring(store)
        with pytest.raises(StoreClosed):
            await store.table_names()
        assert is_idle(store)

    with_store(place, clock, work)


def test_it_belongs_to_its_loop_and_says_so_in_another(path: Path, clock: ManualClock) -> None:
    async def make() -> AsyncBroker:
        return await AsyncBroker.open(url_of(path), options=clock.options())

    async def misuse() -> None:
        for call in (acquiring(store), store.table_names(), store.journal_mode):
            with pytest.raises(ConfigurationError, match="another event loop"):
                await call

    store = on_a_loop(make)
    on_a_loop(misuse)
    on_a_loop(store.close)  # which any loop may do
    assert open_files(path) == []


def test_a_store_that_a_fork_has_spoilt_is_refused_here_too(path: Path, store: Broker) -> None:
    async def work() -> None:
        awaited = AsyncBroker(store)
        for call in (acquiring(awaited), awaited.table_names()):
            with pytest.raises(ConfigurationError, match="forked while the store was in use"):
                await call

    connections_of(store).start_afresh(was_paused=False)
    on_a_loop(work)


def test_without_a_running_loop_none_can_be_made(store: Broker) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncBroker(store)
