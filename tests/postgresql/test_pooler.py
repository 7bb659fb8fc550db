"""Behind a pooler that hands a server connection out for each transaction; and with one that resets.

The pooler is a stand-in of ours that makes the worst of it: the next transaction is always on
another server connection, and nothing is reset between two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker import Broker
from broker.errors import DatabaseBusy, DatabaseError, RevisionConflict
from tests.places import PostgresPlace, execute, rows
from tests.postgresql.support import locks_held
from tests.postgresql.support_failures import held, in_use, many_events
from tests.postgresql.support_proxy import TransactionPooler, pooling
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    in_threads,
    messages,
    open_store,
    operate,
    operation_names,
    operation_requests,
)

Pooled = tuple[TransactionPooler, Broker]


@pytest.fixture
def pooled(place: PostgresPlace, clock: ManualClock) -> Iterator[Pooled]:
    """A pooler of two server connections, and a store by way of it that knows."""
    with (
        pooling(place) as (pooler, through),
        open_store(through, clock, transaction_pooler=True, busy_timeout_ms=200) as store,
    ):
        yield pooler, store


def asked(pooler: TransactionPooler, query: str) -> list[list[tuple[Any, ...]]]:
    """What each of the pooler's server connections answers."""
    return [connection.execute(query).fetchall() for connection in pooler.connections]


# ---------------------------------------------------------------------------------- with the switch


def test_every_operation_works_though_each_transaction_is_on_another_connection(
    pooled: Pooled, clock: ManualClock
) -> None:
    pooler, store = pooled
    requests = operation_requests(store, clock)
    assert set(requests) == operation_names()
    pooler.served.clear()
    for name, request in requests.items():
        operate(store, name, request)
    assert set(pooler.served) == set(pooler.pids)
    assert len(pooler.served) >= len(requests) - 1
    pairs = zip(pooler.served, pooler.served[1:], strict=False)
    assert all(one != next_one for one, next_one in pairs)


def test_nothing_is_left_in_the_sessions_of_the_server(
    pooled: Pooled, clock: ManualClock, place: PostgresPlace
) -> None:
    pooler, store = pooled
    settings = "SELECT name, setting, source FROM pg_settings WHERE source <> 'default' ORDER BY 1"
    before = asked(pooler, settings)
    for name, request in operation_requests(store, clock).items():
        operate(store, name, request)
        operate(store, "table_names", None)
    store.commit(many_events(acquire(store, "many", "many"), 150))
    store.close()
    assert asked(pooler, settings) == before
    assert asked(pooler, "SELECT name FROM pg_prepared_statements") == [[], []]
    assert asked(pooler, "SHOW lock_timeout") == [[("0",)], [("0",)]]
    assert locks_held(place) == 0


def test_many_events_are_copied_through_it(pooled: Pooled, place: PostgresPlace) -> None:
    _, store = pooled
    assert store.commit(many_events(acquire(store), 1_000)).revision == 1_000
    assert rows(place, "SELECT count(*), max(revision) FROM events") == [(1_000, 1_000)]


def test_a_refused_operation_gives_the_connection_back(pooled: Pooled) -> None:
    _, store = pooled
    lease = acquire(store)
    for _ in range(5):
        with pytest.raises(RevisionConflict):
            store.commit(commit_request(lease, expectedRevision=7))
    assert store.commit(commit_request(lease)).revision == 1
    assert in_use(store) == 0


def test_more_threads_than_server_connections_take_turns(
    pooled: Pooled, place: PostgresPlace
) -> None:
    _, store = pooled
    names = [str(number) for number in range(6)]
    in_threads(*[lambda name=name: acquire(store, name, name) for name in names])
    assert rows(place, "SELECT actor_id FROM actor_leases ORDER BY 1") == [
        (each,) for each in names
    ]


def test_the_busy_timeout_holds_in_each_transaction(pooled: Pooled, place: PostgresPlace) -> None:
    _, store = pooled
    lease = acquire(store)
    with held(place), pytest.raises(DatabaseBusy, match="busy_timeout_ms"):
        store.commit(commit_request(lease))
    assert store.commit(commit_request(lease)).revision == 1


def test_an_error_in_the_middle_leaves_no_transaction_open_on_the_server(
    pooled: Pooled, place: PostgresPlace
) -> None:
    pooler, store = pooled
    lease = acquire(store)
    execute(
        place,
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'in the middle'; END $$",
    )
    execute(
        place,
        "CREATE TRIGGER fail BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION fail()",
    )
    message = {"outboxId": "o", "destination": "mail", "payload": None}
    for count in (1, 150):
        with pytest.raises(DatabaseError, match="in the middle"):
            store.commit(many_events(lease, count, outbox=[message]))
    states = "SELECT state FROM pg_stat_activity WHERE pid = ANY(%s)"
    assert rows(place, states, pooler.pids) == [("idle",), ("idle",)]
    assert messages(place) == []


# ------------------------------------------------------------------------------- without the switch


def test_the_stand_in_is_one_for_without_the_switch_it_gets_into_trouble(
    place: PostgresPlace, clock: ManualClock
) -> None:
    with pooling(place) as (pooler, through), open_store(through, clock) as store:
        acquire(store)
        assert any(asked(pooler, "SELECT name FROM pg_prepared_statements"))
        store.close()


def test_a_reset_behind_our_back_is_survived(
    store: Broker, place: PostgresPlace, clock: ManualClock
) -> None:
    lease = acquire(store)
    for at in range(3):
        connection = store.engine.raw_connection()
        driver: Any = connection.dbapi_connection
        driver.autocommit = True
        driver.execute("DISCARD ALL")
        driver.autocommit = False
        connection.close()
        message_id = f"message-{at}"
        request = commit_request(lease, message_id, expectedRevision=at)
        assert store.commit(request).revision == at + 1
        assert len(store.read_events({"streamId": "stream"})) == at + 1
    assert in_use(store) == 0


@pytest.mark.parametrize("count", [1, 150])
def test_a_reset_in_the_middle_of_the_life_of_a_store_is_survived_by_writes_of_any_size(
    store: Broker, count: int
) -> None:
    lease = acquire(store)
    store.commit(many_events(lease, count, "first"))
    connection = store.engine.raw_connection()
    driver: Any = connection.dbapi_connection
    driver.execute("DEALLOCATE ALL")
    driver.commit()
    connection.close()
    assert store.commit(many_events(lease, count, expectedRevision=count)).revision == 2 * count


def test_prepared_statements_are_used_again_without_the_switch(
    store: Broker, place: PostgresPlace
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, "first"))
    prepared = "SELECT count(*) FROM pg_prepared_statements"
    with store.engine.connect() as connection:
        before = connection.exec_driver_sql(prepared).scalar_one()
    store.commit(commit_request(lease, "second", expectedRevision=1))
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql(prepared).scalar_one() == before > 0
