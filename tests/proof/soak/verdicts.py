"""What may grow in a soak by how much, and what did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.proof.report import Report
from tests.proof.soak.flatness import Limit, Verdict, judge
from tests.proof.soak.watch import COMMITS, FULL, Plan, Seen, Soak
from tests.proof.task import Task

#: By the name of a series, or its beginning: its unit and how much it may grow. Latencies are those
#: of a machine that others use too; caches fill, and a log is as long as its slowest reader is slow.
LIMITS = {
    "memory of": ("MiB", Limit(1.1, 8)),
    "files of": ("files", Limit(1, 8)),
    "threads of": ("threads", Limit(1, 4)),
    "log": ("MiB", Limit(2, 16)),
    "server's log": ("MiB", Limit(2, 256)),  # which it recycles, up to max_wal_size
    "bytes per event": ("B", Limit(1.1, 50)),
    "dead rows": ("rows", Limit(2, 50_000)),
    "connections": ("connections", Limit(1.1, 4)),
    "server's memory": ("MiB", Limit(1.2, 16)),
    "latency of commits, p50": ("ms", Limit(3, 5)),
    "latency of commits, p99": ("ms", Limit(3, 100)),
    "commits a second": ("/s", Limit(3, 0, is_of_falls=True)),
}


def soak(
    task: Task,
    *,
    windows: int | None = None,
    plan: Plan = FULL,
    is_leaking: bool = False,
    show: Callable[[Seen, Sequence[Verdict]], None] | None = None,
) -> Report:
    """Load a store for as many minutes as there are runs, or for `windows` of time, and judge what was seen.

    `is_leaking` is for those who want to see it noticed. `show` gets what was seen.
    """
    report = Report()
    with task.place() as place:
        seen = Soak(place, task.seed, plan, is_leaking=is_leaking).run(
            windows or round(60 * task.runs / plan.window_s)
        )
    verdicts = judged(seen)
    report.counts["commits"] = sum(seen.counts[kind] for kind in COMMITS)
    for name in ("events", "leases", "deliveries", "visits", "restarts", "samples"):
        report.counts[name] = seen.counts[_COUNTED.get(name, name)]
    report.counts["series judged"] = len(verdicts)
    report.counts["stale writes"] = seen.counts["stale writes"]
    report.counts["failures"] = len(seen.failures)
    report.counts["not flat"] = sum(not each.is_flat for each in verdicts)
    for what in seen.failures:
        report.broken(task.seed, what)
    if seen.counts["stale writes"]:
        report.broken(task.seed, "a lease that was over was as good as another")
    for each in verdicts:
        if not each.is_flat:
            report.broken(task.seed, str(each))
    if not verdicts:
        report.broken(task.seed, "too short to judge anything")
    if show is not None:
        show(seen, verdicts)
    return report


_COUNTED = {"leases": "lease", "deliveries": "delivery", "visits": "visit"}


def judged(seen: Seen) -> list[Verdict]:
    """A verdict on each series that has a limit and enough samples."""
    verdicts = []
    for name, samples in seen.series.items():
        for beginning, (unit, limit) in LIMITS.items():
            if name.startswith(beginning):
                verdict = judge(name, unit, [value for _, value in samples], limit)
                verdicts += [] if verdict is None else [verdict]
    return verdicts
