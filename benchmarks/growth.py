"""Growth: what a commit costs once many have gone before.

A database with N commits has N inbox rows, N events of 1 KiB, N delivered outbox messages. They
come from the floor's statements, many to a transaction, and are the rows that the store would have
left: `benchmarks.fidelity` makes the store find them again. The commits measured lie evenly around
the number that they are named for, and those of both databases alternate.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks import floor
from benchmarks.databases import Measured, raw
from benchmarks.measure import Figure, alternate, compare, mean_us
from benchmarks.scale import Scale
from benchmarks.workload import PLAIN, Ids, Kind, at_random, ticking_options, time_ordered
from broker import Broker

MEDIAN_BOUND = 1.2
MEAN_BOUND = 1.2
RANDOM_MEAN_BOUND = 1.5
_CHUNK = 500


def figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    """A commit in a large database against a small one."""
    yield from _compared(scale, folder, rng, "time_ordered", time_ordered, MEAN_BOUND)
    if scale.random_ids:
        yield from _compared(scale, folder, rng, "random", at_random(), RANDOM_MEAN_BOUND)


def _compared(
    scale: Scale, folder: Path, rng: random.Random, order: str, ids: Ids, mean_bound: float
) -> Iterator[Figure]:
    before = (scale.growth_rounds + 1) * scale.growth_block // 2
    with ExitStack() as stack:

        def commits(number: int) -> Callable[[], list[int]]:
            path = folder / f"{order}-{number}.db"
            database = filled(path, max(number - before, 2), replace(PLAIN, ids=ids))
            store = stack.enter_context(database)
            return lambda: store.commits(scale.growth_block)

        contestants = {"small": commits(scale.small), "large": commits(scale.large)}
        spent = alternate(contestants, scale.growth_rounds, rng)
    small, large = spent["small"], spent["large"]
    title = f"commit {scale.large:,} against {scale.small:,}, {order.replace('_', '-')} ids"
    yield compare(f"growth_{order}_median", title, large, small, MEDIAN_BOUND)
    means = mean_us(large), mean_us(small)
    yield Figure(f"growth_{order}_mean", "… its mean", "us", *means, mean_bound)


@contextmanager
def filled(path: Path, commits: int, kind: Kind = PLAIN) -> Iterator[Measured]:
    """A database after so many commits, in the hands of the store."""
    with raw(path, kind) as plain:
        for chunk in _chunks(commits - 1):
            floor.fill(plain.connection, [plain.next() for _ in range(chunk)])
        floor.deliver_all(plain.connection, plain.now)
    with Broker.open(f"sqlite:///{path}", options=ticking_options()) as broker:
        yield Measured(path, broker, plain.requests)


def _chunks(total: int) -> Iterator[int]:
    full, rest = divmod(total, _CHUNK)
    return itertools.chain(itertools.repeat(_CHUNK, full), [rest] if rest else [])
