"""The outbox: what is pending, in which order, since when, and delivered once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.errors import CorruptRow, InvalidRequest
from broker.messages import StoredOutboxMessage
from broker.outbox import _PENDING
from tests.places import Place, client, raw, rows
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    expect_refusal,
    floor,
    outbox_message,
    query_plan,
)


def send(store: Broker, *messages: dict[str, Any], message_id: str = "message") -> None:
    """Commit outbox messages, each commit on a stream of its own."""
    lease = acquire(store, f"actor-{message_id}", f"stream-{message_id}")
    store.commit(commit_request(lease, message_id, outbox=list(messages)))


def pending(store: Broker, **request: Any) -> list[str]:
    return [message.outbox_id for message in store.list_pending_outbox(request)]


def test_a_pending_message_is_shown_whole(store: Broker) -> None:
    send(store, outbox_message("o", eventId="message-event", payload={"b": 1, "a": None}))
    assert store.list_pending_outbox() == [
        StoredOutboxMessage(
            outbox_id="o",
            message_id="message",
            destination="mail",
            payload={"b": 1, "a": None},
            created_at=1_000,
            available_at=1_000,
            attempts=0,
            event_id="message-event",
        )
    ]


def test_messages_are_in_the_order_of_creation_and_then_of_the_bytes_of_their_ids(
    store: Broker, clock: ManualClock
) -> None:
    names = ["b", "B", "a", "é", "\uffff", "\U0001f600", "%"]
    send(store, *[outbox_message(name) for name in names], message_id="one")
    clock.advance(1)
    send(store, outbox_message("A"), message_id="two")
    by_bytes = sorted(names, key=str.encode)
    assert pending(store) == [*by_bytes, "A"]


def test_an_early_message_that_is_due_late_keeps_its_place(
    store: Broker, clock: ManualClock
) -> None:
    send(store, outbox_message("late", availableAt=1_500), message_id="one")
    clock.advance(1)
    send(store, outbox_message("soon"), message_id="two")
    assert pending(store) == ["soon"]
    clock.advance(499)
    assert pending(store) == ["late", "soon"]


@pytest.mark.parametrize(("as_of", "found"), [(1_999, []), (2_000, ["o"]), (2_000.0, ["o"])])
def test_a_message_is_due_from_its_very_millisecond_at_the_time_asked_for(
    store: Broker, as_of: float, found: list[str]
) -> None:
    send(store, outbox_message("o", availableAt=2_000))
    assert pending(store, asOf=as_of) == found


def test_without_a_time_broker_time_counts_the_persisted_floor_included(
    store: Broker, place: Place
) -> None:
    send(store, outbox_message("o", availableAt=2_000))
    assert pending(store) == []
    with client(place) as other:
        other.execute("UPDATE metadata SET value = '2000' WHERE key = 'logical_time_floor'")
    assert pending(store) == ["o"]


def test_a_time_before_all_messages_finds_none(store: Broker) -> None:
    send(store, outbox_message("o"))
    assert pending(store, asOf=0) == []


def test_a_message_may_be_due_before_it_was_created(store: Broker) -> None:
    send(store, outbox_message("o", availableAt=0))
    assert pending(store, asOf=0) == ["o"]


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (3, 3), (2**53 - 1, 150), (None, 100)])
def test_a_limit_is_kept_and_is_100_by_default(
    store: Broker, limit: int | None, count: int
) -> None:
    send(store, *[outbox_message(f"o{number:03}") for number in range(150)])
    request = {} if limit is None else {"limit": limit}
    assert pending(store, **request) == [f"o{number:03}" for number in range(count)]


@pytest.mark.parametrize(
    ("request_", "details"),
    [
        ({"limit": 0}, {"field": "limit"}),
        ({"asOf": -1}, {"field": "now"}),
        ({"asOf": "1"}, {"field": "now"}),
        ({"limit": 0, "asOf": -1}, {"field": "limit"}),
        ({"now": 1}, {"field": "now"}),
    ],
)
def test_a_bad_request_for_the_pending_is_refused(
    store: Broker, request_: dict[str, Any], details: dict[str, Any]
) -> None:
    with expect_refusal(InvalidRequest, **details):
        store.list_pending_outbox(request_)


def test_marking_sets_the_time_counts_the_attempt_and_says_that_it_was_this_call(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    send(store, outbox_message("o"), outbox_message("p"))
    clock.advance(30)
    assert store.mark_outbox_delivered({"outboxId": "o"}) is True
    assert rows(place, "SELECT outbox_id, delivered_at, attempts FROM outbox ORDER BY 1") == [
        ("o", 1_030, 1),
        ("p", None, 0),
    ]
    assert pending(store) == ["p"]


def test_marking_again_changes_nothing_and_says_so(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    send(store, outbox_message("o"))
    assert store.mark_outbox_delivered({"outboxId": "o", "deliveredAt": 5})
    clock.advance(1)
    assert store.mark_outbox_delivered({"outboxId": "o", "deliveredAt": 6}) is False
    assert rows(place, "SELECT delivered_at, attempts FROM outbox") == [(5, 1)]


@pytest.mark.parametrize("outbox_id", ["unknown", "O", "o ", "message"])
def test_marking_what_is_not_there_says_so(store: Broker, place: Place, outbox_id: str) -> None:
    send(store, outbox_message("o"))
    assert store.mark_outbox_delivered({"outboxId": outbox_id}) is False
    assert rows(place, "SELECT delivered_at, attempts FROM outbox") == [(None, 0)]


@pytest.mark.parametrize("delivered_at", [0, 2**53 - 1])
def test_any_safe_time_of_delivery_is_stored(
    store: Broker, place: Place, delivered_at: int
) -> None:
    send(store, outbox_message("o"))
    assert store.mark_outbox_delivered({"outboxId": "o", "deliveredAt": delivered_at})
    assert rows(place, "SELECT delivered_at FROM outbox") == [(delivered_at,)]


def test_marking_persists_no_time(store: Broker, place: Place, clock: ManualClock) -> None:
    send(store, outbox_message("o"))
    clock.advance(500)
    store.mark_outbox_delivered({"outboxId": "o"})
    assert floor(place) == "1000"
    assert rows(place, "SELECT delivered_at FROM outbox") == [(1_500,)]


def test_a_message_whose_payload_cannot_be_read_names_its_row(store: Broker, place: Place) -> None:
    send(store, outbox_message("o"), outbox_message("p"))
    with client(place) as other:
        other.execute("UPDATE outbox SET payload_json = '{' WHERE outbox_id = 'p'")
    assert pending(store, limit=1) == ["o"]
    with expect_refusal(CorruptRow, table="outbox", row="p", column="payload_json"):
        store.list_pending_outbox()


@pytest.mark.parametrize("analyze", [False, True])
def test_finding_the_pending_costs_nothing_for_what_was_delivered(
    store: Broker, path: Path, analyze: bool
) -> None:
    send(store, *[outbox_message(f"o{number:04}") for number in range(2_000)])
    with raw(path) as other:
        other.execute("UPDATE outbox SET delivered_at = 1 WHERE outbox_id < 'o1990'")
        if analyze:
            other.execute("ANALYZE")
    steps = query_plan(path, _PENDING)
    assert any("outbox_undelivered_idx" in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
    assert pending(store, limit=2) == ["o1990", "o1991"]
