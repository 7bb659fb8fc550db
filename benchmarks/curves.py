"""What the plots show: throughput by callers at once, latency by the size of the journal."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.callers import Bursts, event_loop, one_caller, own_connections, threads
from benchmarks.databases import Measured, raw
from benchmarks.growth import filled
from benchmarks.measure import Burst, alternate, median_rate, median_us, p99_us
from benchmarks.plots import Series, latency_by_journal_size, throughput_by_callers
from benchmarks.scale import Scale
from benchmarks.workload import PLAIN, Ids, at_random, time_ordered

THROUGHPUT = "throughput_by_callers.svg"
LATENCY = "latency_by_journal_size.svg"


def draw(scale: Scale, results: Path, folder: Path, rng: random.Random) -> list[Path]:
    """Measure and draw both plots into `results`; the files. Raises `optional.NotInstalled`."""
    series, floor = _throughput(scale, folder, rng)
    throughput_by_callers(series, floor, results / THROUGHPUT)
    medians, p99s = _latency(scale, folder, rng)
    latency_by_journal_size(medians, p99s, results / LATENCY)
    return [results / THROUGHPUT, results / LATENCY]


def _throughput(scale: Scale, folder: Path, rng: random.Random) -> tuple[list[Series], float]:
    doors: dict[str, Callable[[Path, int], AbstractContextManager[Bursts]]] = {
        "threads on one Broker": threads,
        "tasks on one AsyncBroker": partial(event_loop, lags=[]),
        "threads on own connections, raw floor": own_connections,
    }
    points: dict[str, list[tuple[float, float]]] = {label: [] for label in doors}
    floors = []
    for callers in scale.curve_callers:
        each = max(1, scale.burst * scale.callers // (4 * callers))
        with ExitStack() as stack:
            plain = stack.enter_context(raw(folder / f"floor-{callers}.db"))
            bursts = {
                label: stack.enter_context(door(folder / f"{number}-{callers}.db", callers))
                for number, (label, door) in enumerate(doors.items())
            }
            contestants: dict[str, Callable[[], Burst]] = {
                label: partial(burst, each) for label, burst in bursts.items()
            }
            contestants["floor"] = partial(one_caller, plain, each * callers)
            found = alternate(contestants, scale.burst_rounds, rng)
        floors += found["floor"]
        for label in doors:
            points[label].append((callers, median_rate(found[label])))
    return [Series(label, points[label]) for label in doors], median_rate(floors)


def _latency(scale: Scale, folder: Path, rng: random.Random) -> tuple[list[Series], list[Series]]:
    """Time-ordered and random ids, each over journals of several sizes."""
    medians, p99s = [], []
    for label, ids in (("time-ordered ids", time_ordered), ("random ids", at_random())):
        found = _commits_by_size(scale, folder / label.replace(" ", "-"), rng, ids)
        medians.append(Series(label, [(size, median_us(found[size]) / 1e3) for size in found]))
        p99s.append(Series(label, [(size, p99_us(found[size]) / 1e3) for size in found]))
    return medians, p99s


def _commits_by_size(
    scale: Scale, folder: Path, rng: random.Random, ids: Ids
) -> dict[int, list[list[int]]]:
    folder.mkdir()
    with ExitStack() as stack:

        def commits(size: int) -> Callable[[], list[int]]:
            path, kind = folder / f"{size}.db", replace(PLAIN, ids=ids)
            store: Measured = stack.enter_context(filled(path, size, kind))
            return lambda: store.commits(scale.growth_block)

        contestants = {size: commits(size) for size in scale.curve_sizes}
        return alternate(contestants, scale.growth_rounds, rng)
