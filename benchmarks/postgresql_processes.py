"""Many processes that commit at once, each on streams of its own, by the store or by Core.

All contestants live in the same processes, each with a connection of the store's and one of Core's,
and take turns. In a burst all processes begin together, their requests ready; it ends with the last
answer. Whoever does not answer in time, or fails, ends the burst for all.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError
from time import perf_counter_ns
from typing import Any, Literal, TypeAlias

from sqlalchemy import NullPool, create_engine

from benchmarks.measure import Burst, timed
from benchmarks.postgresql_floor import core_commit, rows
from benchmarks.workload import FOREVER_MS, PLAIN, RUNTIME_EVENT, Kind, Request, Requests
from broker import Broker

_PATIENCE_S = 120.0
_END_S = 10.0

#: Makes some requests ready, and answers what commits them and says how long each took.
Prepare: TypeAlias = Callable[[int], Callable[[], list[int]]]


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who commits, and whose streams: each process a workspace, all the same, or nobody's."""

    way: Literal["store", "core"]
    workspaces: Literal["none", "one", "many"] = "none"
    locks_workspace: bool = False

    def stream(self, name: str, process: int) -> str:
        return f"{name}-{process:02d}"

    def kind(self, name: str, process: int) -> Kind:
        """What a process commits."""
        if self.workspaces == "none":
            return PLAIN
        workspace = f"workspace-{process if self.workspaces == 'many' else 0:02d}"
        return replace(
            RUNTIME_EVENT, payload=partial(_owned, self.stream(name, process), workspace)
        )


Contestants: TypeAlias = Mapping[str, Contestant]


def _owned(stream_id: str, workspace_id: str, number: int) -> dict[str, Any]:
    """A runtime event of this stream and workspace."""
    event = RUNTIME_EVENT.payload(number)
    return event | {
        "streamId": stream_id,
        "actor": event["actor"] | {"workspaceId": workspace_id},
    }


def lean(request: Request) -> Request:
    """A request of an event and an outbox message, without a projection."""
    return {name: value for name, value in request.items() if name != "projections"}


def now_ms() -> int:
    """The time that Core writes; the server of a benchmark is on the same machine."""
    return time.time_ns() // 1_000_000


# ------------------------------------------------------------------------------------ the processes


@dataclass(frozen=True, slots=True)
class Crowd:
    """The processes, and the doors to them."""

    gate: Barrier
    pipes: list[Connection]

    def burst(self, name: str, count: int) -> Burst:
        """Let each process do so many commits as this contestant."""
        for pipe in self.pipes:
            pipe.send((name, count))
        self._answers()
        self.gate.wait(_PATIENCE_S)
        start = perf_counter_ns()
        spent = [nanoseconds for answer in self._answers() for nanoseconds in answer]
        return Burst(perf_counter_ns() - start, spent)

    def await_ready(self) -> None:
        """Wait until every process is there."""
        self._answers()

    def _answers(self) -> list[list[int]]:
        return [_answer(pipe) for pipe in self.pipes]


def _answer(pipe: Connection) -> list[int]:
    if not pipe.poll(_PATIENCE_S):
        raise TimeoutError(f"a process has not answered for {_PATIENCE_S:.0f} s")
    spent, fault = pipe.recv()
    if fault is not None:
        raise RuntimeError(f"a process failed: {fault}")
    return list(spent)


@contextmanager
def crowd(url: str, contestants: Contestants, processes: int) -> Iterator[Crowd]:
    """Processes on a database whose streams have leases; they are gone after the block."""
    acquire_leases(url, contestants, processes)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    gate = context.Barrier(processes + 1)
    started: list[BaseProcess] = []
    pipes: list[Connection] = []
    try:
        for process in range(processes):
            ours, worker = _start(context, gate, (url, contestants, process, processes))
            pipes.append(ours)
            started.append(worker)
        whole = Crowd(gate, pipes)
        whole.await_ready()
        yield whole
    finally:
        gate.abort()
        _end(started, pipes)


def _start(
    context: BaseContext, gate: Barrier, given: tuple[str, Contestants, int, int]
) -> tuple[Connection, BaseProcess]:
    ours, theirs = context.Pipe()
    worker = context.Process(target=_work, args=(theirs, gate, *given), daemon=True)  # type: ignore[attr-defined]  # every context has it
    worker.start()
    theirs.close()
    return ours, worker


def _end(started: list[BaseProcess], pipes: list[Connection]) -> None:
    for pipe in pipes:
        with suppress(OSError):
            pipe.send(None)
        pipe.close()
    for worker in started:
        worker.join(_END_S)
        if worker.is_alive():
            worker.kill()
            worker.join(_END_S)


# -------------------------------------------------------------------------------- within a process


def _work(
    pipe: Connection,
    gate: Barrier,
    url: str,
    contestants: Contestants,
    process: int,
    processes: int,
) -> None:
    try:
        with ExitStack() as stack:
            prepares = _prepares(stack, url, contestants, process, processes)
            pipe.send(([], None))
            for name, count in iter(pipe.recv, None):
                run = prepares[name](count)
                pipe.send(([], None))
                gate.wait(_PATIENCE_S)
                pipe.send((run(), None))
    except (BrokenBarrierError, EOFError, OSError):
        pass  # the others have given up
    except Exception as error:
        with suppress(OSError):
            pipe.send(([], f"{type(error).__name__}: {error}"))


def _prepares(
    stack: ExitStack, url: str, contestants: Contestants, process: int, processes: int
) -> dict[str, Prepare]:
    broker = stack.enter_context(Broker.open(url))
    engine = create_engine(url, poolclass=NullPool, isolation_level="READ COMMITTED")
    connection = stack.enter_context(engine.connect())
    numbers = itertools.count(1 + process, processes)
    prepares: dict[str, Prepare] = {}
    for name, contestant in contestants.items():
        lease = broker.get_lease({"actorId": contestant.stream(name, process)})
        assert lease is not None
        requests = Requests(lease, contestant.kind(name, process), numbers)
        if contestant.way == "store":
            prepares[name] = partial(_store, broker.commit, requests)
        else:
            commit = partial(core_commit, connection, workspace_lock=contestant.locks_workspace)
            prepares[name] = partial(_core, commit, requests)
    return prepares


def _store(
    commit: Callable[[Request], object], requests: Requests, count: int
) -> Callable[[], list[int]]:
    given = [lean(requests.next()) for _ in range(count)]
    return lambda: timed(commit, given)


def _core(
    commit: Callable[[Any], object], requests: Requests, count: int
) -> Callable[[], list[int]]:
    given = [rows(lean(requests.next()), now_ms()) for _ in range(count)]
    return lambda: timed(commit, given)


def acquire_leases(url: str, contestants: Contestants, processes: int) -> None:
    """A lease that does not end for each stream, which is named as its actor."""
    with Broker.open(url) as broker:
        for (name, contestant), process in itertools.product(contestants.items(), range(processes)):
            stream_id = contestant.stream(name, process)
            broker.acquire_lease({"actorId": stream_id, "holderId": "bench", "ttlMs": FOREVER_MS})
