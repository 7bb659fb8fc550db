"""Reads: streams, pages to the byte, lists in byte order, the read model and its sources."""

from __future__ import annotations

import sqlite3
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork
from broker.errors import InvalidRequest, StaleLease
from broker.messages import EventsPage, StoredEvent
from broker.reads import _PAGE
from tests.places import Place, url_of
from tests.reads_support import array_bytes, frame, ids, write
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    credential,
    event,
    expect_refusal,
    open_store,
    page_request,
    query_plan,
)

# --- Streams ----------------------------------------------------------------------------------


def test_an_unknown_stream_is_at_nought_and_has_no_events(store: Broker) -> None:
    assert store.get_stream_revision({"streamId": "stream"}) == 0
    assert store.read_events({"streamId": "stream"}) == []


def test_events_come_whole_and_in_order_after_a_revision(store: Broker, clock: ManualClock) -> None:
    lease = acquire(store)
    clock.advance(3)
    events = [
        event("b", {"n": 1.0}, correlationId="c"),
        event("a", [None], occurredAt=5),
        event("c"),
    ]
    store.commit(commit_request(lease, events=events))
    assert store.get_stream_revision({"streamId": "stream"}) == 3
    first, second, _ = store.read_events({"streamId": "stream"})
    assert first == StoredEvent(
        "b", "message", "stream", 1, "note", {"n": 1}, 1, 1_003, correlation_id="c"
    )
    assert second == StoredEvent("a", "message", "stream", 2, "note", [None], 1, 5)
    for after, rest in ((0, ["b", "a", "c"]), (1, ["a", "c"]), (3, []), (2**53 - 1, [])):
        assert ids(store.read_events({"streamId": "stream", "afterRevision": after})) == rest


def test_events_of_other_streams_stay_out(store: Broker) -> None:
    write(store, "s", event("mine"))
    write(store, "S", event("theirs"))
    assert ids(store.read_events({"streamId": "s"})) == ["mine"]


def test_authorized_events_are_the_same_for_the_holder_of_the_lease(store: Broker) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, events=[event("a"), event("b")]))
    request = {
        "streamId": "stream",
        "afterRevision": 1,
        "authorization": {"actorId": "actor", "lease": credential(lease)},
    }
    assert ids(store.read_authorized_events(request)) == ["b"]
    with expect_refusal(StaleLease, actorId="nobody"):
        authorization = {"actorId": "nobody", "lease": credential(lease)}
        store.read_authorized_events(request | {"authorization": authorization})
    with expect_refusal(StaleLease, actorId="actor", authorizedStreamId="stream", streamId="other"):
        store.read_authorized_events(request | {"streamId": "other"})


# --- Pages ------------------------------------------------------------------------------------


@pytest.fixture
def lease(store: Broker) -> Any:
    """A live lease on a stream of five events, of which some need escapes."""
    granted = acquire(store)
    payloads = ["plain", 'é"\n', "\U0001f600", {"deep": [1, None]}, ""]
    events = [event(f"e{number}", payload) for number, payload in enumerate(payloads, 1)]
    store.commit(commit_request(granted, events=events))
    return granted


def test_pages_follow_one_another_until_done(store: Broker, lease: Any) -> None:
    seen: list[tuple[list[str], int, int, bool]] = []
    after = 0
    while not seen or not seen[-1][-1]:
        page = store.read_authorized_events_page(page_request(lease, afterRevision=after, limit=2))
        after = page.next_revision
        seen.append((ids(page.events), after, page.through_revision, page.done))
    assert seen == [
        (["e1", "e2"], 2, 5, False),
        (["e3", "e4"], 4, 5, False),
        (["e5"], 5, 5, True),
    ]


def test_a_page_that_ends_with_the_stream_is_done(store: Broker, lease: Any) -> None:
    page = store.read_authorized_events_page(page_request(lease, limit=5))
    assert (len(page.events), page.next_revision, page.done) == (5, 5, True)


