"""Broker time on PostgreSQL: the server tells it, and the floor is no lock that commits wait for."""

from __future__ import annotations

import pytest

from broker import Broker, Options, clock
from broker.clock import FROZEN_AFTER_MS, ServerClock
from tests.places import Place, execute, rows, url_of
from tests.postgresql.support import open_unit, transaction_of_another
from tests.support import ManualClock, acquire, commit_request, floor

_SERVER_TIME = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


def server_time(place: Place) -> int:
    ((now,),) = rows(place, _SERVER_TIME)
    return int(now)


def test_the_clock_is_the_servers_whatever_this_machine_believes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "wall_clock", lambda: 1)
    with Broker.open(url_of(place)) as store:
        before = server_time(place)
        lease = acquire(store)
        assert before <= lease.acquired_at <= server_time(place)


def test_time_goes_on_within_a_long_transaction(place: Place) -> None:
    with Broker.open(url_of(place)) as store, open_unit(store) as (session, unit):
        first = acquire(unit, "one", "one")
        session.connection().exec_driver_sql("SELECT pg_sleep(0.02)")
        second = acquire(unit, "two", "two")
        assert second.acquired_at >= first.acquired_at + 20


def test_two_stores_on_one_database_agree_on_the_time(place: Place) -> None:
    with Broker.open(url_of(place)) as one, Broker.open(url_of(place)) as other:
        times = [
            acquire(store, name, name).acquired_at
            for store, name in [(one, "a"), (other, "b"), (one, "c"), (other, "d")]
        ]
    assert times == sorted(times)


def test_a_time_is_persisted_by_whoever_used_it(place: Place) -> None:
    with Broker.open(url_of(place)) as store:
        lease = acquire(store)
        assert floor(place) == str(lease.acquired_at)


def test_while_another_persists_its_time_nobody_waits_and_the_floor_is_raised_by_the_next(
    place: Place,
) -> None:
    with Broker.open(url_of(place)) as store:
        before = floor(place)
        with transaction_of_another(place) as other:
            other.execute("UPDATE metadata SET value = value WHERE key = 'logical_time_floor'")
            lease = acquire(store)
        assert floor(place) == before

        result = store.commit(commit_request(lease))
        assert floor(place) == str(result.applied_at)


def test_a_server_whose_clock_lags_goes_on_from_the_floor(place: Place) -> None:
    ahead = server_time(place) + 3_600_000
    execute(place, "INSERT INTO metadata VALUES ('logical_time_floor', ?)", str(ahead))
    with Broker.open(url_of(place)) as store:
        assert acquire(store).acquired_at >= ahead


def test_a_clock_of_the_applications_is_taken_instead(place: Place, clock: ManualClock) -> None:
    with Broker.open(url_of(place), options=clock.options()) as store:
        assert acquire(store).acquired_at == 1_000


def test_options_without_clocks_make_a_clock_of_the_servers() -> None:
    assert type(Options().make_server_clock()) is ServerClock
    assert type(Options(wall_clock=lambda: 1).make_server_clock()) is not ServerClock


# ------------------------------------------------------------------------------ the clock by itself


@pytest.fixture
def manual() -> ManualClock:
    return ManualClock()


@pytest.fixture
def logical(manual: ManualClock) -> ServerClock:
    """A clock that has read 10,000 of the server."""
    made = ServerClock(lambda: manual.monotonic_ms)
    made.read(0, 10_000)
    return made


def test_a_reading_is_what_the_server_says(logical: ServerClock, manual: ManualClock) -> None:
    manual.monotonic_ms += 1_000_000 - 1
    assert logical.read(0, 10_500 + 1_000_000) == 1_010_500


def test_the_pace_of_this_machine_adds_up_to_no_lead(
    logical: ServerClock, manual: ManualClock
) -> None:
    server = 10_000
    for _ in range(100):  # a clock that is one part in ten too fast
        server += 1_000
        manual.monotonic_ms += 1_100
        reading = logical.read(0, server)
    assert reading == server


def test_a_server_that_steps_back_a_little_is_waited_for(logical: ServerClock) -> None:
    assert logical.read(0, 10_000 - FROZEN_AFTER_MS) == 10_000


def test_after_a_step_back_time_goes_on_at_this_machines_pace(
    logical: ServerClock, manual: ManualClock
) -> None:
    assert logical.read(0, 1_000) == 10_000
    manual.monotonic_ms += 2_500
    assert logical.read(0, 3_500) == 12_500
    manual.monotonic_ms += 100_000
    assert logical.read(0, 500_000) == 500_000


def test_a_reading_is_never_below_the_floor_nor_below_the_last(logical: ServerClock) -> None:
    assert logical.read(20_000, 10_001) == 20_000
    assert logical.read(0, 10_002) == 20_000


def test_a_look_at_the_time_does_not_advance_it(logical: ServerClock) -> None:
    assert logical.peek(0, 11_000) == 11_000
    assert logical.read(0, 10_500) == 10_500
