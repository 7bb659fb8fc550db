"""One opening, migration or check in a process of its own: `python -m benchmarks.probe WHAT FILE N`.

Prints milliseconds and mebibytes as JSON. A fresh process, because memory that a process has once
had cannot be told from memory that it needs now.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
from pathlib import Path
from time import perf_counter_ns

from sqlalchemy import NullPool

from broker import Broker, schema
from broker.sqlite.engine import make_engine


def upgrade(url: str) -> None:
    """Migrate a database to the newest schema."""
    schema.upgrade(url)


def opening(url: str) -> None:
    """Open a store whose schema is the newest, and close it."""
    Broker.open(url).close()


def drift(url: str) -> None:
    """Compare every fact of the schema with the models."""
    engine = make_engine(url, wal=False, poolclass=NullPool)
    with engine.connect() as connection:
        facts = schema.drift(connection)
    engine.dispose()
    if facts:
        raise SystemExit(f"{url} has drifted: {facts}")


PROBES = {"upgrade": upgrade, "opening": opening, "drift": drift}


def peak_mib() -> float:
    """The most memory that this process has had.

    On Linux `ru_maxrss` starts with that of the process that started this one, so it is read from
    where the kernel keeps this one's own.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1_024
    bytes_a_unit = 1 if sys.platform == "darwin" else 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * bytes_a_unit / 2**20


def main(what: str, path: str, times: str) -> None:
    """Do it so many times and print the median, the first, and the peak."""
    before, spent = peak_mib(), []
    for _ in range(int(times)):
        start = perf_counter_ns()
        PROBES[what](f"sqlite:///{path}")
        spent.append((perf_counter_ns() - start) / 1e6)
    after = peak_mib()
    report = {
        "median_ms": statistics.median(spent),
        "first_ms": spent[0],
        "peak_mib": after,
        "added_mib": after - before,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