def test_a_page_of_an_empty_stream_is_done(store: Broker) -> None:
    lease = acquire(store)
    assert store.read_authorized_events_page(page_request(lease)) == EventsPage((), 0, 0, done=True)


def test_a_page_that_goes_no_further_than_asked_is_done_there(store: Broker, lease: Any) -> None:
    page = store.read_authorized_events_page(page_request(lease, throughRevision=2))
    assert (ids(page.events), page.through_revision, page.done) == (["e1", "e2"], 2, True)
    page = store.read_authorized_events_page(
        page_request(lease, afterRevision=2, throughRevision=2)
    )
    assert page == EventsPage((), 2, 2, done=True)


def test_a_reader_that_passes_the_end_back_replays_a_finite_snapshot(
    store: Broker, lease: Any
) -> None:
    first = store.read_authorized_events_page(page_request(lease, limit=3))
    store.commit(commit_request(lease, "more", expectedRevision=5))
    second = store.read_authorized_events_page(
        page_request(
            lease, afterRevision=first.next_revision, throughRevision=first.through_revision
        )
    )
    assert ids(first.events + second.events) == ["e1", "e2", "e3", "e4", "e5"]
    assert second.done


def test_an_end_ahead_of_the_stream_is_refused(store: Broker, lease: Any) -> None:
    with expect_refusal(InvalidRequest, streamId="stream", throughRevision=6, streamRevision=5):
        store.read_authorized_events_page(page_request(lease, throughRevision=6))


def test_an_end_below_the_beginning_is_refused_before_the_lease_is_looked_at(
    store: Broker, lease: Any
) -> None:
    request = page_request(lease, afterRevision=3, throughRevision=2)
    with expect_refusal(InvalidRequest, field="throughRevision"):
        store.read_authorized_events_page(request | {"lease": {"epoch": 9, "nonce": "?"}})


def test_a_stale_lease_is_reported_before_an_end_ahead_of_the_stream(
    store: Broker, lease: Any
) -> None:
    with expect_refusal(StaleLease, actorId="actor"):
        store.read_authorized_events_page(
            page_request(lease, throughRevision=99) | {"lease": {"epoch": 9, "nonce": "?"}}
        )


def test_a_beginning_after_the_end_by_default_gives_nothing_and_is_done(
    store: Broker, lease: Any
) -> None:
    page = store.read_authorized_events_page(page_request(lease, afterRevision=9))
    assert page == EventsPage((), 9, 5, done=True)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_page_keeps_its_budget_to_the_byte(store: Broker, lease: Any, count: int) -> None:
    everything = store.read_events({"streamId": "stream"})
    budget = array_bytes(everything[:count])
    page = store.read_authorized_events_page(page_request(lease, maxBytes=budget))
    assert list(page.events) == everything[:count]
    assert page.done == (count == 5)
    if count == 1:
        with expect_refusal(InvalidRequest):
            store.read_authorized_events_page(page_request(lease, maxBytes=budget - 1))
    else:
        page = store.read_authorized_events_page(page_request(lease, maxBytes=budget - 1))
        assert list(page.events) == everything[: count - 1]
        assert not page.done


@pytest.mark.parametrize("max_bytes", [1, 2, 3])
def test_a_budget_too_small_for_the_first_event_is_refused_without_details(
    store: Broker, lease: Any, max_bytes: int
) -> None:
    with expect_refusal(InvalidRequest):
        store.read_authorized_events_page(page_request(lease, maxBytes=max_bytes))


def test_a_budget_too_small_for_anything_serves_where_there_is_nothing(
    store: Broker, lease: Any
) -> None:
    page = store.read_authorized_events_page(page_request(lease, afterRevision=5, maxBytes=1))
    assert page == EventsPage((), 5, 5, done=True)


def test_the_stores_own_budget_counts_where_none_is_given(place: Place, clock: ManualClock) -> None:
    with open_store(place, clock, page_max_bytes=400) as store:
        lease = acquire(store)
        events = [event(f"e{number}", "x" * 100) for number in range(4)]
        store.commit(commit_request(lease, events=events))
        page = store.read_authorized_events_page(page_request(lease))
        assert (
            array_bytes(page.events)
            <= 400
            < array_bytes(store.read_events({"streamId": "stream"})[: len(page.events) + 1])
        )
        assert store.read_authorized_events_page(page_request(lease, maxBytes=9_999)).done


