"""The async store: the operations, awaited; what it opens, closes and leaves behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sqlite3
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, assert_type

import pytest
from sqlalchemy import Pool, event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from broker import AsyncBroker, Broker
from broker.errors import (
    DatabaseError,
    InvalidRequest,
    LeaseUnavailable,
    RevisionConflict,
    StaleLease,
    StoreClosed,
)
from broker.messages import (
    CommitRequest,
    CommitResult,
    GetLeaseRequest,
    Lease,
    ReadEventsRequest,
    StoredEvent,
)
from broker.operations import Operations
from tests import support
from tests.async_support import (
    SlowRead,
    acquiring,
    become_idle,
    entered,
    is_idle,
    join_threads,
    on_a_loop,
    operate,
    with_store,
)
from tests.places import Place, PlaceOn, contents, raw, rows, url_of
from tests.support import (
    TTL_MS,
    ManualClock,
    acquire,
    commit_request,
    expect_refusal,
    finish,
    locked_by_a_process,
    open_files,
    open_store,
    operation_names,
    operation_requests,
    start_python,
)

# --------------------------------------------------------------------------------- the operations


def test_every_operation_is_the_same_function_as_of_the_other_doors() -> None:
    for name in operation_names() - {"journal_mode"}:
        assert inspect.getattr_static(AsyncBroker, name) is getattr(Operations, name)
    assert isinstance(inspect.getattr_static(AsyncBroker, "journal_mode"), property)


def test_it_offers_what_a_store_offers_and_documents_it() -> None:
    offered = {name for name in dir(AsyncBroker) if not name.startswith("_")}
    assert offered == {name for name in dir(Broker) if not name.startswith("_")}
    assert all(inspect.getdoc(getattr(AsyncBroker, name)) for name in offered)


def test_every_operation_gives_the_result_that_threads_get(backend: str, place_on: PlaceOn) -> None:
    answers, stored = {}, {}
    for door in ("sync", "async"):
        clock = ManualClock()
        with place_on(backend) as place, open_store(place, clock) as store:
            requests = operation_requests(store, clock)
            if door == "sync":
                answers[door] = {
                    name: support.operate(store, name, requests[name]) for name in requests
                }
                stored[door] = contents(place)
                continue

            async def work(store: Broker = store, requests: dict[str, Any] = requests) -> Any:
                awaited = AsyncBroker(store)
                return {name: await operate(awaited, name, requests[name]) for name in requests}

            answers[door] = on_a_loop(work)
            stored[door] = contents(place)
    assert answers["async"] == answers["sync"]
    assert stored["async"] == stored["sync"]


def test_type_checkers_know_what_comes_out_of_an_await(place: Place, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        lease = assert_type(await acquiring(store), Lease)
        request = CommitRequest.model_validate(commit_request(lease, streamId="actor"))
        assert_type(await store.commit(request), CommitResult)
        assert_type(await store.commit(request.to_json()), CommitResult)
        assert_type(await store.get_lease(GetLeaseRequest(actor_id="actor")), Lease | None)
        assert_type(
            await store.read_events(ReadEventsRequest(stream_id="actor")), list[StoredEvent]
        )
        assert_type(await store.table_names(), list[str])
        async for each in store.walk_events(ReadEventsRequest(stream_id="actor")):
            assert_type(each, StoredEvent)
        assert_type(await store.journal_mode, str)
        shown: Any = {"actorId": "actor", "lease": lease.credential.to_json()}
        await store.release_lease(shown, request_id="release")
        with pytest.raises(TypeError):
            await store.commit()  # type: ignore[call-arg]  # what a type checker must refuse
        with pytest.raises(InvalidRequest):
            await store.commit(5)  # type: ignore[arg-type]  # the same

    with_store(place, clock, work)


def test_errors_come_out_of_the_await_as_what_they_are(path: Path, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        lease = await acquiring(store)
        request = commit_request(lease, streamId="actor")
        wrong = {**request, "lease": {"epoch": 9, "nonce": "no"}}
        with expect_refusal(InvalidRequest, field="ttlMs"):
            await store.acquire_lease({"actorId": "new", "holderId": "holder", "ttlMs": 0})
        with expect_refusal(InvalidRequest, field="actorId"):
            await store.get_lease({})
        with pytest.raises(LeaseUnavailable):
            await acquiring(store)
        with pytest.raises(StaleLease):
            await store.commit(wrong)
        with pytest.raises(RevisionConflict):
            await store.commit({**request, "expectedRevision": 7})
        await store.commit(request)
        later = request | {"messageId": "later", "expectedRevision": 1}
        later |= {"events": [], "projections": [{"projectionId": "projection", "value": 1}]}
        with raw(path) as connection:
            connection.execute("DROP TABLE projections")
        for call in (
            store.read_projection({"projectionId": "projection"}),
            store.commit(later),
        ):
            with pytest.raises(DatabaseError, match="no such table") as caught:
                await call
            assert isinstance(caught.value.__cause__, sqlite3.Error)
        await become_idle(store)

    with_store(path, clock, work)


def test_an_error_is_in_no_reference_cycle(place: Place, clock: ManualClock) -> None:
    async def refused(call: Callable[[], Any], kind: type[Exception]) -> weakref.ref[Exception]:
        try:
            await call()
        except kind as error:
            return weakref.ref(error)
        raise AssertionError("it was not refused")

    async def work(store: AsyncBroker) -> None:
        wrong = commit_request(await acquiring(store), streamId="actor", expectedRevision=7)
        stale: Any = {"actorId": "actor", "lease": {"epoch": 9, "nonce": "no"}}
        reading = {"streamId": "actor", "authorization": stale}
        gc.collect()
        gc.disable()
        try:
            errors = [
                await refused(lambda: store.release_lease(stale), StaleLease),
                await refused(lambda: store.commit(wrong), RevisionConflict),
                await refused(lambda: store.commit({}), InvalidRequest),
                await refused(lambda: store.read_authorized_events(reading), StaleLease),
            ]
            await entered(store)
            await asyncio.to_thread(store._reading.shutdown)  # its threads forget what they did
            assert [error() for error in errors] == [None] * 4
        finally:
            gc.enable()

    with_store(place, clock, work)


def test_a_walk_may_be_abandoned_anywhere(place: Place, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        lease = await acquiring(store)
        events = [support.event(str(number)) for number in range(300)]
        await store.commit(commit_request(lease, streamId="actor", events=events))
        seen = []
        async for each in store.walk_events({"streamId": "actor"}):
            seen.append(each.event_id)
            if len(seen) == 200:
                break
        assert seen == [str(number) for number in range(200)]
        await asyncio.to_thread(store._reading.shutdown)
        assert is_idle(store)

    with_store(place, clock, work)


@pytest.mark.parametrize("name", ["acquire_lease", "read_model_sources"])
def test_stop_iteration_of_an_applications_clock_reaches_the_caller(
    place: Place, clock: ManualClock, name: str
) -> None:
    ticks = iter([1_000])  # for the opening

    async def work(store: AsyncBroker) -> None:
        requests = {
            "acquire_lease": {"actorId": "actor", "holderId": "holder", "ttlMs": TTL_MS},
            "read_model_sources": {"workspaceId": "workspace"},
        }
        with pytest.raises(RuntimeError, match="StopIteration") as caught:
            await operate(store, name, requests[name])
        assert isinstance(caught.value.__cause__, StopIteration)
        await become_idle(store)

    async def run() -> None:
        options = clock.options().__class__(wall_clock=lambda: next(ticks))
        async with await AsyncBroker.open(url_of(place), options=options) as store:
            await work(store)

    on_a_loop(run)


# -------------------------------------------------------------------------- nothing on the loop


class Watched(Mapping[str, Any]):
    """A request that remembers which threads have looked at it."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content
        self.threads: set[int] = set()

    def __getitem__(self, key: str) -> Any:
        self.threads.add(threading.get_ident())
        return self._content[key]

    def __iter__(self) -> Iterator[str]:
        self.threads.add(threading.get_ident())
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


