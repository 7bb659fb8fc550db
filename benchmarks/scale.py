"""How much is measured: enough for steady medians, within the time that there is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes of one run.

    `rounds` times `block` is how often a short operation is measured. `callers` threads and `tasks`
    tasks do `burst` commits each, or about as many in all, `burst_rounds` times. `small` and `large` are the
    numbers of the commits that growth compares, `journals` the events of the databases that are
    opened, migrated and checked; `curve_callers` and `curve_sizes` the points of the plots. On
    PostgreSQL `processes` do `process_burst` commits each, `process_rounds` times, and growth
    compares the two numbers of `stored` events.
    """

    rounds: int
    block: int
    bulk_rounds: int
    bulk_events: int
    page_events: int
    callers: int
    tasks: int
    burst: int
    burst_rounds: int
    small: int
    large: int
    growth_rounds: int
    growth_block: int
    random_ids: bool
    journals: tuple[int, int]
    openings: int
    curve_callers: tuple[int, ...]
    curve_sizes: tuple[int, ...]
    processes: int
    process_burst: int
    process_rounds: int
    stored: tuple[int, int]


QUICK = Scale(
    rounds=12,
    block=30,
    bulk_rounds=9,
    bulk_events=1_000,
    page_events=128,
    callers=32,
    tasks=200,
    burst=10,
    burst_rounds=3,
    small=1_000,
    large=10_000,
    growth_rounds=5,
    growth_block=100,
    random_ids=False,
    journals=(5_000, 20_000),
    openings=2,
    curve_callers=(1, 4, 32),
    curve_sizes=(1_000, 10_000, 50_000),
    processes=16,
    process_burst=8,
    process_rounds=3,
    stored=(1_000, 20_000),
)

FULL = Scale(
    rounds=60,
    block=60,
    bulk_rounds=40,
    bulk_events=1_000,
    page_events=128,
    callers=32,
    tasks=200,
    burst=40,
    burst_rounds=21,
    small=1_000,
    large=200_000,
    growth_rounds=9,
    growth_block=200,
    random_ids=True,
    journals=(10_000, 1_000_000),
    openings=9,
    curve_callers=(1, 2, 4, 8, 16, 32, 64),
    curve_sizes=(1_000, 10_000, 50_000, 200_000),
    processes=16,
    process_burst=25,
    process_rounds=11,
    stored=(10_000, 1_000_000),
)

TINY = Scale(
    rounds=2,
    block=3,
    bulk_rounds=2,
    bulk_events=5,
    page_events=4,
    callers=3,
    tasks=5,
    burst=10,
    burst_rounds=2,
    small=10,
    large=40,
    growth_rounds=2,
    growth_block=3,
    random_ids=True,
    journals=(20, 40),
    openings=1,
    curve_callers=(1, 2),
    curve_sizes=(10, 40),
    processes=3,
    process_burst=2,
    process_rounds=2,
    stored=(10, 40),
)