def test_the_default_budget_is_a_mebibyte_less_four_kibibytes(store: Broker) -> None:
    lease = acquire(store)
    for number in range(3):
        store.commit(
            commit_request(
                lease,
                f"m{number}",
                expectedRevision=number,
                events=[event(f"e{number}", "x" * 522_000)],
            )
        )
    pages = [
        store.read_authorized_events_page(page_request(lease, afterRevision=after))
        for after in (0, 2)
    ]
    assert [len(page.events) for page in pages] == [2, 1]
    assert 1_000_000 < array_bytes(pages[0].events) <= 1_044_480


def test_a_page_is_found_without_a_scan(store: Broker, lease: Any, path: Path) -> None:
    assert query_plan(path, _PAGE) == [
        "SEARCH events USING INDEX sqlite_autoindex_events_2"
        " (stream_id=? AND revision>? AND revision<?)"
    ]


@pytest.fixture
def counted(
    store: Broker, path: Path, clock: ManualClock
) -> Iterator[tuple[UnitOfWork, list[str]]]:
    """A unit of work, and the ids of the events that the driver has fetched for it."""
    fetched: list[str] = []

    def note(_cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        if str(row[0]).startswith("large"):
            fetched.append(row[0])
        return row

    engine = create_engine(url_of(path))

    @sqlalchemy_event.listens_for(engine, "connect")
    def _count_rows(connection: Any, _record: Any) -> None:
        connection.row_factory = note

    with Session(engine) as session:
        yield UnitOfWork(session, clock.options()), fetched
    engine.dispose()


def test_a_page_fetches_no_event_after_the_first_that_does_not_fit(
    store: Broker, counted: tuple[UnitOfWork, list[str]]
) -> None:
    unit, fetched = counted
    lease = acquire(store)
    events = [event(f"large {number}", "x" * 1_000) for number in range(9)]
    store.commit(commit_request(lease, events=events))
    page = unit.read_authorized_events_page(page_request(lease, maxBytes=3_000))
    assert ids(page.events) == ["large 0", "large 1"]
    assert fetched == ["large 0", "large 1", "large 2"]
    assert not page.done

    fetched.clear()
    with expect_refusal(InvalidRequest):
        unit.read_authorized_events_page(page_request(lease, maxBytes=100))
    assert fetched == ["large 0"]


def test_read_model_events_are_fetched_no_further_than_the_first_that_does_not_fit(
    store: Broker, counted: tuple[UnitOfWork, list[str]]
) -> None:
    unit, fetched = counted
    frames = [frame(f"large {number}", "s", payload="x" * 220_000) for number in range(9)]
    write(store, "s", *frames)
    assert ids(unit.read_model_events({"workspaceId": "ws"})) == ["large 0", "large 1"]
    assert fetched == ["large 0", "large 1", "large 2"]


def test_a_read_model_event_that_is_too_large_comes_alone_and_nothing_more_is_fetched(
    store: Broker, counted: tuple[UnitOfWork, list[str]]
) -> None:
    unit, fetched = counted
    write(store, "s", *[frame(f"large {n}", "s", payload="x" * 600_000) for n in range(3)])
    assert ids(unit.read_model_events({"workspaceId": "ws"})) == ["large 0"]
    assert fetched == ["large 0"]


def test_a_page_of_large_events_does_not_take_the_memory_of_all_of_them(store: Broker) -> None:
    lease = acquire(store)
    for number in range(60):
        large = [event(f"large {number}", "x" * 1_000_000)]
        store.commit(commit_request(lease, f"m{number}", expectedRevision=number, events=large))
    tracemalloc.start()
    try:
        page = store.read_authorized_events_page(page_request(lease))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(page.events) == 1
    assert peak < 20_000_000
