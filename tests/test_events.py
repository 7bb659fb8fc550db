"""Stored events: measured to the byte as they go over the wire, and read whoever wrote them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import Broker
from broker.canonical import encode
from broker.errors import CorruptRow
from broker.events import (
    MOST_EVENT_BYTES_BESIDES_PAYLOAD,
    cursor_bytes,
    event_bytes,
    fitting,
    journal_events,
    stored_events,
    stored_json,
)
from broker.messages import JournalEvent, StoredEvent
from broker.statements import Row
from tests.places import Place
from tests.reads_support import array_bytes, store_raw_event
from tests.support import acquire, commit_request, event, expect_refusal, page_request

ROW = ("e", "m", "s", 1, "t", '{"a":[1,null]}', 2, 3, "c", None, "f")


def wire_bytes(found: StoredEvent) -> int:
    """The length of an event's JSON by the standard library."""
    text = json.dumps(found.to_json(), ensure_ascii=False, separators=(",", ":"))
    return len(text.encode())


def test_a_row_becomes_an_event_without_what_is_null() -> None:
    (found,) = stored_events([ROW])
    assert found == StoredEvent("e", "m", "s", 1, "t", {"a": [1, None]}, 2, 3, "c", None, "f")
    assert "causationId" not in found.to_json()


def test_a_row_with_a_cursor_becomes_a_journal_event() -> None:
    (found,) = journal_events([(*ROW, 17)])
    assert type(found) is JournalEvent
    assert found == JournalEvent("e", "m", "s", 1, "t", {"a": [1, None]}, 2, 3, "c", None, "f", 17)
    assert found.to_json() == stored_events([ROW])[0].to_json() | {"cursor": 17}


@pytest.mark.parametrize("found", [*stored_events([ROW]), *journal_events([(*ROW, 17)])])
def test_an_event_that_was_read_is_like_one_that_was_made(found: StoredEvent) -> None:
    made = type(found)(*[getattr(found, name) for name in type(found).__match_args__])
    assert found == made
    assert repr(found) == repr(made)
    assert pickle.loads(pickle.dumps(found)) == made  # noqa: S301  # its own
    assert not hasattr(found, "__dict__")
    with pytest.raises(AttributeError):
        found.revision = 2  # type: ignore[misc]  # which is the point
    with pytest.raises(AttributeError):
        del found.revision


def test_no_more_rows_are_fetched_than_are_read_together() -> None:
    fetched: list[int] = []

    def rows() -> Iterator[Row]:
        for number in range(1_000):
            fetched.append(number)
            yield ROW if number != 200 else (*ROW[:5], "{", *ROW[6:])

    with expect_refusal(CorruptRow, table="events", row="e", column="payload_json"):
        stored_events(rows())
    assert len(fetched) == 256


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
IDS = TEXTS.filter(bool)
SAFE = st.integers(1, 2**53 - 1)
PAYLOADS = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(
    ids=st.tuples(IDS, IDS, IDS, IDS),
    numbers=st.tuples(SAFE, SAFE, SAFE, SAFE),
    payload=PAYLOADS,
    optional=st.tuples(st.none() | IDS, st.none() | IDS, st.none() | IDS),
)
def test_an_event_is_measured_as_its_wire_form_to_the_byte(
    ids: tuple[str, ...], numbers: tuple[int, ...], payload: Any, optional: tuple[str | None, ...]
) -> None:
    event_id, message_id, stream_id, event_type = ids
    revision, epoch, occurred_at, cursor = numbers
    text = encode(payload).stored
    row = (event_id, message_id, stream_id, revision, event_type, text, epoch, occurred_at)
    size = event_bytes(*row, *optional)
    assert size == wire_bytes(*stored_events([(*row, *optional)]))
    (found,) = journal_events([(*row, *optional, cursor)])
    assert size + cursor_bytes(cursor) == wire_bytes(found)


def test_a_lone_surrogate_counts_as_the_six_characters_of_its_escape() -> None:
    text = encode("\ud800").stored
    assert text == '"\\ud800"'
    one, plain = (
        event_bytes("e", "m", "s", 1, "t", each, 1, 1, None, None, None) for each in (text, "0")
    )
    assert one - plain == len(text) - 1


