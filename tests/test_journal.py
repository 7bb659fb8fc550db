"""The commit: every step judged in its order, all of it or nothing, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork
from broker.errors import (
    BrokerError,
    CorruptRow,
    IdempotencyConflict,
    InvalidRequest,
    RevisionConflict,
    StaleLease,
)
from broker.journal import commit as commit_operation
from broker.messages import CommitRequest, Lease
from broker.options import Options
from broker.transaction import Write
from tests.journal_support import WORKSPACE, owned, projection
from tests.places import Place, PlaceOn, client, contents, rows, url_of
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
    runtime_event,
)

# --- Once (step 2) ------------------------------------------------------------------------------


def test_a_replay_gets_the_recorded_result_although_the_lease_is_gone(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    lease = acquire(store, ttlMs=10)
    request = commit_request(lease)
    first = store.commit(request)
    clock.advance(10)
    acquire(store, "other")
    before, floor_before = contents(place), floor(place)
    clock.advance(10)
    again = store.commit(request)
    assert again.to_json() == first.to_json() | {"recovered": True}
    assert (contents(place), floor(place)) == (before, floor_before)


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
    store: Broker, place: Place
) -> None:
    request = commit_request(acquire(store), events=[event("e", {"a": 1, "b": 2})])
    store.commit(request)
    before = contents(place)
    with expect_refusal(IdempotencyConflict, messageId="message"):
        store.commit(request | {"events": [event("e", {"a": 1, "b": 3})]})
    assert contents(place) == before
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


def test_what_the_inbox_knows_is_found_inside_the_transaction_too_and_leaves_the_clock_alone(
    store: Broker, place: Place, clock: ManualClock
) -> None:
    request = commit_request(acquire(store))
    first = store.commit(request)
    before = contents(place)
    clock.advance(50)
    late = commit_operation(request, store.options)
    assert store._write(lambda: Write(late.apply)).to_json() == first.to_json() | {
        "recovered": True
    }
    assert floor(place) == "1000"
    other = commit_operation(request | {"events": []}, store.options)
    with expect_refusal(IdempotencyConflict, messageId="message"):
        store._write(lambda: Write(other.apply))
    assert contents(place) == before


@pytest.mark.parametrize("text", ["{", "5", "[]", "{}", '{"messageId":"m"}', '{"surprise":1}'])
def test_an_inbox_that_holds_no_result_is_named(store: Broker, place: Place, text: str) -> None:
    request = commit_request(acquire(store))
    store.commit(request)
    with client(place) as other:
        other.execute("UPDATE inbox SET result_json = ?", (text,))
    with expect_refusal(CorruptRow, table="inbox", row="message", column="result_json"):
        store.commit(request)


def test_a_validated_request_is_the_same_as_its_mapping(store: Broker) -> None:
    request = commit_request(acquire(store), inboxResult=None)
    first = store.commit(CommitRequest.model_validate(request))
    assert store.commit(request).to_json() == first.to_json() | {"recovered": True}


# --- Fenced and expected (steps 4 and 5) --------------------------------------------------------


@pytest.mark.parametrize(("expected", "actual"), [(0, 1), (2, 1), (2**53 - 1, 1)])
def test_a_stream_at_another_revision_is_a_conflict(
    store: Broker, place: Place, expected: int, actual: int
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    before = contents(place)
    with expect_refusal(
        RevisionConflict,
        streamId="stream",
        expectedRevision=expected,
        actualRevision=actual,
    ):
        store.commit(commit_request(lease, "m2", expectedRevision=expected))
    assert contents(place) == before


def test_an_unknown_stream_is_at_revision_nought(store: Broker) -> None:
    with expect_refusal(RevisionConflict, streamId="stream", expectedRevision=1, actualRevision=0):
        store.commit(commit_request(acquire(store), expectedRevision=1))


def test_a_holder_that_was_swapped_out_writes_nothing(store: Broker, place: Place) -> None:
    lease = acquire(store)
    store.compare_and_swap_lease(
        {"actorId": "actor", "lease": credential(lease), "ttlMs": 500, "nextHolderId": "n"}
    )
    with expect_refusal(StaleLease, actorId="actor"):
        store.commit(commit_request(lease))
    assert rows(place, "SELECT * FROM streams") == []


# --- Ownership (step 6, section 9) --------------------------------------------------------------

FOREIGN_EVENT = {"streamId": "stream", "payloadStreamId": "t"}


def other_owner(workspace: str, owner: str) -> dict[str, str]:
    return {"streamId": "stream", "workspaceId": workspace, "ownerWorkspaceId": owner}


def owner(place: Place, stream: str = "stream") -> str | None:
    ((found,),) = rows(place, "SELECT workspace_id FROM streams WHERE stream_id = ?", stream)
    return None if found is None else str(found)


def test_the_first_runtime_event_settles_the_owner_for_good(store: Broker, place: Place) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    assert owner(place) is None
    store.commit(commit_request(lease, "m2", expectedRevision=1, events=[owned("r", "stream")]))
    assert owner(place) == WORKSPACE
    store.commit(commit_request(lease, "m3", expectedRevision=2))
    assert owner(place) == WORKSPACE


def test_a_runtime_event_of_another_stream_is_refused(store: Broker, place: Place) -> None:
    lease = acquire(store)
    before = contents(place)
    with expect_refusal(InvalidRequest, **FOREIGN_EVENT):
        store.commit(commit_request(lease, events=[owned("r", "t")]))
    assert contents(place) == before


def test_a_runtime_event_of_another_workspace_is_refused(store: Broker) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease, events=[owned("r", "stream")]))
    with expect_refusal(InvalidRequest, **other_owner("mallory", WORKSPACE)):
        store.commit(
            commit_request(
                lease, "m2", expectedRevision=1, events=[owned("r2", "stream", "mallory")]
            )
        )


def test_the_first_event_of_a_commit_settles_the_owner_for_the_rest(
    store: Broker, place: Place
) -> None:
    lease = acquire(store)
    events = [event("x"), owned("a", "stream", "first"), owned("b", "stream", "second")]
    with expect_refusal(InvalidRequest, **other_owner("second", "first")):
        store.commit(commit_request(lease, events=events))
    assert rows(place, "SELECT * FROM streams") == []


def test_each_event_is_judged_by_stream_before_owner_and_in_order(store: Broker) -> None:
    lease = acquire(store)
    first, foreign = owned("a", "stream", "first"), owned("b", "t", "second")
    with expect_refusal(InvalidRequest, **FOREIGN_EVENT):
        store.commit(commit_request(lease, events=[first, foreign]))
    second = owned("c", "stream", "second")
    with expect_refusal(InvalidRequest, **other_owner("second", "first")):
        store.commit(commit_request(lease, events=[first, second, foreign]))


def test_what_is_no_runtime_event_is_nobodys_whatever_it_says(store: Broker, place: Place) -> None:
    payload = runtime_event("t", "mallory", sequence=0)
    store.commit(commit_request(acquire(store), events=[event("x", payload)]))
    assert owner(place) is None


# --- Used ids (step 7) --------------------------------------------------------------------------


class Crowded(NamedTuple):
    """A store in which much is used already."""

    place: Place
    store: Broker
    lease: Lease


@contextmanager
def crowded_store(place: Place) -> Iterator[Crowded]:
    """A stream of an owner at revision 3, a stream elsewhere."""
    with open_store(place, ManualClock()) as store:
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
        yield Crowded(place, store, lease)


@pytest.fixture(scope="module")
def crowded(backend: str, place_on: PlaceOn) -> Iterator[Crowded]:
    """A store for many tests; refusals do not change it."""
    with place_on(backend) as place, crowded_store(place) as made:
        yield made


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
        FOREIGN_EVENT,
    ),
    "workspace": Fault(
        _add("events", owned("g", "stream", "mallory")),
        InvalidRequest,
        other_owner("mallory", WORKSPACE),
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
    before = contents(crowded.place)
    with expect_refusal(FAULTS[first].kind, **FAULTS[first].details):
        crowded.store.commit(spoiled(crowded.lease, first, second))
    assert contents(crowded.place) == before


def test_without_any_fault_that_commit_is_fine(place: Place) -> None:
    with crowded_store(place) as fresh:
        assert fresh.store.commit(spoiled(fresh.lease)).revision == 4


def _lenient_engine(place: Place) -> Engine:
    """As an application makes it: on SQLite without foreign keys, WAL from the file and FULL."""
    return create_engine(url_of(place))


@pytest.mark.parametrize("name", NAMES[2:])
def test_on_an_engine_of_the_applications_the_same_is_refused_and_nothing_left(
    crowded: Crowded, name: str
) -> None:
    engine, clock = _lenient_engine(crowded.place), ManualClock()
    before = contents(crowded.place)
    with Session(engine) as session:
        work = UnitOfWork(session, clock=clock.options().make_clock())
        with expect_refusal(FAULTS[name].kind, **FAULTS[name].details):
            work.commit(spoiled(crowded.lease, name))
        session.commit()
    engine.dispose()
    assert contents(crowded.place) == before


def test_the_first_message_of_an_unknown_event_is_the_one_that_is_named(store: Broker) -> None:
    messages = [
        outbox_message("o1"),
        outbox_message("o2", eventId="message-event"),
        outbox_message("o3", eventId="unknown"),
        outbox_message("o4", eventId="unknown too"),
    ]
    with expect_refusal(InvalidRequest, field="outbox[2].eventId"):
        store.commit(commit_request(acquire(store), outbox=messages))


def test_a_message_id_that_was_refused_can_be_used(store: Broker) -> None:
    lease = acquire(store)
    with expect_refusal(RevisionConflict, streamId="stream", expectedRevision=5, actualRevision=0):
        store.commit(commit_request(lease, expectedRevision=5))
    assert not store.commit(commit_request(lease)).recovered


def test_options_of_a_unit_of_work_bound_its_events_too(place: Place, clock: ManualClock) -> None:
    with open_store(place, clock) as store:
        lease = acquire(store)
    engine = _lenient_engine(place)
    with Session(engine) as session:
        work = UnitOfWork(session, Options(page_max_bytes=100))
        with expect_refusal(InvalidRequest, field="events[0].payload"):
            work.commit(commit_request(lease))
    engine.dispose()
