"""What a commit stores and answers: rows, cursors, replies, the many and the large."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker import ABSENT, Broker
from broker.canonical import encode
from broker.errors import DatabaseError, InvalidRequest
from broker.messages import CommitResult
from tests.journal_support import owned, projection
from tests.places import Place, contents, raw, rows
from tests.reference_checks import assert_reference_would_open
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    credential,
    event,
    expect_refusal,
    in_threads,
    open_store,
    outbox_message,
)


def test_a_commit_writes_stream_events_outbox_projections_and_inbox(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store)
    clock.advance(5)
    request = commit_request(
        lease,
        events=[
            event("e1", {"b": 1.0, "a": "é"}, correlationId="c", causationId="d", traceId="f"),
            event("e2", None, occurredAt=7),
        ],
        outbox=[outbox_message("o1", eventId="e1"), outbox_message("o2", availableAt=9_000)],
        projections=[projection("p", [1, 2])],
        inboxResult={"n": 1},
    )
    result = store.commit(request)
    assert result == CommitResult(
        "message", "stream", 0, 2, ("e1", "e2"), (1, 2), ("o1", "o2"), 1_005, False, {"n": 1}
    )
    assert rows(place, "SELECT * FROM streams") == [("stream", 2, 1_005, 1_005, None)]
    stored = rows(place, "SELECT rowid, * FROM events ORDER BY 1")
    assert [row[:12] for row in stored] == [
        (1, "e1", "message", "stream", 1, "note", '{"b":1,"a":"é"}', 1, 1_005, "c", "d", "f"),
        (2, "e2", "message", "stream", 2, "note", "null", 1, 7, None, None, None),
    ]
    assert rows(place, "SELECT * FROM outbox ORDER BY 1") == [
        ("o1", "message", "e1", "mail", '{"to":"you"}', 1_005, 1_005, None, 0),
        ("o2", "message", None, "mail", '{"to":"you"}', 1_005, 9_000, None, 0),
    ]
    assert rows(place, "SELECT * FROM projections") == [("p", "stream", 2, "[1,2]", 1_005)]
    ((message_id, request_hash, stream, revision, result_json, applied_at),) = rows(
        place, "SELECT * FROM inbox"
    )
    assert (message_id, stream, revision, applied_at) == ("message", "stream", 2, 1_005)
    assert len(request_hash) == 64
    assert json.loads(result_json) == result.to_json()
    assert " " not in result_json


def test_a_commit_without_events_makes_the_stream_and_moves_nothing(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store)
    result = store.commit(commit_request(lease, events=[], projections=[projection("p")]))
    assert (result.previous_revision, result.revision, result.event_cursors) == (0, 0, ())
    assert rows(place, "SELECT * FROM streams") == [("stream", 0, 1_000, 1_000, None)]
    clock.advance(5)
    store.commit(commit_request(lease, "again", events=[]))
    assert rows(place, "SELECT * FROM streams") == [("stream", 0, 1_000, 1_005, None)]


def test_revisions_follow_one_another_and_the_stream_keeps_its_birthday(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store)
    for revision in range(3):
        result = store.commit(commit_request(lease, f"m{revision}", expectedRevision=revision))
        assert (result.previous_revision, result.revision) == (revision, revision + 1)
        clock.advance(10)
    assert rows(place, "SELECT revision, created_at, updated_at FROM streams") == [
        (3, 1_000, 1_020)
    ]


def test_cursors_grow_over_all_streams_in_commit_order(store: Broker, place: Place) -> None:
    one, two = acquire(store, "a", "s"), acquire(store, "b", "t")
    cursors = [
        store.commit(commit_request(one, "m1", events=[event("a1"), event("a2")])).event_cursors,
        store.commit(commit_request(two, "m2")).event_cursors,
        store.commit(commit_request(one, "m3", expectedRevision=2)).event_cursors,
    ]
    assert cursors == [(1, 2), (3,), (4,)]
    assert rows(place, "SELECT rowid, event_id FROM events ORDER BY rowid") == [
        (1, "a1"),
        (2, "a2"),
        (3, "m2-event"),
        (4, "m3-event"),
    ]


def test_events_carry_the_epoch_of_the_lease_that_wrote_them(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    store.commit(commit_request(acquire(store, ttlMs=10)))
    clock.advance(10)
    store.commit(commit_request(acquire(store), "m2", expectedRevision=1))
    assert rows(place, "SELECT producer_epoch FROM events ORDER BY revision") == [(1,), (2,)]


def test_the_time_that_a_client_sends_is_ignored(store: Broker) -> None:
    assert store.commit(commit_request(acquire(store), committedAt=5)).applied_at == 1_000


@pytest.mark.parametrize("reply", [None, 0, "", [], {"a": None}, "\ud800", 2**60])
def test_a_reply_comes_back_at_once_and_ever_after(store: Broker, reply: Any) -> None:
    request = commit_request(acquire(store), inboxResult=reply)
    first, again = store.commit(request), store.commit(request)
    assert (first.reply, again.reply) == (reply, reply)
    assert first.to_json()["reply"] == reply
    assert (first.recovered, again.recovered) == (False, True)


def test_without_a_reply_there_is_none(store: Broker, place: Place) -> None:
    request = commit_request(acquire(store))
    assert store.commit(request).reply is ABSENT
    assert store.commit(request).reply is ABSENT
    ((result_json,),) = rows(place, "SELECT result_json FROM inbox")
    assert "reply" not in json.loads(result_json)


@pytest.mark.parametrize("name", ["it's", 'a"b', "a\\b;--", "\u2028\x7f", "\2\n\t", "%_"])
def test_any_id_is_stored_and_answered_as_it_is(store: Broker, place: Place, name: str) -> None:
    lease = acquire(store, name, name)
    request = commit_request(
        lease,
        name,
        events=[event(name, name, eventType=name, correlationId=name)],
        outbox=[outbox_message(name, eventId=name, destination=name)],
        projections=[projection(name, name)],
    )
    first, again = store.commit(request), store.commit(request)
    assert first.event_ids == again.event_ids == (name,)
    assert first.outbox_ids == again.outbox_ids == (name,)
    (found,) = store.read_events({"streamId": name})
    assert (found.event_id, found.event_type, found.payload) == (name, name, name)
    assert rows(place, "SELECT message_id, event_id FROM outbox") == [(name, name)]


def test_an_outbox_message_may_name_an_older_event_of_any_stream(
    store: Broker, place: Place
) -> None:
    store.commit(commit_request(acquire(store, "a", "s"), "m1", events=[event("old")]))
    request = commit_request(
        acquire(store, "b", "t"),
        "m2",
        events=[],
        outbox=[outbox_message("o", eventId="old")],
    )
    assert store.commit(request).outbox_ids == ("o",)
    assert rows(place, "SELECT outbox_id, event_id FROM outbox") == [("o", "old")]


def test_an_event_id_names_no_outbox_message(store: Broker) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, events=[event("x")]))
    request = commit_request(lease, "m2", expectedRevision=1, outbox=[outbox_message("x")])
    assert store.commit(request).outbox_ids == ("x",)


def test_a_projection_is_the_streams_own_and_can_be_written_again(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, projections=[projection("p", {"n": 1})]))
    clock.advance(5)
    store.commit(
        commit_request(lease, "m2", expectedRevision=1, projections=[projection("p", [2])])
    )
    assert rows(place, "SELECT * FROM projections") == [("p", "stream", 2, "[2]", 1_005)]


# --- Many, and large ----------------------------------------------------------------------------


def test_a_commit_of_a_thousand_events_keeps_their_order(store: Broker, place: Place) -> None:
    events = [event(f"e{number:04}", number) for number in range(1_000, 0, -1)]
    result = store.commit(commit_request(acquire(store), events=events))
    assert result.event_cursors == tuple(range(1, 1_001))
    stored = rows(place, "SELECT event_id FROM events ORDER BY revision")
    assert [event_id for (event_id,) in stored] == [each["eventId"] for each in events]


def test_an_event_too_large_for_a_page_is_refused_and_one_that_just_fits_can_be_read(
    place: Place,
) -> None:
    clock = ManualClock(wall_ms=2**53 - 1_000_000)
    with open_store(place, clock, page_max_bytes=2_000) as store:
        lease = acquire(store)
        empty = store.commit(commit_request(lease, events=[event("e-0", "")]))
        (found,) = store.read_events({"streamId": "stream"})
        alone = json.dumps([found.to_json()], separators=(",", ":"))
        room = 2_000 - len(alone)
        too_large = commit_request(
            lease, "message", expectedRevision=1, events=[event("e-1", "x" * (room + 1))]
        ) | {"messageId": "messagf"}
        with expect_refusal(InvalidRequest, field="events[0].payload"):
            store.commit(too_large)
        fitting = too_large | {"events": [event("e-1", "x" * room)]}
        assert store.commit(fitting).previous_revision == empty.revision
        page = store.read_authorized_events_page(
            {
                "streamId": "stream",
                "afterRevision": 1,
                "limit": 1,
                "actorId": "actor",
                "lease": credential(lease),
            }
        )
    assert [each.event_id for each in page.events] == ["e-1"]


def deep_down(frames: int, work: Callable[[], object]) -> object:
    return work() if frames == 0 else deep_down(frames - 1, work)


def levels(innermost: Any) -> Any:
    """A payload of 199 levels, arrays and objects by turns."""
    for number in range(199):
        innermost = [innermost] if number % 2 else {"a": innermost}
    return innermost


@pytest.mark.parametrize("frames", [600, 700, 800, 900])
@pytest.mark.parametrize("innermost", [1e-7, "\ud800"], ids=ascii)
def test_a_deep_payload_is_committed_and_read_however_deep_the_caller_is(
    store: Broker, innermost: Any, frames: int
) -> None:
    def commit_and_read() -> None:
        found.append(store.commit(request))
        found.extend(store.read_events({"streamId": "stream"}))

    found: list[Any] = []
    request = commit_request(acquire(store), events=[event("e", levels(innermost))])
    in_threads(lambda: deep_down(frames, commit_and_read))  # a thread's stack begins empty
    result, stored = found
    assert result.revision == 1
    assert encode(stored.payload).stored == encode(levels(innermost)).stored


@pytest.mark.parametrize("cursor", [2**53 - 1, 2**53, 2**63 - 1])
def test_a_cursor_that_another_client_drove_to_its_end_stops_commits_with_an_error_of_ours(
    store: Broker, path: Path, cursor: int
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    with raw(path) as other:
        guards = other.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'events'"
        ).fetchall()
        for name, _ in guards:
            other.execute(f"DROP TRIGGER {name}")
        other.execute(
            "INSERT INTO events (rowid, event_id, message_id, stream_id, revision, event_type,"
            " payload_json, producer_epoch, occurred_at)"
            " VALUES (?, 'theirs', 'message', 'theirs', 1, 't', '1', 1, 1)",
            (cursor,),
        )
        for _, guard in guards:
            other.execute(guard)
    before = contents(path)
    with pytest.raises(DatabaseError):
        store.commit(commit_request(lease, "more", expectedRevision=1))
    assert contents(path) == before
    assert acquire(store, "other", "other").epoch == 1  # nothing is locked, leases go on


# --- Handed back --------------------------------------------------------------------------------


def test_the_reference_would_open_a_database_that_was_written_here(
    path: Path, clock: ManualClock
) -> None:
    with open_store(path, clock) as store:
        lease = store.acquire_lease(
            {"actorId": "ann", "streamId": "s", "holderId": "h", "ttlMs": 100}, request_id="r1"
        )
        store.commit(
            commit_request(
                lease,
                events=[owned("r", "s"), event("x")],
                outbox=[outbox_message("o", eventId="r")],
                projections=[projection("p")],
                inboxResult=None,
            )
        )
        store.mark_outbox_delivered({"outboxId": "o"})
        store.release_lease({"actorId": "ann", "lease": credential(lease)}, request_id="r2")
        acquire(store, "ann", "moved")
        acquire(store, "bob", "s")
    assert_reference_would_open(path)
