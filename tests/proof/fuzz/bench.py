"""A store to put inputs to, with what the checks need beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork, configure_engine
from broker.messages import Lease
from tests.places import Place, url_of
from tests.support import acquire


@dataclass
class Bench:
    """A store on a place of its own, an application's engine there, and an empty folder.

    `lease` is on the stream `fuzz`, at `revision` events; `numbers` never come twice.
    """

    place: Place
    folder: Path
    broker: Broker
    engine: Engine
    lease: Lease
    revision: int = 0
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @contextmanager
    def unit(self) -> Iterator[UnitOfWork]:
        """A unit of work in a session of its own, which is rolled back."""
        with Session(self.engine) as session:
            yield UnitOfWork(session)


@contextmanager
def bench_on(place: Place, folder: Path) -> Iterator[Bench]:
    """A bench, closed at the end."""
    engine = configure_engine(create_engine(url_of(place)))
    try:
        with Broker.open(url_of(place)) as broker:
            lease = acquire(broker, "fuzzer", "fuzz", ttlMs=10**9)
            yield Bench(place, folder, broker, engine, lease)
    finally:
        engine.dispose()
