"""Many callers at once: threads and tasks on one store, and threads on connections of their own.

Each caller has a stream and a lease of its own, and its requests ready before the clock starts. All
begin together; a rate is that of a whole burst, from the first call to the last answer.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TypeAlias

from benchmarks import floor
from benchmarks.databases import LATER_MS, Raw, crowded, raw
from benchmarks.measure import Burst, Figure, alternate, median_rate, percentile_us, timed
from benchmarks.scale import Scale
from benchmarks.workload import Request, Requests, ready
from broker import Broker
from broker.async_store import AsyncBroker
from broker.errors import Refusal

THREADS_BOUND = 1.8
P99_BOUND = 4
OWN_CONNECTIONS_BOUND = 3.5
LONGEST_WAIT_BOUND = 0.05
TASKS_BOUND = 2
MOST_LAG_MS = 5.0

_REFUSED_ONE_IN = 10
_PATIENCE_S = 60  # of connections of their own, some of which starve
_TICK_MS = 1

#: A burst in which every caller does so many commits.
Bursts: TypeAlias = Callable[[int], Burst]


def figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    """One store in many hands, against the raw floor in one pair of hands and in as many."""
    callers, tasks, each = scale.callers, scale.tasks, scale.burst
    lags: list[int] = []
    with ExitStack() as stack:
        one = stack.enter_context(raw(folder / "floor.db"))
        store = stack.enter_context(threads(folder / "threads.db", callers))
        own = stack.enter_context(own_connections(folder / "own.db", callers))
        awaited = stack.enter_context(event_loop(folder / "tasks.db", tasks, lags))
        bursts = alternate(
            {
                "floor": lambda: one_caller(one, 8 * each),
                "store": lambda: store(each),
                "own": lambda: own(each),
                "tasks": lambda: awaited(max(1, each // 3)),
            },
            scale.burst_rounds,
            rng,
        )
    rates = {name: median_rate(each) for name, each in bursts.items()}
    base = rates["floor"]
    yield Figure(
        "threads", f"{callers} threads, one Broker", "per_s", rates["store"], base, THREADS_BOUND
    )
    median, p99, longest = (percentile_us(bursts["store"], part) for part in (0.5, 0.99, 1))
    yield Figure("threads_p99", "… p99 against the median", "us", p99, median, P99_BOUND)
    yield Figure(
        "threads_own",
        f"… against {callers} connections",
        "per_s",
        rates["store"],
        rates["own"],
        OWN_CONNECTIONS_BOUND,
    )
    longest_own = percentile_us(bursts["own"], 1)
    yield Figure("longest_wait", "… longest wait", "us", longest, longest_own, LONGEST_WAIT_BOUND)
    yield Figure(
        "tasks", f"{tasks} tasks, one AsyncBroker", "per_s", rates["tasks"], base, TASKS_BOUND
    )
    lag_ms = sorted(lags)[len(lags) * 99 // 100] / 1e6
    yield Figure("loop_lag", "… p99 lag of the loop", "ms", lag_ms, MOST_LAG_MS, 1)


def refusal_figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    """What it costs all that one request in ten is refused, in requests answered.

    For its revision, which is found out before anything is written; or for an event id that was
    used, which the database finds out: then the group is undone, and done again with savepoints.
    """
    kinds = {"none": None, "revision": wrong_revision, "event_id": used_event_id}
    with ExitStack() as stack:
        stores = {
            name: stack.enter_context(threads(folder / f"{name}.db", scale.callers, refused))
            for name, refused in kinds.items()
        }
        bursts = alternate(
            {name: partial(store, scale.burst) for name, store in stores.items()},
            scale.burst_rounds,
            rng,
        )
    rates = {name: median_rate(each) for name, each in bursts.items()}
    for name, why in (("revision", "their revision"), ("event_id", "a used event id")):
        title = f"10 % of {scale.callers} threads' refused for {why}"
        yield Figure(f"refused_{name}", title, "per_s", rates[name], rates["none"])


# ------------------------------------------------------------------------------------ the callers


def one_caller(plain: Raw, count: int) -> Burst:
    """The raw floor, one commit after another."""
    parameters = [plain.next() for _ in range(count)]
    start = perf_counter_ns()
    spent = timed(lambda each: floor.commit(plain.cursor, each), parameters)
    return Burst(perf_counter_ns() - start, spent)


@contextmanager
def threads(
    path: Path, callers: int, refused: Callable[[Requests], Request] | None = None
) -> Iterator[Bursts]:
    """Threads on one `Broker`; with `refused` every tenth request of each is one of those."""
    with crowded(path, callers) as (broker, crowd), ThreadPoolExecutor(callers) as pool:

        def commit(request: Request) -> None:
            with suppress(Refusal):
                broker.commit(request)

        def share(requests: Requests, count: int) -> Callable[[], list[int]]:
            given = [
                refused(requests)
                if refused and number % _REFUSED_ONE_IN == _REFUSED_ONE_IN - 1
                else requests.next()
                for number in range(count)
            ]
            return lambda: timed(commit if refused else broker.commit, given)

        yield lambda count: _together(pool, [share(each, count) for each in crowd])


@contextmanager
def own_connections(path: Path, callers: int) -> Iterator[Bursts]:
    """Threads with a connection each, that execute the raw floor."""
    with crowded(path, callers) as (_broker, crowd):
        pass
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(callers))
        cursors = [
            stack.enter_context(closing(floor.connect(path, _PATIENCE_S))).cursor() for _ in crowd
        ]
        now = itertools.count(LATER_MS)

        def share(number: int, count: int) -> Callable[[], list[int]]:
            parameters = [
                ready(crowd[number].next(), next(now)).at_any_cursor() for _ in range(count)
            ]
            return lambda: timed(partial(floor.commit, cursors[number]), parameters)

        yield lambda count: _together(pool, [share(number, count) for number in range(callers)])


@contextmanager
def event_loop(path: Path, tasks: int, lags: list[int]) -> Iterator[Bursts]:
    """Tasks of one event loop on one `AsyncBroker`; `lags` gets how late the loop was, in ns."""

    async def serve(broker: Broker) -> AsyncBroker:
        return AsyncBroker(broker)

    with crowded(path, tasks) as (broker, crowd), asyncio.Runner() as runner:
        store = runner.run(serve(broker))
        yield lambda count: runner.run(_tasks_together(store, crowd, count, lags))
        runner.run(store.close())


# ----------------------------------------------------------------------------------- all together


def _together(pool: ThreadPoolExecutor, shares: Sequence[Callable[[], list[int]]]) -> Burst:
    """Let every thread do its share, from the moment on that all are there."""
    gate = threading.Barrier(len(shares) + 1)

    def work(share: Callable[[], list[int]]) -> list[int]:
        gate.wait()
        return share()

    futures = [pool.submit(work, share) for share in shares]
    gate.wait()
    start = perf_counter_ns()
    spent = [nanoseconds for future in futures for nanoseconds in future.result()]
    return Burst(perf_counter_ns() - start, spent)


async def _tasks_together(
    store: AsyncBroker, crowd: Sequence[Requests], count: int, lags: list[int]
) -> Burst:
    async def share(requests: list[Request]) -> list[int]:
        spent = []
        for request in requests:
            start = perf_counter_ns()
            await store.commit(request)
            spent.append(perf_counter_ns() - start)
        return spent

    async def watch() -> None:
        while True:
            start = perf_counter_ns()
            await asyncio.sleep(_TICK_MS / 1_000)
            lags.append(perf_counter_ns() - start - _TICK_MS * 1_000_000)

    given = [[requests.next() for _ in range(count)] for requests in crowd]
    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0)
    start = perf_counter_ns()
    shares = await asyncio.gather(*map(share, given))
    elapsed = perf_counter_ns() - start
    watcher.cancel()
    return Burst(elapsed, list(itertools.chain.from_iterable(shares)))


# ---------------------------------------------------------------------------- requests to be refused


def wrong_revision(requests: Requests) -> Request:
    """A commit at a revision that its stream is not at."""
    request = requests.unused()
    return request | {"expectedRevision": requests.revision + 7}


def used_event_id(requests: Requests) -> Request:
    """A commit of an event whose id the stream's first commit has used."""
    request = requests.unused()
    event_id = requests.first_event_id
    (event,), (message,) = request["events"], request["outbox"]
    return request | {
        "events": [event | {"eventId": event_id}],
        "outbox": [message | {"eventId": event_id}],
    }
