"""What is to be seen of the place and of the processes from outside, at one time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.places import Client, Place, PostgresPlace, client

MIB = 1024 * 1024

# With what is in the log alone so far; events are numbered from 1 without a gap.
_SQLITE = """
SELECT page_count * page_size, (SELECT max(rowid) FROM events)
FROM pragma_page_count, pragma_page_size
"""

_POSTGRES = """
SELECT pg_database_size(current_database()),
  (SELECT n_live_tup FROM pg_stat_user_tables WHERE relname = 'events'),
  (SELECT sum(n_dead_tup) FROM pg_stat_user_tables),
  (SELECT sum(size) FROM pg_ls_waldir()),
  (SELECT array_agg(pid) FROM pg_stat_activity
   WHERE datname = current_database() AND pid <> pg_backend_pid())
"""


def of_process(pid: int) -> dict[str, float]:
    """Of a process: `memory` in MiB, `files` and `threads`; empty once it is gone."""
    with suppress(OSError):
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return {
            "memory": _mib(status, "VmRSS"),
            "files": len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208  # only how many
            "threads": float(status["Threads"]),
        }
    return {}


def _mib(status: dict[str, str], name: str) -> float:
    return int(status[name].split()[0]) / 1024 if name in status else 0.0


@contextmanager
def watched(place: Place) -> Iterator[Watched]:
    """A place that is looked at, with a connection of its own."""
    with client(place) as other:
        yield Watched(place, other)


class Watched:
    """A place, as another client sees it."""

    def __init__(self, place: Place, other: Client) -> None:
        self._place = place
        self._client = other

    def look(self) -> dict[str, float]:
        """By name: `size` and `log` in MiB, `bytes per event`; on a server what it has besides."""
        if isinstance(self._place, PostgresPlace):
            return self._look_at_server()
        log = self._place.with_name(f"{self._place.name}-wal")
        ((size, events),) = self._rows(_SQLITE)
        log_size = log.stat().st_size if log.exists() else 0
        return {"size": size / MIB, "log": log_size / MIB} | _by_event(size, events)

    def last_cursor(self) -> int:
        """The largest cursor there is."""
        ((last,),) = self._rows("SELECT coalesce(max(rowid), 0) FROM events")
        return int(last)

    def execute(self, sql: str) -> None:
        """Run a statement."""
        self._client.execute(sql)

    def _look_at_server(self) -> dict[str, float]:
        ((size, events, dead, wal, pids),) = self._rows(_POSTGRES)
        return {
            "size": size / MIB,
            "server's log": float(wal) / MIB,
            "dead rows": float(dead),
            "connections": len(pids or ()),
            "server's memory": sum(_own_memory(pid) for pid in pids or ()),
        } | _by_event(size, events)

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self._client.execute(query).fetchall()
        return found


def _by_event(size: float, events: int | None) -> dict[str, float]:
    return {"bytes per event": size / events} if events else {}


def _own_memory(pid: int) -> float:
    """In MiB, what a process of the server does not share with others; 0 if that cannot be seen."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return _mib(dict(line.split(":", 1) for line in lines), "RssAnon")
    return 0.0
