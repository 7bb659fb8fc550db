"""The commit: every step in its order, all of it or nothing, once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from broker import ABSENT, Broker, UnitOfWork
from broker.canonical import encode
from broker.errors import (
    BrokerError,
    CorruptRow,
    DatabaseError,
    IdempotencyConflict,
    InvalidRequest,
    RevisionConflict,
    StaleLease,
)
from broker.journal import commit as commit_operation
from broker.messages import CommitRequest, CommitResult, Lease
from broker.options import Options
from broker.transaction import Write
from tests.reference_checks import assert_reference_would_open
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    contents,
    credential,
    event,
    expect_refusal,
    floor,
    in_threads,
    open_store,
    outbox_message,
    raw,
    rows,
    runtime_event,
    url_of,
)

WORKSPACE = "ws"


def owned(event_id: str, stream: str, workspace: str = WORKSPACE, **others: Any) -> dict[str, Any]:
    """A runtime event, which gives its stream an owner."""
    return event(event_id, runtime_event(stream, workspace, **others))


def projection(projection_id: str, value: Any = 1) -> dict[str, Any]:
    return {"projectionId": projection_id, "value": value}


# --- What a commit writes ---------------------------------------------------------------------


def test_a_commit_writes_stream_events_outbox_projections_and_inbox(
    store: Broker, path: Path, clock: ManualClock
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
    assert rows(path, "SELECT * FROM streams") == [("stream", 2, 1_005, 1_005, None)]
    assert rows(path, "SELECT rowid, * FROM events") == [
        (1, "e1", "message", "stream", 1, "note", '{"b":1,"a":"é"}', 1, 1_005, "c", "d", "f"),
        (2, "e2", "message", "stream", 2, "note", "null", 1, 7, None, None, None),
    ]
    assert rows(path, "SELECT * FROM outbox") == [
        ("o1", "message", "e1", "mail", '{"to":"you"}', 1_005, 1_005, None, 0),
        ("o2", "message", None, "mail", '{"to":"you"}', 1_005, 9_000, None, 0),
    ]
    assert rows(path, "SELECT * FROM projections") == [("p", "stream", 2, "[1,2]", 1_005)]
    ((message_id, request_hash, stream, revision, result_json, applied_at),) = rows(
        path, "SELECT * FROM inbox"
    )
    assert (message_id, stream, revision, applied_at) == ("message", "stream", 2, 1_005)
    assert len(request_hash) == 64
    assert json.loads(result_json) == result.to_json()
    assert " " not in result_json


def test_a_commit_without_events_makes_the_stream_and_moves_nothing(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    lease = acquire(store)
    result = store.commit(commit_request(lease, events=[], projections=[projection("p")]))
    assert (result.previous_revision, result.revision, result.event_cursors) == (0, 0, ())
    assert rows(path, "SELECT * FROM streams") == [("stream", 0, 1_000, 1_000, None)]
    clock.advance(5)
    store.commit(commit_request(lease, "again", events=[]))
    assert rows(path, "SELECT * FROM streams") == [("stream", 0, 1_000, 1_005, None)]


def test_revisions_follow_one_another_and_the_stream_keeps_its_birthday(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    lease = acquire(store)
    for revision in range(3):
        result = store.commit(commit_request(lease, f"m{revision}", expectedRevision=revision))
        assert (result.previous_revision, result.revision) == (revision, revision + 1)
        clock.advance(10)
    assert rows(path, "SELECT revision, created_at, updated_at FROM streams") == [(3, 1_000, 1_020)]


def test_cursors_grow_over_all_streams_in_commit_order(store: Broker, path: Path) -> None:
    one, two = acquire(store, "a", "s"), acquire(store, "b", "t")
    cursors = [
        store.commit(commit_request(one, "m1", events=[event("a1"), event("a2")])).event_cursors,
        store.commit(commit_request(two, "m2")).event_cursors,
        store.commit(commit_request(one, "m3", expectedRevision=2)).event_cursors,
    ]
    assert cursors == [(1, 2), (3,), (4,)]
    assert rows(path, "SELECT rowid, event_id FROM events ORDER BY rowid") == [
        (1, "a1"),
        (2, "a2"),
        (3, "m2-event"),
        (4, "m3-event"),
    ]


def test_events_carry_the_epoch_of_the_lease_that_wrote_them(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    store.commit(commit_request(acquire(store, ttlMs=10)))
    clock.advance(10)
    store.commit(commit_request(acquire(store), "m2", expectedRevision=1))
    assert rows(path, "SELECT producer_epoch FROM events ORDER BY revision") == [(1,), (2,)]


def test_the_time_that_a_client_sends_is_ignored(store: Broker) -> None:
    assert store.commit(commit_request(acquire(store), committedAt=5)).applied_at == 1_000


@pytest.mark.parametrize("reply", [None, 0, "", [], {"a": None}, "\ud800", 2**60])
def test_a_reply_comes_back_at_once_and_ever_after(store: Broker, reply: Any) -> None:
    request = commit_request(acquire(store), inboxResult=reply)
    first, again = store.commit(request), store.commit(request)
    assert (first.reply, again.reply) == (reply, reply)
    assert first.to_json()["reply"] == reply
    assert (first.recovered, again.recovered) == (False, True)


def test_without_a_reply_there_is_none(store: Broker, path: Path) -> None:
    request = commit_request(acquire(store))
    assert store.commit(request).reply is ABSENT
    assert store.commit(request).reply is ABSENT
    ((result_json,),) = rows(path, "SELECT result_json FROM inbox")
    assert "reply" not in json.loads(result_json)


@pytest.mark.parametrize("name", ["it's", 'a"b', "a\\b;--", "\u2028\x7f", "\2\n\t", "%_"])
def test_any_id_is_stored_and_answered_as_it_is(store: Broker, path: Path, name: str) -> None:
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
    assert rows(path, "SELECT message_id, event_id FROM outbox") == [(name, name)]


# --- Once (step 2) ------------------------------------------------------------------------------


def test_a_replay_gets_the_recorded_result_although_the_lease_is_gone(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    lease = acquire(store, ttlMs=10)
    request = commit_request(lease)
    first = store.commit(request)
    clock.advance(10)
    acquire(store, "other")
    before, floor_before = contents(path), floor(path)
    clock.advance(10)
    again = store.commit(request)
    assert again.to_json() == first.to_json() | {"recovered": True}
    assert (contents(path), floor(path)) == (before, floor_before)


@pytest.mark.parametrize(
    "changes",
    [
        {"lease": {"epoch": 77, "nonce": "other"}},
        {"committedAt": 99},
        {"expectedRevision": 0.0},
        {"outbox": None},
    ],
)
def test_a_replay_may_differ_in_what_does_not_count(store: Broker, changes: dict[str, Any]) -> None:
    request = commit_request(acquire(store))
    store.commit(request)
    assert store.commit(request | changes).recovered


def test_b38_the_same_key_with_another_body_is_a_conflict_and_reordered_keys_replay(
    store: Broker, path: Path
) -> None:
    request = commit_request(acquire(store), events=[event("e", {"a": 1, "b": 2})])
    store.commit(request)
    before = contents(path)
    with expect_refusal(IdempotencyConflict, messageId="message"):
        store.commit(request | {"events": [event("e", {"a": 1, "b": 3})]})
    assert contents(path) == before
    reordered = dict(reversed(request.items())) | {"events": [event("e", {"b": 2, "a": 1.0})]}
    assert store.commit(reordered).recovered


@pytest.mark.parametrize("other", ["Message", "message ", " message", "mess\u200bage", "\2message"])
def test_b38_a_key_of_another_spelling_is_another_key(store: Broker, other: str) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    result = store.commit(commit_request(lease, other, expectedRevision=1))
    assert (result.message_id, result.recovered) == (other, False)


def test_b38_a_key_has_1024_bytes_at_most_and_is_never_trimmed(store: Broker) -> None:
    lease = acquire(store)
    long = "k" * 1_023
    assert not store.commit(commit_request(lease, long + "a", events=[])).recovered
    assert not store.commit(commit_request(lease, long + "b", events=[])).recovered
    assert store.commit(commit_request(lease, long + "a", events=[])).recovered
    for key in ("", long + "ab"):
        with expect_refusal(InvalidRequest, field="messageId"):
            store.commit(commit_request(lease, key, events=[]))


def test_the_inbox_is_looked_at_again_inside_the_transaction(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    request = commit_request(acquire(store))
    first = store.commit(request)
    before = contents(path)
    clock.advance(50)
    late = commit_operation(request, store.options)
    assert store._write(Write(late.apply)).to_json() == first.to_json() | {"recovered": True}
    assert floor(path) == "1050"
    other = commit_operation(request | {"events": []}, store.options)
    with expect_refusal(IdempotencyConflict, messageId="message"):
        store._write(Write(other.apply))
    assert contents(path) == before


@pytest.mark.parametrize("text", ["{", "5", "[]", "{}", '{"messageId":"m"}', '{"surprise":1}'])
def test_an_inbox_that_holds_no_result_is_named(store: Broker, path: Path, text: str) -> None:
    request = commit_request(acquire(store))
    store.commit(request)
    with raw(path) as other:
        other.execute("UPDATE inbox SET result_json = ?", (text,))
    with expect_refusal(CorruptRow, table="inbox", row="message", column="result_json"):
        store.commit(request)


# --- Fenced and expected (steps 4 and 5) --------------------------------------------------------


@pytest.mark.parametrize(("expected", "actual"), [(0, 1), (2, 1), (2**53 - 1, 1)])
def test_a_stream_at_another_revision_is_a_conflict(
    store: Broker, path: Path, expected: int, actual: int
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    before = contents(path)
    with expect_refusal(
        RevisionConflict,
        streamId="stream",
        expectedRevision=expected,
        actualRevision=actual,
    ):
        store.commit(commit_request(lease, "m2", expectedRevision=expected))
    assert contents(path) == before


def test_an_unknown_stream_is_at_revision_nought(store: Broker) -> None:
    with expect_refusal(RevisionConflict, streamId="stream", expectedRevision=1, actualRevision=0):
        store.commit(commit_request(acquire(store), expectedRevision=1))


def test_a_holder_that_was_swapped_out_writes_nothing(store: Broker, path: Path) -> None:
    lease = acquire(store)
    store.compare_and_swap_lease(
        {"actorId": "actor", "lease": credential(lease), "ttlMs": 500, "nextHolderId": "n"}
    )
    with expect_refusal(StaleLease, actorId="actor"):
        store.commit(commit_request(lease))
    assert rows(path, "SELECT * FROM streams") == []


# --- Ownership (step 6, section 9) --------------------------------------------------------------


def owner(path: Path, stream: str = "stream") -> str | None:
    ((found,),) = rows(path, "SELECT workspace_id FROM streams WHERE stream_id = ?", stream)
    return None if found is None else str(found)


def test_the_first_runtime_event_settles_the_owner_for_good(store: Broker, path: Path) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    assert owner(path) is None
    store.commit(commit_request(lease, "m2", expectedRevision=1, events=[owned("r", "stream")]))
    assert owner(path) == WORKSPACE
    store.commit(commit_request(lease, "m3", expectedRevision=2))
    assert owner(path) == WORKSPACE


def test_a_runtime_event_of_another_stream_is_refused(store: Broker, path: Path) -> None:
    lease = acquire(store)
    before = contents(path)
    with expect_refusal(InvalidRequest, streamId="stream", payloadStreamId="t"):
        store.commit(commit_request(lease, events=[owned("r", "t")]))
    assert contents(path) == before


def test_a_runtime_event_of_another_workspace_is_refused(store: Broker) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, events=[owned("r", "stream")]))
    with expect_refusal(
        InvalidRequest, streamId="stream", workspaceId="mallory", ownerWorkspaceId=WORKSPACE
    ):
        store.commit(
            commit_request(
                lease, "m2", expectedRevision=1, events=[owned("r2", "stream", "mallory")]
            )
        )


def test_the_first_event_of_a_commit_settles_the_owner_for_the_rest(
    store: Broker, path: Path
) -> None:
    lease = acquire(store)
    events = [event("x"), owned("a", "stream", "first"), owned("b", "stream", "second")]
    with expect_refusal(
        InvalidRequest, streamId="stream", workspaceId="second", ownerWorkspaceId="first"
    ):
        store.commit(commit_request(lease, events=events))
    assert rows(path, "SELECT * FROM streams") == []


def test_each_event_is_judged_by_stream_before_owner_and_in_order(store: Broker) -> None:
    lease = acquire(store)
    first, foreign = owned("a", "stream", "first"), owned("b", "t", "second")
    with expect_refusal(InvalidRequest, streamId="stream", payloadStreamId="t"):
        store.commit(commit_request(lease, events=[first, foreign]))
    second = owned("c", "stream", "second")
    with expect_refusal(
        InvalidRequest, streamId="stream", workspaceId="second", ownerWorkspaceId="first"
    ):
        store.commit(commit_request(lease, events=[first, second, foreign]))


def test_what_is_no_runtime_event_is_nobodys_whatever_it_says(store: Broker, path: Path) -> None:
    payload = runtime_event("t", "mallory", sequence=0)
    store.commit(commit_request(acquire(store), events=[event("x", payload)]))
    assert owner(path) is None


# --- Used ids (step 7) --------------------------------------------------------------------------


class Crowded(NamedTuple):
    """A store in which much is used already."""

    path: Path
    store: Broker
    lease: Lease


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowded]:
    """A stream of an owner at revision 3, a stream elsewhere; refusals change neither."""
    path, clock = tmp_path_factory.mktemp("crowded") / "broker.db", ManualClock()
    with open_store(path, clock) as store:
        other = acquire(store, "other", "elsewhere")
        store.commit(
            commit_request(
                other,
                "first",
                events=[event("used-1"), event("used-2")],
                outbox=[outbox_message("sent-1"), outbox_message("sent-2")],
                projections=[projection("theirs-1"), projection("theirs-2")],
            )
        )
        lease = acquire(store)
        events = [owned("e1", "stream"), event("e2"), event("e3")]
        store.commit(commit_request(lease, "second", events=events))
        yield Crowded(path, store, lease)


Change = Callable[[dict[str, Any]], object]


class Fault(NamedTuple):
    """Something wrong with a commit to the crowded store, and what it is refused with."""

    spoil: Change
    kind: type[BrokerError]
    details: dict[str, Any]


def _put(**changes: Any) -> Change:
    return lambda request: request.update(changes)


def _add(group: str, *items: dict[str, Any]) -> Change:
    return lambda request: request[group].extend(items)


FAULTS = {
    "invalid": Fault(_put(expectedRevision=-1), InvalidRequest, {"field": "expectedRevision"}),
    "too large": Fault(
        _add("events", event("large", "x" * 1_044_480)),
        InvalidRequest,
        {"field": "events[1].payload"},
    ),
    "message id": Fault(_put(messageId="first"), IdempotencyConflict, {"messageId": "first"}),
    "stale": Fault(_put(lease={"epoch": 1, "nonce": "?"}), StaleLease, {"actorId": "actor"}),
    "other stream": Fault(
        _put(streamId="elsewhere"),
        StaleLease,
        {"actorId": "actor", "authorizedStreamId": "stream", "streamId": "elsewhere"},
    ),
    "revision": Fault(
        _put(expectedRevision=9),
        RevisionConflict,
        {"streamId": "stream", "expectedRevision": 9, "actualRevision": 3},
    ),
    "foreign event": Fault(
        _add("events", owned("f", "t")),
        InvalidRequest,
        {"streamId": "stream", "payloadStreamId": "t"},
    ),
    "workspace": Fault(
        _add("events", owned("g", "stream", "mallory")),
        InvalidRequest,
        {"streamId": "stream", "workspaceId": "mallory", "ownerWorkspaceId": WORKSPACE},
    ),
    "event twice": Fault(
        _add("events", event("twice"), event("twice")),
        IdempotencyConflict,
        {"field": "eventId", "id": "twice"},
    ),
    "outbox twice": Fault(
        _add("outbox", outbox_message("twice"), outbox_message("twice")),
        IdempotencyConflict,
        {"field": "outboxId", "id": "twice"},
    ),
    "projection twice": Fault(
        _add("projections", projection("twice"), projection("twice")),
        IdempotencyConflict,
        {"field": "projectionId", "id": "twice"},
    ),
    "used events": Fault(
        _add("events", event("used-2"), event("used-1")),
        IdempotencyConflict,
        {"field": "eventId", "id": "used-2"},
    ),
    "used outbox": Fault(
        _add("outbox", outbox_message("sent-2"), outbox_message("sent-1")),
        IdempotencyConflict,
        {"field": "outboxId", "id": "sent-2"},
    ),
    "unknown event": Fault(
        lambda request: request["outbox"].insert(0, outbox_message("new", eventId="?")),
        InvalidRequest,
        {"field": "outbox[0].eventId"},
    ),
    "projections of another": Fault(
        _add("projections", projection("theirs-2"), projection("theirs-1")),
        IdempotencyConflict,
        {"projectionId": "theirs-2", "streamId": "stream"},
    ),
}
NAMES = list(FAULTS)
PAIRS = [
    (first, second)
    for index, first in enumerate(NAMES)
    for second in NAMES[index:]
    if {first, second} != {"invalid", "revision"}  # both are about one field
]


def spoiled(lease: Lease, *names: str) -> dict[str, Any]:
    """A commit that would be fine but for these faults, put in from the last to the first."""
    request = commit_request(
        lease, "new", expectedRevision=3, events=[event("fine")], outbox=[], projections=[]
    )
    for name in dict.fromkeys(names):
        FAULTS[name].spoil(request)
    return request


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{a}, {b}" for a, b in PAIRS])
def test_the_fault_of_the_earlier_step_is_reported_and_nothing_is_left(
    crowded: Crowded, first: str, second: str
) -> None:
    before = contents(crowded.path)
    with expect_refusal(FAULTS[first].kind, **FAULTS[first].details):
        crowded.store.commit(spoiled(crowded.lease, first, second))
    assert contents(crowded.path) == before


def test_without_any_fault_that_commit_is_fine(crowded: Crowded, tmp_path: Path) -> None:
    with raw(crowded.path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(crowded.path, tmp_path / "copy.db")
    with open_store(tmp_path / "copy.db", ManualClock()) as copy:
        assert copy.commit(spoiled(crowded.lease)).revision == 4


def _lenient_engine(path: Path) -> Engine:
    """As an application makes it: foreign keys off, WAL and FULL from the file and by default."""
    return create_engine(url_of(path))


@pytest.mark.parametrize("name", NAMES[2:])
def test_on_an_engine_without_foreign_keys_the_same_is_refused_and_nothing_left(
    crowded: Crowded, name: str
) -> None:
    engine, clock = _lenient_engine(crowded.path), ManualClock()
    before = contents(crowded.path)
    with Session(engine) as session:
        assert session.connection().exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 0
        work = UnitOfWork(session, clock=clock.options().make_clock())
        with expect_refusal(FAULTS[name].kind, **FAULTS[name].details):
            work.commit(spoiled(crowded.lease, name))
        session.commit()
    engine.dispose()
    assert contents(crowded.path) == before


def test_an_outbox_message_may_name_an_older_event_of_any_stream(store: Broker, path: Path) -> None:
    store.commit(commit_request(acquire(store, "a", "s"), "m1", events=[event("old")]))
    request = commit_request(
        acquire(store, "b", "t"),
        "m2",
        events=[],
        outbox=[outbox_message("o", eventId="old")],
    )
    assert store.commit(request).outbox_ids == ("o",)
    assert rows(path, "SELECT outbox_id, event_id FROM outbox") == [("o", "old")]


def test_the_first_message_of_an_unknown_event_is_the_one_that_is_named(store: Broker) -> None:
    messages = [
        outbox_message("o1"),
        outbox_message("o2", eventId="message-event"),
        outbox_message("o3", eventId="unknown"),
        outbox_message("o4", eventId="unknown too"),
    ]
    with expect_refusal(InvalidRequest, field="outbox[2].eventId"):
        store.commit(commit_request(acquire(store), outbox=messages))


def test_an_event_id_names_no_outbox_message(store: Broker) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, events=[event("x")]))
    request = commit_request(lease, "m2", expectedRevision=1, outbox=[outbox_message("x")])
    assert store.commit(request).outbox_ids == ("x",)


def test_a_message_id_that_was_refused_can_be_used(store: Broker) -> None:
    lease = acquire(store)
    with expect_refusal(RevisionConflict, streamId="stream", expectedRevision=5, actualRevision=0):
        store.commit(commit_request(lease, expectedRevision=5))
    assert not store.commit(commit_request(lease)).recovered


def test_a_projection_is_the_streams_own_and_can_be_written_again(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, projections=[projection("p", {"n": 1})]))
    clock.advance(5)
    store.commit(
        commit_request(lease, "m2", expectedRevision=1, projections=[projection("p", [2])])
    )
    assert rows(path, "SELECT * FROM projections") == [("p", "stream", 2, "[2]", 1_005)]


# --- Many, and large ----------------------------------------------------------------------------


def test_a_commit_of_a_thousand_events_keeps_their_order(store: Broker, path: Path) -> None:
    events = [event(f"e{number:04}", number) for number in range(1_000, 0, -1)]
    result = store.commit(commit_request(acquire(store), events=events))
    assert result.event_cursors == tuple(range(1, 1_001))
    stored = rows(path, "SELECT event_id FROM events ORDER BY revision")
    assert [event_id for (event_id,) in stored] == [each["eventId"] for each in events]


def test_an_event_too_large_for_a_page_is_refused_and_one_that_just_fits_can_be_read(
    path: Path,
) -> None:
    clock = ManualClock(wall_ms=2**53 - 1_000_000)
    with open_store(path, clock, page_max_bytes=2_000) as store:
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


def test_a_validated_request_is_the_same_as_its_mapping(store: Broker) -> None:
    request = commit_request(acquire(store), inboxResult=None)
    first = store.commit(CommitRequest.model_validate(request))
    assert store.commit(request).to_json() == first.to_json() | {"recovered": True}


def test_options_of_a_unit_of_work_bound_its_events_too(path: Path, clock: ManualClock) -> None:
    with open_store(path, clock) as store:
        lease = acquire(store)
    engine = _lenient_engine(path)
    with Session(engine) as session:
        work = UnitOfWork(session, Options(page_max_bytes=100))
        with expect_refusal(InvalidRequest, field="events[0].payload"):
            work.commit(commit_request(lease))
    engine.dispose()


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