def test_no_event_takes_more_beside_its_payload_than_is_allowed_for() -> None:
    longest = "\2" * 1_024
    greatest = 2**53 - 1
    size = event_bytes(
        longest,
        longest,
        longest,
        greatest,
        longest,
        "",
        greatest,
        greatest,
        longest,
        longest,
        longest,
    )
    assert size <= MOST_EVENT_BYTES_BESIDES_PAYLOAD


ROWS = st.lists(
    st.tuples(
        *[IDS, IDS, IDS, SAFE, IDS, PAYLOADS.map(lambda payload: encode(payload).stored)],
        *[SAFE, SAFE, st.none() | IDS, st.none() | IDS, st.none() | IDS],
    ),
    max_size=6,
)


@given(rows=ROWS, cursor=st.none() | SAFE, spare=st.sampled_from([-1, 0, 1, 10, 1_000_000]))
def test_rows_fit_that_fit_to_the_byte(
    rows: list[tuple[Any, ...]], cursor: int | None, spare: int
) -> None:
    if cursor is not None:
        rows = [(*row, cursor) for row in rows]
    events = (stored_events if cursor is None else journal_events)(rows)
    for count in range(len(rows) + 1):
        budget = array_bytes(events[:count]) + spare
        found, rest = fitting(iter(rows), budget)
        assert found == rows[: len(found)]
        assert rest == (rows[len(found)] if len(found) < len(rows) else None)
        assert not found or array_bytes(events[: len(found)]) <= budget
        assert rest is None or array_bytes(events[: len(found) + 1]) > budget


def test_no_row_is_measured_where_all_of_them_fit_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.events.event_bytes", None)
    ascii_row, other_row = (*ROW[:5], '"x"' * 100, *ROW[6:]), (*ROW[:5], '"é"' * 100, *ROW[6:])
    assert fitting([ascii_row] * 9, 9_500) == ([ascii_row] * 9, None)
    assert fitting([other_row] * 9, 20_000) == ([other_row] * 9, None)
    with pytest.raises(TypeError):
        fitting([other_row] * 9, 9_500)


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"a":NaN}', "1e400", "[" * 100_000, '{"a":\ud800}', "nul", "'a'", "1 2", "\ufeff1"],
    ids=range(10),
)
def test_a_stored_text_that_cannot_be_read_names_its_row(text: str) -> None:
    with expect_refusal(CorruptRow, table="outbox", row="o-1", column="payload_json"):
        stored_json(text, "outbox", "o-1", "payload_json")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' { "a" : 1.0 } ', {"a": 1.0}),
        ('{"a":1,"a":2}', {"a": 2}),
        ("[" * 300 + "]" * 300, json.loads("[" * 300 + "]" * 300)),
        ("9007199254740993", 9007199254740993),
        ('"\\ud83d"', "\ud83d"),
    ],
    ids=range(5),
)
def test_a_stored_text_of_another_writer_is_read_as_far_as_it_can_be(
    text: str, value: object
) -> None:
    assert stored_json(text, "events", "e", "payload_json") == value


@pytest.mark.parametrize("payload", ['{"a":', '{"a":NaN}', "[" * 3_000 + "]" * 3_000])
def test_b26_a_poisoned_row_is_named_and_the_others_can_be_read(
    store: Broker, place: Place, payload: str
) -> None:
    assert readable_around_a_poisoned_row(store, place, payload) == ["good"]


def test_b31_text_that_is_not_utf8_is_named_and_the_others_can_be_read(
    store: Broker, path: Path
) -> None:
    assert readable_around_a_poisoned_row(store, path, b"ab\xffc") == ["good"]


def readable_around_a_poisoned_row(store: Broker, place: Place, payload: str | bytes) -> list[str]:
    """The events of a page that ends before a row that is named wherever it is met."""
    lease = acquire(store)
    store.commit(commit_request(lease, events=[event("good")]))
    store_raw_event(place, "poison", payload)
    with expect_refusal(CorruptRow, table="events", row="poison", column="payload_json"):
        store.read_events({"streamId": "stream"})
    with expect_refusal(CorruptRow, table="events", row="poison", column="payload_json"):
        store.read_authorized_events_page(page_request(lease, afterRevision=1))
    page = store.read_authorized_events_page(page_request(lease, limit=1))
    assert not page.done
    return [each.event_id for each in page.events]
