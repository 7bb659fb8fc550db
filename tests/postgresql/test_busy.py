"""Waiting that ends: for a lock, for a connection, for a statement; and what interrupts it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from broker import Broker
from broker.errors import DatabaseBusy, DatabaseUnavailable, StoreClosed
from tests.places import PostgresPlace, client, contents, execute, rows
from tests.postgresql.support_failures import (
    connections_of,
    held,
    in_use,
    is_waiting,
    many_events,
    sessions,
    until,
    with_settings,
)
from tests.support import ManualClock, acquire, commit_request, messages, open_store

# ------------------------------------------------------------------------------------------ locks


def test_a_lock_that_is_not_to_be_had_in_time_is_busy_and_nothing_is_stored(
    place: PostgresPlace, clock: ManualClock
) -> None:
    with open_store(place, clock, busy_timeout_ms=50) as store:
        lease = acquire(store)
        before = contents(place)
        with held(place), pytest.raises(DatabaseBusy, match="busy_timeout_ms"):
            store.commit(commit_request(lease))
        assert contents(place) == before
        assert store.commit(commit_request(lease)).revision == 1
        assert in_use(store) == 0


def test_a_lock_met_while_writing_is_busy_too(place: PostgresPlace, clock: ManualClock) -> None:
    with open_store(place, clock, busy_timeout_ms=50) as store, client(place) as other:
        lease = acquire(store)
        before = contents(place)
        other.execute("BEGIN")
        other.execute("INSERT INTO streams VALUES ('stream', 0, 1, 1, NULL)")
        with pytest.raises(DatabaseBusy, match="busy_timeout_ms"):
            store.commit(commit_request(lease))
        other.execute("ROLLBACK")
        assert contents(place) == before
        assert store.commit(commit_request(lease)).revision == 1


def test_without_patience_nobody_waits(place: PostgresPlace, clock: ManualClock) -> None:
    with open_store(place, clock, busy_timeout_ms=0) as store:
        lease = acquire(store)
        with held(place), pytest.raises(DatabaseBusy):
            store.commit(commit_request(lease))
        assert store.commit(commit_request(lease)).revision == 1


# ------------------------------------------------------------------------------- statement_timeout


@contextmanager
def slow_inserts(place: PostgresPlace, table: str) -> Iterator[None]:
    """Whoever inserts into a table takes his time."""
    execute(
        place,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$",
    )
    execute(
        place,
        f"CREATE TRIGGER slow BEFORE INSERT ON {table} FOR EACH ROW"
        " WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION slow()",
    )
    yield
    execute(place, "DROP FUNCTION slow CASCADE")


@pytest.mark.parametrize("count", [1, 150])
def test_a_statement_that_takes_too_long_is_busy_and_nothing_is_stored(
    place: PostgresPlace, clock: ManualClock, count: int
) -> None:
    with open_store(with_settings(place, statement_timeout="200"), clock) as store:
        lease = acquire(store)
        before = contents(place)
        with (
            slow_inserts(place, "events"),
            pytest.raises(DatabaseBusy, match="statement_timeout"),
        ):
            store.commit(many_events(lease, count))
        assert contents(place) == before
        assert store.commit(many_events(lease, count)).revision == count
        assert in_use(store) == 0


def test_statement_timeout_may_be_that_of_the_database(
    place: PostgresPlace, clock: ManualClock
) -> None:
    ((name,),) = rows(place, "SELECT current_database()")
    execute(place, f"ALTER DATABASE {name} SET statement_timeout = '200ms'")
    with open_store(place, clock) as store:
        lease = acquire(store)
        with held(place), pytest.raises(DatabaseBusy, match="statement_timeout"):
            store.commit(commit_request(lease))
        assert messages(place) == []
        assert store.commit(commit_request(lease)).revision == 1


# ---------------------------------------------------------------------------------------- read-only


def test_a_server_that_is_read_only_is_out_of_reach_for_writes_alone(
    store: Broker, place: PostgresPlace, clock: ManualClock
) -> None:
    lease = acquire(store)
    before = contents(place)
    ((name,),) = rows(place, "SELECT current_database()")
    store.engine.dispose()
    execute(place, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        store.commit(commit_request(lease))
    assert store.get_lease({"actorId": "actor"}) == lease
    clock.advance(1)
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        open_store(place, clock)
    assert contents(place) == before


# --------------------------------------------------------------------------------------------- pool


def test_a_pool_without_a_free_connection_is_busy(place: PostgresPlace, clock: ManualClock) -> None:
    with open_store(place, clock, pool_size=2, busy_timeout_ms=50) as store:
        lease = acquire(store)
        taken = [store.engine.raw_connection() for _ in range(2)]
        with pytest.raises(DatabaseBusy, match="no connection of the pool"):
            store.commit(commit_request(lease))
        with pytest.raises(DatabaseBusy, match="no connection of the pool"):
            store.get_stream_revision({"streamId": "stream"})
        for each in taken:
            each.close()
        assert messages(place) == []
        assert store.commit(commit_request(lease)).revision == 1


# --------------------------------------------------------------------------------------- interrupts


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_waiting_for_a_lock_leaves_nothing(
    place: PostgresPlace, clock: ManualClock
) -> None:
    def interrupt() -> None:
        until(lambda: is_waiting(place))
        os.kill(os.getpid(), signal.SIGINT)

    with open_store(place, clock, busy_timeout_ms=60_000) as store:  # the interrupt comes first
        lease = acquire(store)
        before = contents(place)
        with held(place):
            interrupting = threading.Thread(target=interrupt)
            interrupting.start()
            with pytest.raises(KeyboardInterrupt):
                store.commit(commit_request(lease))
            interrupting.join()
            assert in_use(store) == 0
        until(lambda: not is_waiting(place))
        assert contents(place) == before
        assert store.commit(commit_request(lease)).revision == 1


# -------------------------------------------------------------------------------------------- close


@contextmanager
def closing(store: Broker) -> Iterator[threading.Thread]:
    """Another thread closes the store meanwhile; what is running must have ended by the end."""
    thread = threading.Thread(target=store.close)
    thread.start()
    until(lambda: connections_of(store)._closed)
    yield thread
    thread.join()


def test_closing_waits_for_the_write_that_is_running(store: Broker, place: PostgresPlace) -> None:
    lease = acquire(store)
    working = threading.Thread(target=store.commit, args=(commit_request(lease),))
    with ExitStack() as stack:
        with held(place):
            working.start()
            until(lambda: is_waiting(place))
            closes = stack.enter_context(closing(store))
            with pytest.raises(StoreClosed):
                acquire(store, "other", "other")
            assert closes.is_alive()
            assert messages(place) == []
        closes.join()
        assert messages(place) == ["message"]
    working.join()
    until(lambda: sessions(place) == [])


def test_a_store_that_is_closed_in_the_middle_of_a_write_by_the_writer_does_not_wait_for_itself(
    place: PostgresPlace, clock: ManualClock
) -> None:
    def nonce() -> str:
        store.close()
        return "nonce"

    store = open_store(place, clock, nonce=nonce)
    assert acquire(store).nonce == "nonce"
    assert rows(place, "SELECT nonce FROM actor_leases") == [("nonce",)]
    until(lambda: sessions(place) == [])


def test_a_read_that_is_running_ends_and_leaves_no_connection(
    store: Broker, place: PostgresPlace
) -> None:
    lease, found = acquire(store), []
    reading = threading.Thread(target=lambda: found.append(store.get_lease({"actorId": "actor"})))
    with client(place) as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE actor_leases")
        reading.start()
        until(lambda: is_waiting(place))
        store.close()
        other.execute("ROLLBACK")
    reading.join()
    assert found == [lease]
    until(lambda: sessions(place) == [])


def test_who_waits_for_a_connection_when_the_store_is_closed_is_refused(
    place: PostgresPlace, clock: ManualClock
) -> None:
    store = open_store(place, clock, pool_size=1)
    lease = acquire(store)
    taken = store.engine.raw_connection()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            store.commit(commit_request(lease))
        except StoreClosed as error:
            errors.append(error)

    waits = threading.Thread(target=work)
    waits.start()
    until(lambda: connections_of(store)._writing != set())
    with closing(store):
        taken.close()
    waits.join()
    assert len(errors) == 1
    assert messages(place) == []
    until(lambda: sessions(place) == [])
