"""Stored events: measured to the byte as they go over the wire, and read whoever wrote them."""

from __future__ import annotations

import json
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
    journal_event,
    stored_event,
    stored_json,
)
from broker.messages import JournalEvent, StoredEvent
from tests.support import acquire, commit_request, event, expect_refusal, page_request, raw

ROW = ("e", "m", "s", 1, "t", '{"a":[1,null]}', 2, 3, "c", None, "f")


def wire_bytes(found: StoredEvent) -> int:
    """The length of an event's JSON by the standard library."""
    text = json.dumps(found.to_json(), ensure_ascii=False, separators=(",", ":"))
    return len(text.encode())


def test_a_row_becomes_an_event_without_what_is_null() -> None:
    found = stored_event(ROW)
    assert found == StoredEvent("e", "m", "s", 1, "t", {"a": [1, None]}, 2, 3, "c", None, "f")
    assert "causationId" not in found.to_json()


def test_a_row_with_a_cursor_becomes_a_journal_event() -> None:
    found = journal_event((*ROW, 17))
    assert type(found) is JournalEvent
    assert found.to_json() == stored_event(ROW).to_json() | {"cursor": 17}


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
    assert size == wire_bytes(stored_event((*row, *optional)))
    found = journal_event((*row, *optional, cursor))
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


def store_raw_event(path: Path, event_id: str, payload: str | bytes, revision: int = 2) -> None:
    """As another program would: `payload` in bytes may be no UTF-8."""
    with raw(path) as other:
        other.execute(
            "INSERT INTO events (event_id, message_id, stream_id, revision, event_type,"
            " payload_json, producer_epoch, occurred_at)"
            " VALUES (?, 'message', 'stream', ?, 'note', CAST(? AS TEXT), 1, 1)",
            (event_id, revision, payload),
        )
        other.execute("UPDATE streams SET revision = ? WHERE stream_id = 'stream'", (revision,))


@pytest.mark.parametrize("payload", ['{"a":', '{"a":NaN}', "[" * 3_000 + "]" * 3_000, b"ab\xffc"])
def test_b26_b31_a_poisoned_row_is_named_and_the_others_can_be_read(
    store: Broker, path: Path, payload: str | bytes
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, events=[event("good")]))
    store_raw_event(path, "poison", payload)
    with expect_refusal(CorruptRow, table="events", row="poison", column="payload_json"):
        store.read_events({"streamId": "stream"})
    with expect_refusal(CorruptRow, table="events", row="poison", column="payload_json"):
        store.read_authorized_events_page(page_request(lease, afterRevision=1))
    page = store.read_authorized_events_page(page_request(lease, limit=1))
    assert [each.event_id for each in page.events] == ["good"]
    assert not page.done