@pytest.fixture
def threads_of_sqlite() -> Iterator[set[int]]:
    """The threads that have connected to a database or run a statement."""
    threads: set[int] = set()

    def watch(connection: sqlite3.Connection, _record: object) -> None:
        threads.add(threading.get_ident())
        connection.set_trace_callback(lambda _sql: threads.add(threading.get_ident()))

    event.listen(Pool, "connect", watch)
    yield threads
    event.remove(Pool, "connect", watch)


def test_the_loop_meets_neither_a_database_nor_a_request(
    path: Path, clock: ManualClock, threads_of_sqlite: set[int]
) -> None:
    with open_store(tmp := path.with_name("example.db"), clock) as example:
        requests = operation_requests(example, clock)
    threads_of_sqlite.clear()
    path.write_bytes(tmp.read_bytes())

    async def work(store: AsyncBroker) -> None:
        for name, request in requests.items():
            if request is None:
                await operate(store, name, None)
                continue
            watched = Watched(request.to_json())
            await operate(store, name, watched)
            assert watched.threads
            if not name.startswith("walk"):  # whose requests are small, and checked at once
                assert threading.get_ident() not in watched.threads

    with_store(path, clock, work)
    assert len(threads_of_sqlite) > 2
    assert threading.get_ident() not in threads_of_sqlite


