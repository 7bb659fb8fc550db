"""Broker time: which operations advance it, what persists it, across stores and restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from broker import Broker
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import (
    BrokerError,
    IdempotencyConflict,
    InvalidRequest,
    LeaseUnavailable,
    RevisionConflict,
    SchemaError,
    StaleLease,
)
from tests.places import Place, PlaceOn, client, contents, raw, url_of
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    credential,
    event,
    expect_refusal,
    floor,
    open_store,
    outbox_message,
    page_request,
    runtime_event,
    write_locked,
)


@pytest.fixture
def clock() -> ManualClock:
    """Broker time of these tests begins at 10,000 ms, so that there is room to go back."""
    return ManualClock(wall_ms=10_000)


# --- The clock of a store ---------------------------------------------------------------------


def test_opening_persists_the_time_and_never_lowers_what_is_there(
    place: Place, clock: ManualClock
) -> None:
    open_store(place, clock).close()
    assert floor(place) == "10000"
    clock.wall_ms = 3
    open_store(place, clock).close()
    assert floor(place) == "10000"
    clock.wall_ms = 20_000
    open_store(place, clock).close()
    assert floor(place) == "20000"


def test_time_goes_on_from_the_floor_after_a_restart_with_the_clock_set_back(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock) as store:
        clock.advance(5_000)
        assert acquire(store, "a", "s").acquired_at == 15_000
    clock.wall_ms, clock.monotonic_ms = 0, 0
    with open_store(place, clock) as store:
        assert acquire(store, "b", "t").acquired_at == 15_000
        clock.advance(30)
        assert acquire(store, "c", "u").acquired_at == 15_030
    assert floor(place) == "15030"


def test_a_missing_floor_is_written_anew(place: Place, clock: ManualClock) -> None:
    open_store(place, clock).close()
    with client(place) as other:
        other.execute("DELETE FROM metadata WHERE key = 'logical_time_floor'")
    with open_store(place, clock) as store:
        assert floor(place) == "10000"
        with client(place) as other:
            other.execute("DELETE FROM metadata WHERE key = 'logical_time_floor'")
        clock.advance(1)
        acquire(store)
    assert floor(place) == "10001"


@pytest.mark.parametrize(
    "text", ["", " 1", "01", "-1", "1.0", "1e3", "٣", "9007199254740992", "9" * 400, "1\n"]
)
def test_a_store_whose_floor_is_no_canonical_safe_integer_does_not_open(
    place: Place, clock: ManualClock, text: str
) -> None:
    open_store(place, clock).close()
    with client(place) as other:
        other.execute("UPDATE metadata SET value = ? WHERE key = 'logical_time_floor'", (text,))
    with pytest.raises(SchemaError, match="logical_time_floor"):
        open_store(place, clock)
    assert floor(place) == text


@pytest.mark.parametrize("text", ["01", "later", "9007199254740992", "9" * 400])
def test_a_floor_that_was_spoilt_later_stops_what_needs_it_and_stays(
    place: Place, clock: ManualClock, text: str
) -> None:
    with open_store(place, clock) as store:
        lease = acquire(store)
        before = contents(place)
        with client(place) as other:
            other.execute("UPDATE metadata SET value = ? WHERE key = 'logical_time_floor'", (text,))
        for operation in (
            lambda: acquire(store, "b", "t"),
            lambda: store.commit(commit_request(lease)),
            lambda: store.read_authorized_events_page(page_request(lease)),
            lambda: store.list_pending_outbox(),
        ):
            with pytest.raises(SchemaError, match="logical_time_floor"):
                operation()
        assert store.get_stream_revision({"streamId": "stream"}) == 0
    assert (contents(place), floor(place)) == (before, text)


@pytest.mark.parametrize("text", ["0", "9007199254740991"])
def test_the_least_and_the_greatest_floor_are_accepted(
    place: Place, clock: ManualClock, text: str
) -> None:
    open_store(place, clock).close()
    with client(place) as other:
        other.execute("UPDATE metadata SET value = ? WHERE key = 'logical_time_floor'", (text,))
    open_store(place, clock).close()
    assert int(floor(place)) == max(10_000, int(text))


def test_two_stores_on_one_file_share_one_time(place: Place, clock: ManualClock) -> None:
    ahead = ManualClock(wall_ms=50_000)
    with open_store(place, clock) as store, open_store(place, ahead, nonce=lambda: "n") as other:
        assert acquire(other, "a", "s").acquired_at == 50_000
        assert acquire(store, "b", "t").acquired_at == 50_000
        clock.advance(5)
        assert acquire(store, "c", "u").acquired_at == 50_005
        assert acquire(other, "d", "v").acquired_at == 50_005


def test_a_store_whose_clock_is_behind_never_lowers_the_floor_of_another(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock) as store:
        with client(place) as other:
            other.execute("UPDATE metadata SET value = '77000' WHERE key = 'logical_time_floor'")
        with expect_refusal(StaleLease, actorId="nobody"):
            store.heartbeat_lease(
                {"actorId": "nobody", "lease": {"epoch": 1, "nonce": "n"}, "ttlMs": 1}
            )
    assert floor(place) == "77000"


def test_a_unit_of_work_reads_the_time_once_and_goes_on_from_a_floor_that_has_overtaken_it(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    engine = create_engine(url_of(path))  # which begins a transaction no sooner than it writes
    with Session(engine) as session:
        work = store.unit_of_work(session)
        clock.advance(100)
        work.read_model_sources({"workspaceId": "ws"})
        clock.advance(100)
        assert acquire(work, "a", "s").acquired_at == 10_100
        session.commit()
        work.read_model_sources({"workspaceId": "ws"})
        with client(path) as other:
            other.execute("UPDATE metadata SET value = '50000' WHERE key = 'logical_time_floor'")
        assert acquire(work, "b", "t").acquired_at == 50_000
        session.commit()
    engine.dispose()
    assert floor(path) == "50000"


def test_a_lease_expires_in_time_after_the_clock_was_set_ahead_and_back(
    place: Place, clock: ManualClock
) -> None:
    with open_store(place, clock) as store:
        clock.wall_ms += 3_600_000
        lease = acquire(store)
        clock.wall_ms -= 3_600_000
        store.heartbeat_lease({"actorId": "actor", "lease": credential(lease), "ttlMs": 1_000})
        clock.advance(1_000)
        with expect_refusal(StaleLease, actorId="actor"):
            store.commit(commit_request(lease))


# --- What advances it -------------------------------------------------------------------------


Operation = Callable[[Broker], object]
LEASE = {"epoch": 1, "nonce": "nonce-1"}


@contextmanager
def busy_store(place: Place, clock: ManualClock) -> Iterator[Broker]:
    """A store at 10,000 ms with a live lease, a commit and receipts in it."""
    with open_store(place, clock) as store:
        lease = store.acquire_lease(
            {"actorId": "actor", "streamId": "stream", "holderId": "holder", "ttlMs": 60_000},
            request_id="acquired",
        )
        payload = runtime_event("stream", "ws")
        store.commit(
            commit_request(
                lease,
                events=[event("e", payload, eventType="domain.event")],
                outbox=[outbox_message("o")],
                projections=[{"projectionId": "p", "value": 1}],
            )
        )
        yield store


def _acquire(request_id: str | None = None, **changes: Any) -> Operation:
    request = {"actorId": "actor", "streamId": "stream", "holderId": "holder", "ttlMs": 60_000}
    return lambda store: store.acquire_lease(request | changes, request_id=request_id)


def _commit(**changes: Any) -> Operation:
    request = {
        "messageId": "second",
        "actorId": "actor",
        "lease": LEASE,
        "streamId": "stream",
        "expectedRevision": 1,
        "events": [],
    }
    return lambda store: store.commit(request | changes)


ADVANCING: dict[str, tuple[Operation, type[BrokerError] | None]] = {
    "acquire": (_acquire(actorId="b", streamId="t"), None),
    "acquire, refused": (_acquire(), LeaseUnavailable),
    "acquire, too long": (_acquire(ttlMs=MAX_SAFE_INTEGER), InvalidRequest),
    "heartbeat": (
        lambda store: store.heartbeat_lease({"actorId": "actor", "lease": LEASE, "ttlMs": 9}),
        None,
    ),
    "compare and swap": (
        lambda store: store.compare_and_swap_lease(
            {"actorId": "actor", "lease": LEASE, "ttlMs": 9, "nextHolderId": "n"}
        ),
        None,
    ),
    "takeover, refused": (
        lambda store: store.takeover_lease({"actorId": "b", "holderId": "h", "ttlMs": 9}),
        LeaseUnavailable,
    ),
    "release": (lambda store: store.release_lease({"actorId": "actor", "lease": LEASE}), None),
    "release, refused": (
        lambda store: store.release_lease({"actorId": "b", "lease": LEASE}),
        StaleLease,
    ),
    "commit": (_commit(), None),
    "commit, stale": (_commit(lease={"epoch": 9, "nonce": "n"}), StaleLease),
    "commit, revision": (_commit(expectedRevision=8), RevisionConflict),
    "commit, used id": (_commit(events=[event("e")]), IdempotencyConflict),
    "commit, unknown event": (_commit(outbox=[outbox_message("x", eventId="?")]), InvalidRequest),
}


@pytest.mark.parametrize(("operation", "error"), ADVANCING.values(), ids=ADVANCING)
def test_this_advances_the_clock_and_persists_it(
    place: Place, clock: ManualClock, operation: Operation, error: type[BrokerError] | None
) -> None:
    with busy_store(place, clock) as store:
        clock.advance(700)
        if error is None:
            operation(store)
        else:
            with pytest.raises(error):
                operation(store)
    assert floor(place) == "10700"


def _replay(store: Broker) -> object:
    payload = runtime_event("stream", "ws")
    request = _commit(
        messageId="message",
        expectedRevision=0,
        events=[event("e", payload, eventType="domain.event")],
        outbox=[outbox_message("o")],
        projections=[{"projectionId": "p", "value": 1}],
    )
    return request(store)


AUTHORIZED = {"streamId": "stream", "authorization": {"actorId": "actor", "lease": LEASE}}
PAGE = {"streamId": "stream", "afterRevision": 0, "limit": 1, "actorId": "actor", "lease": LEASE}

OBSERVING: dict[str, Operation] = {
    "authorized events": lambda store: store.read_authorized_events(AUTHORIZED),
    "authorized page": lambda store: store.read_authorized_events_page(PAGE),
    "read-model sources": lambda store: store.read_model_sources({"workspaceId": "ws"}),
}
STANDING_STILL: dict[str, Operation] = {
    "commit, replayed": _replay,
    "receipt found before": _acquire("acquired"),
    "get lease": lambda store: store.get_lease({"actorId": "actor"}),
    "revision": lambda store: store.get_stream_revision({"streamId": "stream"}),
    "events": lambda store: store.read_events({"streamId": "stream"}),
    "streams": lambda store: store.list_streams({"workspaceId": "ws", "prefix": "s", "limit": 9}),
    "projection": lambda store: store.read_projection({"projectionId": "p"}),
    "pending": lambda store: store.list_pending_outbox(),
    "delivered": lambda store: store.mark_outbox_delivered({"outboxId": "o"}),
    "tables": lambda store: store.table_names(),
}
REFUSED_EARLY: dict[str, tuple[Operation, type[BrokerError]]] = {
    "acquire, invalid": (_acquire(ttlMs=0), InvalidRequest),
    "acquire, other receipt": (_acquire("acquired", ttlMs=1), IdempotencyConflict),
    "commit, invalid": (_commit(events=None), InvalidRequest),
    "commit, other message": (_commit(messageId="message"), IdempotencyConflict),
}


@pytest.mark.parametrize("operation", [*OBSERVING.values(), *STANDING_STILL.values()])
def test_this_persists_no_time(place: Place, clock: ManualClock, operation: Operation) -> None:
    with busy_store(place, clock) as store:
        clock.advance(700)
        operation(store)
    assert floor(place) == "10000"


@pytest.mark.parametrize(("operation", "error"), REFUSED_EARLY.values(), ids=REFUSED_EARLY)
def test_what_is_refused_before_the_transaction_persists_no_time(
    place: Place, clock: ManualClock, operation: Operation, error: type[BrokerError]
) -> None:
    with busy_store(place, clock) as store:
        clock.advance(700)
        with pytest.raises(error):
            operation(store)
        assert floor(place) == "10000"
        clock.advance(-700)
        assert acquire(store, "b", "t").acquired_at == 10_000


@pytest.mark.parametrize("operation", STANDING_STILL.values(), ids=STANDING_STILL)
def test_this_does_not_even_advance_the_clock_in_memory(
    place: Place, clock: ManualClock, operation: Operation
) -> None:
    with busy_store(place, clock) as store:
        clock.advance(700)
        operation(store)
        clock.advance(-700)
        assert acquire(store, "b", "t").acquired_at == 10_000


@pytest.mark.parametrize("operation", OBSERVING.values(), ids=OBSERVING)
def test_this_read_advances_the_clock_in_memory(
    place: Place, clock: ManualClock, operation: Operation
) -> None:
    with busy_store(place, clock) as store:
        clock.advance(700)
        operation(store)
        clock.advance(-700)
        assert acquire(store, "b", "t").acquired_at == 10_700


@pytest.mark.parametrize("operation", OBSERVING.values(), ids=OBSERVING)
def test_a_read_starts_from_the_floor_that_another_process_has_persisted(
    place: Place, clock: ManualClock, operation: Operation
) -> None:
    with busy_store(place, clock) as store:
        with client(place) as other:
            other.execute("UPDATE metadata SET value = '20000' WHERE key = 'logical_time_floor'")
        operation(store)
        with client(place) as other:
            other.execute("UPDATE metadata SET value = '0' WHERE key = 'logical_time_floor'")
        assert acquire(store, "b", "t").acquired_at == 20_000


READS = OBSERVING | STANDING_STILL
del READS["delivered"]


@pytest.mark.parametrize("operation", READS.values(), ids=READS)
def test_a_read_writes_not_one_byte(path: Path, clock: ManualClock, operation: Operation) -> None:
    log = path.with_name(f"{path.name}-wal")
    with busy_store(path, clock) as store, raw(path) as other:
        clock.advance(700)
        version = other.execute("PRAGMA data_version").fetchone()
        files = path.read_bytes(), log.read_bytes()
        operation(store)
        assert other.execute("PRAGMA data_version").fetchone() == version
        assert (path.read_bytes(), log.read_bytes()) == files


@pytest.mark.parametrize("operation", READS.values(), ids=READS)
def test_a_read_in_an_applications_transaction_leaves_no_trace(
    place: Place, clock: ManualClock, operation: Callable[[Any], object]
) -> None:
    with busy_store(place, clock) as store, Session(store.engine) as session:
        clock.advance(700)
        before = contents(place), floor(place)
        operation(store.unit_of_work(session))
        session.commit()
        assert (contents(place), floor(place)) == before


@pytest.mark.parametrize("operation", READS.values(), ids=READS)
def test_a_read_waits_for_no_writer(path: Path, clock: ManualClock, operation: Operation) -> None:
    with busy_store(path, clock) as store, write_locked(path):
        clock.advance(700)
        assert operation(store) is not None


@pytest.mark.parametrize("operation", READS.values(), ids=READS)
def test_a_read_in_an_applications_transaction_writes_nothing_either(
    path: Path, clock: ManualClock, operation: Callable[[Any], object]
) -> None:
    with busy_store(path, clock) as store, Session(store.engine) as session:
        driver: Any = session.connection().connection.dbapi_connection
        clock.advance(700)
        before = driver.total_changes
        operation(store.unit_of_work(session))
        session.commit()
        assert driver.total_changes == before
    assert floor(path) == "10000"


def test_a_read_sees_a_lease_expire_without_any_write(place: Place, clock: ManualClock) -> None:
    with open_store(place, clock) as store:
        lease = acquire(store, ttlMs=100)
        clock.advance(99)
        assert store.read_authorized_events_page(page_request(lease)).done
        clock.advance(1)
        with expect_refusal(StaleLease, actorId="actor"):
            store.read_authorized_events_page(page_request(lease))
        clock.advance(-1)
        with expect_refusal(StaleLease, actorId="actor"):
            store.heartbeat_lease({"actorId": "actor", "lease": credential(lease), "ttlMs": 5})


@settings(max_examples=15, deadline=None)
@given(
    moves=st.lists(
        st.tuples(st.sampled_from("ABR"), st.integers(0, 90_000), st.integers(0, 900)),
        max_size=25,
    )
)
def test_whatever_the_clocks_do_the_floor_only_grows_across_stores_and_restarts(
    backend: str, place_on: PlaceOn, moves: list[tuple[str, int, int]]
) -> None:
    with place_on(backend) as place:
        assert_the_floor_only_grows(place, moves)


def assert_the_floor_only_grows(place: Place, moves: list[tuple[str, int, int]]) -> None:
    clocks = {"A": ManualClock(), "B": ManualClock(wall_ms=40_000)}
    stores = {name: open_store(place, each) for name, each in clocks.items()}
    last = int(floor(place))
    for number, (which, wall_ms, step) in enumerate(moves):
        name = "A" if which == "R" else which
        clocks[name].wall_ms = wall_ms
        clocks[name].monotonic_ms += step
        if which == "R":
            stores[name].close()
            stores[name] = open_store(place, clocks[name])
        lease = acquire(stores[name], f"a{number}", f"s{number}")
        assert last <= lease.acquired_at == int(floor(place))
        last = lease.acquired_at
    for store in stores.values():
        store.close()
