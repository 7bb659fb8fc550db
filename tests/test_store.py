"""The store: every operation in every form of its request, units of work on it, no lock while idle."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork, configure_engine
from broker.operations import Operations
from tests.places import Place, PlaceOn, contents, rows, url_of
from tests.support import (
    ManualClock,
    acquire,
    is_write_locked,
    open_store,
    operate,
    operation_names,
    operation_requests,
)


class AnyMapping(Mapping[str, Any]):
    """A mapping that is not a dict."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content

    def __getitem__(self, key: str) -> Any:
        return self._content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


FORMS: dict[str, Callable[[Any], Any]] = {
    "message": lambda request: request,
    "dict": lambda request: request.to_json(),
    "mapping": lambda request: AnyMapping(request.to_json()),
}


def test_the_examples_cover_every_operation(store: Broker, clock: ManualClock) -> None:
    assert set(operation_requests(store, clock)) == operation_names()
    assert operation_names() == {name for name in dir(Operations) if not name.startswith("_")}


def test_every_operation_takes_its_message_a_dict_and_any_other_mapping(
    backend: str, place_on: PlaceOn
) -> None:
    answers, leases = {}, {}
    for form, convert in FORMS.items():
        clock = ManualClock()
        with place_on(backend) as place, open_store(place, clock) as store:
            answers[form] = {
                name: operate(store, name, request and convert(request))
                for name, request in operation_requests(store, clock).items()
            }
            leases[form] = contents(place)["actor_leases"]
    assert answers["message"] == answers["dict"] == answers["mapping"]
    assert len({len(each) for each in leases.values()}) == 1
    assert leases["message"] == leases["mapping"]


def test_a_unit_of_work_of_the_store_has_its_clock_and_options(place: Place) -> None:
    clock = ManualClock()
    engine = configure_engine(create_engine(url_of(place)))
    with open_store(place, clock) as store, Session(engine) as session:
        unit = store.unit_of_work(session)
        assert isinstance(unit, UnitOfWork)
        assert unit.options is store.options
        clock.advance(500)
        lease = acquire(unit)
        assert (lease.acquired_at, lease.nonce) == (1_500, "nonce-1")
        session.commit()
        clock.wall_ms = clock.monotonic_ms = 0
        assert acquire(store, "second", "second").acquired_at == 1_500


def test_a_unit_of_work_may_be_on_the_stores_own_engine(store: Broker, place: Place) -> None:
    with Session(store.engine) as session:
        acquire(store.unit_of_work(session))
        session.rollback()
    assert rows(place, "SELECT * FROM actor_leases") == []


def test_other_clients_see_no_lock_of_an_idle_store(store: Broker, path: Path) -> None:
    acquire(store)
    store.list_pending_outbox()
    assert not is_write_locked(path)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
