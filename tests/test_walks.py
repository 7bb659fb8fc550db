"""Walks: all events in order, page by page, in bounded memory, holding nothing in between."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from sqlalchemy import QueuePool
from sqlalchemy.orm import Session

from broker import Broker, walks
from broker.errors import CorruptRow
from broker.messages import JournalEvent, StoredEvent
from broker.reads import _JOURNAL, _STREAM_PAGE
from broker.statements import Statement
from tests.places import Place, PostgresPlace, rows
from tests.reads_support import frame, ids, store_raw_event, write
from tests.support import (
    ManualClock,
    UnitOn,
    acquire,
    commit_request,
    event,
    expect_refusal,
    open_store,
    query_plan,
)

Start: TypeAlias = Callable[[Any, int], Iterator[StoredEvent]]


def walk_stream(store: Any, after: int = 0) -> Iterator[StoredEvent]:
    found: Iterator[StoredEvent] = store.walk_events({"streamId": "s", "afterRevision": after})
    return found


def walk_journal(store: Any, after: int = 0) -> Iterator[StoredEvent]:
    found: Iterator[JournalEvent] = store.walk_journal({"afterCursor": after})
    return found


def walk_read_model(store: Any, after: int = 0) -> Iterator[StoredEvent]:
    request = {"workspaceId": "ws", "afterCursor": after}
    found: Iterator[JournalEvent] = store.walk_read_model_events(request)
    return found


every_walk = pytest.mark.parametrize("start", [walk_stream, walk_journal, walk_read_model])


def write_frames(store: Broker, *numbers: int, payload: Any = 1, stream: str = "s") -> None:
    write(store, stream, *[frame(f"e{number}", stream, payload=payload) for number in numbers])


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with every page that a `Broker` reads."""
    begun: list[object] = []
    read = Broker._read

    def note(store: Broker, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begun.append(make)
        return read(store, make, *args, **kwargs)

    monkeypatch.setattr(Broker, "_read", note)
    return begun


def checked_out(store: Broker) -> int:
    return cast(QueuePool, store.engine.pool).checkedout()


def is_held(place: Place) -> bool:
    """Whether anybody uses a snapshot; then nobody can empty the log of a file to its end."""
    if isinstance(place, PostgresPlace):
        return rows(place, SNAPSHOTS) != []
    return rows(place, "PRAGMA wal_checkpoint(TRUNCATE)") != [(0, 0, 0)]


SNAPSHOTS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
AND (backend_xmin IS NOT NULL OR state LIKE 'idle in transaction%')
"""


def kept_by(store: Broker) -> int:
    """How many connections an idle store has out of its pool: on a file, the one that writes."""
    return 1 if store.engine.dialect.name == "sqlite" else 0


# --- What a walk gives ------------------------------------------------------------------------


@every_walk
def test_a_walk_of_nothing_ends_at_once(store: Broker, start: Start) -> None:
    assert list(start(store, 0)) == []


@every_walk
def test_all_events_come_in_order_a_page_at_a_time(
    store: Broker, pages: list[object], start: Start
) -> None:
    write_frames(store, *range(300))
    pages.clear()
    assert ids(start(store, 0)) == [f"e{number}" for number in range(300)]
    assert len(pages) == 4  # of 128, 128, 44 and 0 events


@every_walk
def test_a_walk_begins_after_where_it_is_told(store: Broker, start: Start) -> None:
    write_frames(store, 1, 2, 3)
    assert ids(start(store, 1)) == ["e2", "e3"]
    assert ids(start(store, 3)) == []
    assert ids(start(store, 2**53 - 1)) == []


def test_events_are_those_of_the_other_reads(store: Broker) -> None:
    write_frames(store, 1, 2)
    write_frames(store, 3, stream="t")
    write(store, "u", event("plain", {"n": 2**70}))
    assert list(walk_stream(store)) == store.read_events({"streamId": "s"})
    assert list(walk_journal(store)) == store.read_journal({})
    assert ids(walk_journal(store)) == ["e1", "e2", "e3", "plain"]
    assert list(walk_read_model(store)) == store.read_model_events({"workspaceId": "ws"})


def test_a_page_of_the_journal_comes_after_its_cursor(store: Broker) -> None:
    write(store, "s", event("a"), event("b"))
    write(store, "t", event("c"))
    found = store.read_journal({"limit": 2})
    assert [(each.event_id, each.stream_id, each.cursor) for each in found] == [
        ("a", "s", 1),
        ("b", "s", 2),
    ]
    assert ids(store.read_journal({"afterCursor": 2})) == ["c"]
    assert store.read_journal({"afterCursor": 3}) == []


def test_the_limit_of_the_request_is_that_of_a_page(store: Broker, pages: list[object]) -> None:
    write_frames(store, *range(5))
    pages.clear()
    assert len(list(store.walk_journal({"limit": 2}))) == 5
    assert len(list(store.walk_read_model_events({"workspaceId": "ws", "limit": 5}))) == 5
    assert len(pages) == 4 + 2


@every_walk
def test_a_page_keeps_its_budget_and_what_is_too_large_comes_alone(
    place: Place, clock: ManualClock, store: Broker, pages: list[object], start: Start
) -> None:
    write_frames(store, 1, 2)
    write_frames(store, 3, payload="x" * 5_000)
    write_frames(store, 4, 5)
    budget = {"page_max_bytes": 2_000, "read_model_max_bytes": 2_000}
    with open_store(place, clock, **budget) as small:
        pages.clear()
        assert ids(start(small, 0)) == ["e1", "e2", "e3", "e4", "e5"]
        assert len(pages) == 4  # of two, of the large one, of two, of none


@pytest.mark.parametrize(
    ("statement", "plan"),
    [
        (
            _STREAM_PAGE,
            "SEARCH events USING INDEX sqlite_autoindex_events_2 (stream_id=? AND revision>?)",
        ),
        (_JOURNAL, "SEARCH events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
    ],
)
def test_a_page_is_found_without_a_scan(
    store: Broker, path: Path, statement: Statement, plan: str
) -> None:
    assert query_plan(path, statement) == [plan]


# --- What it sees, and what it holds ----------------------------------------------------------


@every_walk
def test_a_walk_goes_on_through_what_is_written_meanwhile(store: Broker, start: Start) -> None:
    write_frames(store, 1, 2)
    walk = start(store, 0)
    assert next(walk).event_id == "e1"
    write_frames(store, 3)
    assert ids(walk) == ["e2", "e3"]
    write_frames(store, 4)
    assert ids(walk) == []


@every_walk
def test_nothing_is_held_between_events(store: Broker, place: Place, start: Start) -> None:
    write_frames(store, *range(130))
    walk = start(store, 0)
    for _ in range(129):
        next(walk)
        assert checked_out(store) == kept_by(store)
    assert not is_held(place)
    del walk
    assert checked_out(store) == kept_by(store)
    assert ids(start(store, 0)) == [f"e{number}" for number in range(130)]


def test_a_walk_may_go_on_in_another_thread(store: Broker) -> None:
    write_frames(store, *range(130))
    walk = walk_journal(store)
    next(walk)
    found: list[StoredEvent] = []
    thread = threading.Thread(target=lambda: found.extend(walk))
    thread.start()
    thread.join()
    assert len(found) == 129


def test_a_walk_takes_the_memory_of_a_page_or_two(store: Broker) -> None:
    lease = acquire(store, stream="s")
    for number in range(40):
        large = [event(f"large {number}", "x" * 1_000_000)]
        store.commit(commit_request(lease, f"m{number}", expectedRevision=number, events=large))
    for start in (walk_stream, walk_journal):
        tracemalloc.start()
        try:
            count = sum(1 for _ in start(store))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert count == 40
        assert peak < 20_000_000


def test_in_a_unit_of_work_a_walk_reads_in_the_sessions_transaction(
    database: Place, configured: Any, unit_on: UnitOn
) -> None:
    with Session(configured) as session:
        unit = unit_on(session)
        lease = acquire(unit, stream="s")
        unit.commit(commit_request(lease, events=[event("a"), event("b")]))
        walk = walk_stream(unit)
        assert next(walk).event_id == "a"
        unit.commit(commit_request(lease, "more", expectedRevision=2, events=[event("c")]))
        assert ids(walk) == ["b", "c"]
        session.rollback()
        assert ids(walk_stream(unit)) == []


# --- Rows that cannot be read -----------------------------------------------------------------


@pytest.mark.parametrize("start", [walk_stream, walk_journal])
def test_what_comes_before_a_row_that_cannot_be_read_is_given_first(
    store: Broker, place: Place, start: Start
) -> None:
    assert walked_to_a_poisoned_row(store, place, start, '{"a":') == ["e0", "e1", "e2"]


@pytest.mark.parametrize("start", [walk_stream, walk_journal])
def test_what_comes_before_text_that_is_not_utf8_is_given_first(
    store: Broker, path: Path, start: Start
) -> None:
    assert walked_to_a_poisoned_row(store, path, start, b"ab\xffc") == ["e0", "e1", "e2"]


def walked_to_a_poisoned_row(
    store: Broker, place: Place, start: Start, payload: str | bytes
) -> list[str]:
    """What a walk gives before a row that cannot be read; what is behind it can be walked to."""
    write(store, "s", *[event(f"e{number}") for number in range(3)])
    store_raw_event(place, "poison", payload, revision=4, stream="s")
    write(store, "s", event("after"))
    walk, seen = start(store, 0), list[str]()
    with expect_refusal(CorruptRow, table="events", row="poison", column="payload_json"):
        seen.extend(each.event_id for each in walk)  # which extends as it goes
    assert ids(start(store, 4)) == ["after"]
    assert checked_out(store) == kept_by(store)
    assert not is_held(place)
    with expect_refusal(CorruptRow, table="events", row="poison", column="payload_json"):
        next(start(store, 3))
    return seen


# --- The driver for those who await -----------------------------------------------------------


def test_an_awaiting_caller_walks_the_same_pages(store: Broker, pages: list[object]) -> None:
    write_frames(store, *range(130))

    async def read(make: Callable[..., Any], *args: Any) -> Any:
        return store._read(make, *args)

    async def gather() -> list[StoredEvent]:
        walk = walks.each_async(read, walks.journal({}))
        return [each async for each in walk]

    pages.clear()
    assert asyncio.run(gather()) == list(walk_journal(store))
    assert len(pages) == 2 * 3
