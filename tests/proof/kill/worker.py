"""A worker: a process that works on a store until it is done, or dead."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from sqlalchemy import make_url

from broker.errors import DatabaseBusy, DatabaseUnavailable, OutcomeUnknown
from tests.places import Place, PostgresPlace, StorePath
from tests.proof.doors import Door
from tests.proof.kill.deeds import DEEDS, OF_FILES, Scene, checkpoint_often, cut_often
from tests.proof.kill.doors import Client, opened
from tests.proof.kill.dying import death_of
from tests.proof.kill.ledger import Ledger
from tests.proof.kill.load import carry

How: TypeAlias = Literal["call", "statement"]
Log: TypeAlias = Literal["kept", "copied", "cut"]

_LOGS: dict[Log, Callable[[], None]] = {"copied": checkpoint_often, "cut": cut_often}


@dataclass(frozen=True)
class Job:
    """What a worker is to do at a store, by a `deed`, or a load of so many `hands` if that is None.

    `how` is where it dies by itself: at the `at`-th place of that kind in the deed; `mode` says how
    it dies in a system call. `looks` if what is at the URL may be no store at head. `log` is what
    becomes of a file's log after each commit.
    """

    url: str
    backend: str
    name: str
    seed: int
    deed: str | None = None
    door: str = "threads"
    hands: int = 2
    streams: list[str] = field(default_factory=list)
    how: How | None = None
    at: int = 0
    mode: int = 0
    looks: bool = True
    log: Log = "kept"

    @property
    def place(self) -> Place:
        """Where the store is."""
        if self.backend == "postgresql":
            return PostgresPlace(self.url, is_at_head=not self.looks)
        path = StorePath(make_url(self.url).database or "")
        path.is_at_head = not self.looks
        return path

    def form(self) -> dict[str, Any]:
        """As a mapping."""
        return asdict(self)


def work(job: Job, book: int, orders: int) -> int:
    """Do a job, and write the ledger to the pipe `book`; the exit code of the process.

    A load goes on until the pipe `orders` is closed at its other end, and so is what was a deed
    from which the worker has not died.
    """
    ledger = Ledger.to(book)
    try:
        if job.deed is None:
            _carry(job, ledger, orders)
        else:
            _do(job, ledger, orders)
    except BaseException:  # whatever it is, the supervisor must hear of it
        ledger.note("crash", traceback.format_exc())
        return 1
    return 0


def _do(job: Job, ledger: Ledger, orders: int) -> None:
    death = death_of(job.how, job.at, job.mode, job.backend)
    (DEEDS | OF_FILES)[job.deed or ""](Scene(job.place, job.name, ledger, death))
    ledger.note("survived", death.survived())
    os.read(orders, 1)


def _carry(job: Job, ledger: Ledger, orders: int) -> None:
    is_over = threading.Event()
    threading.Thread(target=_wait, args=(orders, is_over), daemon=True).start()
    _LOGS.get(job.log, lambda: None)()
    door = _reached(job)
    ledger.note("opened", job.name)
    carry(Client(door, ledger), job.name, job.streams, job.seed, job.hands, is_over)
    door.close()


def _reached(job: Job) -> Door:
    """The store, which may be out of reach for a while."""
    while True:
        try:
            return opened(job.place, job.door)
        except (DatabaseBusy, DatabaseUnavailable, OutcomeUnknown):
            time.sleep(0.01)


def _wait(orders: int, is_over: threading.Event) -> None:
    os.read(orders, 1)
    is_over.set()