# ------------------------------------------------------------------------------------ cancellation


def test_a_cancelled_read_gives_its_connection_back(place: Place, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        await acquiring(store)
        slow = SlowRead()
        reading = asyncio.create_task(store._read(slow.make))
        assert await asyncio.to_thread(slow.inside.wait, 60)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await store.get_lease({"actorId": "actor"}) is not None
        slow.go_on.set()
        await asyncio.to_thread(store._reading.shutdown)
        assert is_idle(store)

    with_store(place, clock, work)


def test_a_read_that_is_cancelled_while_it_waits_for_a_thread_is_not_done(
    place: Place, clock: ManualClock
) -> None:
    async def work(store: AsyncBroker) -> None:
        slow = [SlowRead() for _ in range(5)]
        reads = [asyncio.create_task(store._read(each.make)) for each in slow]
        for each in slow[:4]:
            assert await asyncio.to_thread(each.inside.wait, 60)
        reads[4].cancel()
        await asyncio.wait(reads[4:])
        for each in slow:
            each.go_on.set()
        assert await asyncio.gather(*reads[:4]) == [1, 1, 1, 1]
        await asyncio.to_thread(store._reading.shutdown)
        assert not slow[4].inside.is_set()

    with_store(place, clock, work)


def test_an_opening_that_is_cancelled_leaves_nothing_open(path: Path, clock: ManualClock) -> None:
    open_store(path, clock).close()

    async def work() -> None:
        with locked_by_a_process(path):
            opening = asyncio.create_task(AsyncBroker.open(url_of(path)))
            await asyncio.sleep(0)  # it has begun
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
        await asyncio.to_thread(join_threads, "broker-opener")

    on_a_loop(work)
    assert open_files(path) == []


# ------------------------------------------------------------------------------------ its neighbours


def test_threads_and_tasks_use_the_same_store(store: Broker) -> None:
    async def work() -> None:
        awaited = AsyncBroker(store)
        assert awaited.options is store.options
        assert awaited.engine is store.engine
        lease = await acquiring(awaited)
        assert store.get_lease({"actorId": "actor"}) == lease
        result = await asyncio.to_thread(store.commit, commit_request(lease, streamId="actor"))
        assert await awaited.get_stream_revision({"streamId": "actor"}) == result.revision == 1
        await awaited.close()
        with pytest.raises(StoreClosed):
            store.table_names()

    on_a_loop(work)


def test_units_of_work_in_an_async_session_go_on_beside_it(path: Path, clock: ManualClock) -> None:
    async def work(store: AsyncBroker) -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with AsyncSession(engine) as session:
            lease = await session.run_sync(lambda sync: acquire(store.unit_of_work(sync)))
            await session.commit()
            await store.commit(commit_request(lease))
            later = commit_request(lease, "later", expectedRevision=1)
            await session.run_sync(lambda sync: store.unit_of_work(sync).commit(later))
            await session.commit()
        await engine.dispose()
        assert await store.get_stream_revision({"streamId": "stream"}) == 2

    with_store(path, clock, work)


def test_greenlet_is_not_needed(place: Place) -> None:
    script = """
import asyncio, sys
sys.modules["greenlet"] = None  # as if it were not installed
from broker import AsyncBroker

async def main():
    async with await AsyncBroker.open(sys.argv[1]) as store:
        await store.acquire_lease({"actorId": "actor", "holderId": "holder", "ttlMs": 60_000})
        await store.table_names()

asyncio.run(main())
"""
    finish(start_python(script, url_of(place), kind=subprocess.Popen))
    assert rows(place, "SELECT actor_id FROM actor_leases") == [("actor",)]
