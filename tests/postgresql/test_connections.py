"""The pool of a store: writes side by side, done again for the sake of others, given back."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

import pytest

from broker import Broker
from broker.database_url import database_url
from broker.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    InvalidRequest,
    LeaseUnavailable,
    StoreClosed,
)
from broker.postgresql import connections as module
from broker.postgresql.channel import PipelineChannel
from broker.postgresql.connections import MOST_TRIES, PostgresConnections
from broker.postgresql.engine import driver_error
from broker.statements import Violation
from broker.transaction import Transaction, Write, read_time
from tests.places import PostgresPlace, rows
from tests.postgresql.support_failures import (
    connections_of,
    held,
    in_use,
    is_waiting,
    sessions,
    until,
    warm_up,
)
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    floor,
    in_threads,
    messages,
    open_store,
)


@pytest.fixture
def connections(store: Broker) -> PostgresConnections:
    """Those of the store."""
    return connections_of(store)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every pause, none of which is made."""
    made: list[int] = []
    monkeypatch.setattr(module, "_pause", made.append)
    return made


@pytest.fixture
def controls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with every BEGIN, COMMIT and so on."""
    heard: list[str] = []
    control = PipelineChannel.control

    def listen(channel: PipelineChannel, sql: str) -> None:
        heard.append(sql.split()[0])
        control(channel, sql)

    monkeypatch.setattr(PipelineChannel, "control", listen)
    return heard


def failing(error: Callable[[], Exception], times: int) -> tuple[Write[str], list[bool]]:
    """A write that fails so often, and grows a list with each try: whether it had savepoints."""
    tries: list[bool] = []

    def apply(transaction: Transaction) -> str:
        tries.append(transaction.has_savepoints)
        transaction.advance(*read_time(transaction))
        if len(tries) <= times:
            raise error()
        return "done"

    return Write(apply), tries


# --------------------------------------------------------------------------------------- a write


def test_a_write_is_one_transaction(store: Broker, controls: list[str]) -> None:
    lease = acquire(store)
    controls.clear()
    store.commit(commit_request(lease))
    assert controls == ["BEGIN", "COMMIT"]


def test_a_read_is_none(store: Broker, controls: list[str]) -> None:
    store.read_events({"streamId": "stream"})
    assert controls == []


def test_writes_run_side_by_side(store: Broker, place: PostgresPlace) -> None:
    one, two = (acquire(store, name, name) for name in ("one", "two"))
    waiting = threading.Thread(target=store.commit, args=(commit_request(one, "one"),))
    with held(place, "actor_leases WHERE actor_id = 'one'"):
        waiting.start()
        until(lambda: is_waiting(place))
        store.commit(commit_request(two, "two"))
        assert messages(place) == ["two"]  # while the first still waits
    waiting.join()
    assert sorted(messages(place)) == ["one", "two"]


# ------------------------------------------------------------------------ done again, for others


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_what_the_server_undid_for_others_is_done_again_as_a_whole(
    connections: PostgresConnections, pauses: list[int], state: str
) -> None:
    write, tries = failing(lambda: driver_error(state, "for the others"), 3)
    assert connections.write(lambda: write) == "done"
    assert (len(tries), pauses) == (4, [1, 2, 3])


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_but_not_for_ever(
    connections: PostgresConnections, pauses: list[int], place: PostgresPlace, state: str
) -> None:
    write, tries = failing(lambda: driver_error(state, "for the others"), 99)
    before = floor(place)
    with pytest.raises(DatabaseBusy, match="nothing was stored"):
        connections.write(lambda: write)
    assert len(tries) == MOST_TRIES + 1
    assert pauses == [*range(1, MOST_TRIES + 1)]
    assert floor(place) == before


def test_pauses_get_longer_up_to_a_limit_and_are_never_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    longest: list[float] = []

    def uniform(_least: float, most: float) -> float:
        longest.append(most)
        return 0

    monkeypatch.setattr(random, "uniform", uniform)
    for number in range(1, 12):
        module._pause(number)
    assert longest == sorted(longest)
    assert (longest[0], longest[-1]) == (0.01, 0.2)


def test_a_constraint_that_objects_has_it_done_again_with_savepoints(
    connections: PostgresConnections,
) -> None:
    write, tries = failing(Violation, 1)
    assert connections.write(lambda: write) == "done"
    assert tries == [False, True]


def test_once(connections: PostgresConnections) -> None:
    def violation() -> Exception:
        error = Violation()
        error.__cause__ = driver_error("23505", "twice")
        return error

    write, tries = failing(violation, 9)
    with pytest.raises(DatabaseError, match="twice"):
        connections.write(lambda: write)
    assert tries == [False, True]


@pytest.mark.parametrize("error", [ZeroDivisionError, LookupError])
def test_an_error_of_the_callers_is_his_own_and_nothing_is_stored(
    store: Broker,
    connections: PostgresConnections,
    place: PostgresPlace,
    error: type[Exception],
    clock: ManualClock,
) -> None:
    raised = error("the caller's")

    def fail() -> Exception:
        return raised

    write, tries = failing(fail, 9)
    before = floor(place)
    clock.advance(5)
    with pytest.raises(error) as caught:
        connections.write(lambda: write)
    assert caught.value is raised
    assert (len(tries), floor(place), in_use(store)) == (1, before, 0)


def test_what_makes_the_write_is_called_once(
    connections: PostgresConnections, pauses: list[int]
) -> None:
    write, _ = failing(lambda: driver_error("40001", "for the others"), 2)
    made: list[int] = []

    def make() -> Write[str]:
        made.append(1)
        return write

    assert connections.write(make) == "done"
    assert made == [1]


def test_a_refusal_keeps_the_clock_and_nothing_else(
    store: Broker, place: PostgresPlace, clock: ManualClock
) -> None:
    acquire(store)
    clock.advance(7)
    with pytest.raises(LeaseUnavailable):
        acquire(store, "other", "stream")
    assert floor(place) == "1007"
    assert in_use(store) == 0


def test_an_invalid_request_takes_no_connection(store: Broker) -> None:
    taken = [store.engine.raw_connection() for _ in range(10)]
    with pytest.raises(InvalidRequest):
        store.commit({})
    for each in taken:
        each.close()
    assert in_use(store) == 0


# -------------------------------------------------------------------------- lost, and its limit


def test_a_lost_connection_is_replaced_as_often_as_there_are_connections(
    place: PostgresPlace, clock: ManualClock
) -> None:
    with open_store(place, clock, pool_size=3) as store:
        for times, goes_well in ((3, True), (4, True), (5, False)):
            write, tries = failing(lambda: driver_error("57P01", "terminated"), times)
            if goes_well:
                assert connections_of(store).write(partial(Write, write.apply)) == "done"
            else:
                with pytest.raises(DatabaseUnavailable, match="shutting down"):
                    connections_of(store).write(partial(Write, write.apply))
            assert len(tries) == min(times + 1, 5)
            assert in_use(store) == 0


# ----------------------------------------------------------------------------------- the pool


def test_there_are_no_more_connections_than_the_pool_may_have(
    place: PostgresPlace, clock: ManualClock
) -> None:
    with open_store(place, clock, pool_size=3) as store:
        names = [str(number) for number in range(12)]
        in_threads(*[lambda name=name: acquire(store, name, name) for name in names])
        assert len(sessions(place)) <= 3
    assert rows(place, "SELECT count(*) FROM actor_leases") == [(12,)]
    until(lambda: sessions(place) == [])


def test_a_lone_caller_uses_one_connection(store: Broker, place: PostgresPlace) -> None:
    for number in range(5):
        acquire(store, str(number), str(number))
        store.get_lease({"actorId": str(number)})
    assert len(sessions(place)) == 1


def test_closing_twice_is_fine_and_what_comes_after_is_refused(
    store: Broker, place: PostgresPlace
) -> None:
    warm_up(store, 3)
    store.close()
    store.close()
    until(lambda: sessions(place) == [])
    with pytest.raises(StoreClosed):
        acquire(store)
    with pytest.raises(StoreClosed):
        store.get_lease({"actorId": "actor"})


def test_connections_wait_to_be_asked_for(place: PostgresPlace, clock: ManualClock) -> None:
    made = PostgresConnections(database_url(place.url), clock.options())
    assert sessions(place) == []
    made.close()
