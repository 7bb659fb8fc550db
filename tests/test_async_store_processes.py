"""The async store at the end of its process: unclosed, interrupted, forked."""

from __future__ import annotations

from pathlib import Path

from tests.places import Place, rows, url_of
from tests.support import ManualClock, finish, is_write_locked, open_store, start_python

NEVER_CLOSED = """
import asyncio, sys
from broker import AsyncBroker, Broker

LEASE = {"holderId": "holder", "ttlMs": 60_000}

async def main():
    store = await AsyncBroker.open(sys.argv[1])
    await store.acquire_lease({"actorId": "actor", **LEASE})
    await store.table_names()
    return store

kept = asyncio.run(main())
"""


def test_a_process_ends_with_a_store_that_nobody_closed(place: Place) -> None:
    finish(start_python(NEVER_CLOSED, url_of(place)))
    assert rows(place, "SELECT actor_id FROM actor_leases") == [("actor",)]
    assert not is_write_locked(place)


LOOP_CLOSED_WITH_TASKS = """
import asyncio, sys, warnings
from broker import AsyncBroker, Broker

LEASE = {"holderId": "holder", "ttlMs": 60_000}
loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda *_: None)  # which says that a task was destroyed
store = loop.run_until_complete(AsyncBroker.open(sys.argv[1]))

async def start():
    for number in range(200):
        waiting.append(loop.create_task(store.acquire_lease({"actorId": str(number), **LEASE})))
    await asyncio.sleep(0)

waiting = []
loop.run_until_complete(start())
loop.close()
print("closed", flush=True)
"""


def test_a_process_ends_though_a_loop_was_closed_with_tasks_waiting(place: Place) -> None:
    with open_store(place, ManualClock()):
        pass
    assert finish(start_python(LOOP_CLOSED_WITH_TASKS, url_of(place))) == "closed\n"
    assert not is_write_locked(place)
    assert_sound(place)


def assert_sound(place: Place) -> None:
    """A file may be damaged by a process that ends in the middle; a server has its own."""
    if isinstance(place, Path):
        assert rows(place, "PRAGMA integrity_check") == [("ok",)]


INTERRUPTED = """
import asyncio, signal, sqlite3, sys
from broker import AsyncBroker, Options

signal.signal(signal.SIGINT, signal.default_int_handler)

async def main():
    async with await AsyncBroker.open(sys.argv[1], options=Options(busy_timeout_ms=500)) as store:
        connection = sqlite3.connect(sys.argv[2], isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        request = {"actorId": "actor", "holderId": "holder", "ttlMs": 60_000}
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await store.acquire_lease(request)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_of_the_program_ends_it_and_what_it_waited_for(path: Path) -> None:
    assert finish(start_python(INTERRUPTED, url_of(path), path)) == "interrupted\n"
    assert rows(path, "SELECT * FROM actor_leases") == []
    assert not is_write_locked(path)


FORK = """
import asyncio, os, sys
from broker import AsyncBroker
from broker.errors import ConfigurationError

LEASE = {"holderId": "holder", "ttlMs": 60_000}

async def child(parents):
    try:
        await parents.table_names()
    except ConfigurationError:
        await parents.close()
    async with await AsyncBroker.open(sys.argv[1]) as store:
        await store.acquire_lease({"actorId": "child", **LEASE})

async def main():
    async with await AsyncBroker.open(sys.argv[1]) as store:
        writing = [
            asyncio.create_task(store.acquire_lease({"actorId": str(number), **LEASE}))
            for number in range(50)
        ]
        await store.table_names()
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(child(store))
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        await asyncio.gather(*writing)
        await store.acquire_lease({"actorId": "parent", **LEASE})
        return code

sys.exit(asyncio.run(main()))
"""


def test_a_child_of_an_async_program_opens_its_own(place: Place) -> None:
    finish(start_python(FORK, url_of(place)))
    actors = {actor for (actor,) in rows(place, "SELECT actor_id FROM actor_leases")}
    assert actors == {"child", "parent", *map(str, range(50))}
    assert_sound(place)
