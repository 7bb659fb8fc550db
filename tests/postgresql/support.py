"""Others at work at the same time: what waits for whom, and what has waited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork
from tests.places import Client, Place, client, rows

T = TypeVar("T")

_WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@contextmanager
def transaction_of_another(place: Place) -> Iterator[Client]:
    """Another client in the middle of a transaction, rolled back at the end unless it has ended."""
    with client(place) as other:
        other.execute("BEGIN")
        yield other
        other.execute("ROLLBACK")


@contextmanager
def open_unit(store: Broker) -> Iterator[tuple[Session, UnitOfWork]]:
    """A session of the application's with a unit of work, whose transaction it ends itself."""
    with Session(store.engine) as session:
        yield session, store.unit_of_work(session)


@contextmanager
def started(work: Callable[[], T]) -> Iterator[Future[T]]:
    """Something that goes on in another thread, and has ended when the block has."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


def wait_until_waiting(place: Place, count: int = 1) -> None:
    """Wait until so many transactions in this database wait for locks."""
    deadline = time.monotonic() + 30
    while rows(place, _WAITING) != [(count,)]:
        assert time.monotonic() < deadline, "nobody waits"
        time.sleep(0.01)


def locks_held(place: Place) -> int:
    """How many advisory locks are held in this database; other tests have others on the server."""
    ((count,),) = rows(
        place,
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = ("
        "SELECT oid FROM pg_database WHERE datname = current_database())",
    )
    return int(count)
