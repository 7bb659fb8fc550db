"""How the rows of commits come into the tables: any text through arrays, many events by COPY."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork
from broker.errors import IdempotencyConflict, InvalidRequest, RevisionConflict
from broker.postgresql.rows import MOST_IN_A_STATEMENT, array
from tests.places import PostgresPlace, contents, rows
from tests.postgresql.support_failures import in_use, many_events
from tests.support import ManualClock, acquire, commit_request, event, messages, outbox_message

TEXTS = [
    "",
    "NULL",
    "null",
    '"',
    '\\"',
    "\\",
    "\\\\",
    "\\N",
    "'",
    "''; DROP TABLE events; --",
    "{}",
    "{1,2}",
    "a,b",
    " leading and trailing ",
    "\t\r\n\v\f",
    "%s %% %(x)s $1 :name ?",
    "ä ß é",
    "\U0001f40d \U0010ffff",
    "\x01\x7f\x80\ufeff\uffff",
    "[1:1]={x}",
]
SIZES = [1, MOST_IN_A_STATEMENT, MOST_IN_A_STATEMENT + 1]


@pytest.mark.parametrize("texts", [TEXTS, [None], [None, "", None], [], ["NULL", None]])
def test_an_array_is_what_the_server_reads_from_its_text(
    place: PostgresPlace, texts: list[str | None]
) -> None:
    assert rows(place, "SELECT CAST(%s AS text[])", array(texts)) == [(texts,)]


def test_an_array_of_integers(place: PostgresPlace) -> None:
    numbers = [0, -1, 2**53 - 1, None, 2**63 - 1, -(2**63)]
    assert rows(place, "SELECT CAST(%s AS bigint[])", array(numbers)) == [(numbers,)]


IDS = [text for text in TEXTS if text and not text.startswith("\x01")]


def committed(count: int) -> dict[str, Any]:
    """What has every kind of text in every column that takes any."""
    ids = IDS + [f"plain-{number}" for number in range(count)]
    return {
        "events": [
            event(
                each,
                {"text": [each, *TEXTS], "at": number},
                eventType=each,
                correlationId=each,
                causationId=each,
                traceId=each,
            )
            for number, each in enumerate(ids[:count])
        ],
        "outbox": [outbox_message(each, destination=each, payload=each) for each in IDS],
        "projections": [{"projectionId": each, "value": [each, None]} for each in IDS],
    }


@pytest.mark.parametrize("count", [len(TEXTS), *SIZES])
def test_any_text_is_stored_as_it_was_given(
    store: Broker, place: PostgresPlace, count: int
) -> None:
    stream = "'{\"\\ \U0001f40d %s"
    lease = acquire(store, stream, stream)
    given = committed(count)
    result = store.commit(commit_request(lease, "\\m{", **given))
    assert result.event_ids == tuple(each["eventId"] for each in given["events"])

    read = store.read_events({"streamId": stream})
    for wanted, found in zip(given["events"], read, strict=True):
        assert (found.event_id, found.event_type) == (wanted["eventId"], wanted["eventType"])
        assert (found.correlation_id, found.causation_id) == (wanted["eventId"],) * 2
        assert (found.trace_id, found.payload) == (wanted["eventId"], wanted["payload"])
    stored = rows(place, "SELECT payload_json FROM events ORDER BY revision")
    assert [json.loads(each) for (each,) in stored] == [each["payload"] for each in given["events"]]
    assert rows(place, 'SELECT count(*), count(DISTINCT "rowid") FROM events') == [(count, count)]
    pending = store.list_pending_outbox()
    assert sorted(each.outbox_id for each in pending) == sorted(IDS)
    for text in IDS:
        projection = store.read_projection({"projectionId": text})
        assert projection is not None
        assert projection.value == [text, None]


@pytest.mark.parametrize("count", SIZES)
def test_absent_values_are_null(store: Broker, place: PostgresPlace, count: int) -> None:
    store.commit(many_events(acquire(store), count))
    nulls = "SELECT count(*) FROM events WHERE correlation_id IS NULL AND causation_id IS NULL AND trace_id IS NULL"
    assert rows(place, nulls) == [(count,)]
    assert rows(place, "SELECT workspace_id FROM streams") == [(None,)]


@pytest.mark.parametrize("count", [*SIZES, 1_000])
def test_cursors_are_those_of_the_result_and_in_the_order_of_revisions(
    store: Broker, place: PostgresPlace, count: int
) -> None:
    result = store.commit(many_events(acquire(store), count))
    found = rows(place, 'SELECT "rowid" FROM events ORDER BY revision')
    assert [cursor for (cursor,) in found] == list(result.event_cursors)
    assert sorted(result.event_cursors) == list(result.event_cursors)
    again = store.commit(many_events(acquire(store, "other", "other"), 1, "other"))
    assert again.event_cursors[0] > result.event_cursors[-1]


# ---------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("count", SIZES)
def test_a_used_event_id_is_named_and_nothing_is_stored(
    store: Broker, place: PostgresPlace, clock: ManualClock, count: int
) -> None:
    lease = acquire(store)
    store.commit(many_events(lease, 1, "used"))
    before = contents(place)
    request = many_events(lease, count, expectedRevision=1)
    request["events"][-1]["eventId"] = "used-0"
    with pytest.raises(IdempotencyConflict) as caught:
        store.commit(request)
    assert caught.value.details == {"field": "eventId", "id": "used-0"}
    assert contents(place) == before
    assert in_use(store) == 0


@pytest.mark.parametrize("count", SIZES)
def test_a_used_outbox_id_is_named_and_nothing_is_stored(
    store: Broker, place: PostgresPlace, count: int
) -> None:
    lease = acquire(store)
    store.commit(many_events(lease, 1, "used", outbox=[outbox_message("out")]))
    before = contents(place)
    request = many_events(lease, count, expectedRevision=1, outbox=[outbox_message("out")])
    with pytest.raises(IdempotencyConflict) as caught:
        store.commit(request)
    assert caught.value.details == {"field": "outboxId", "id": "out"}
    assert contents(place) == before


@pytest.mark.parametrize("count", SIZES)
def test_a_projection_of_another_stream_is_named(
    store: Broker, place: PostgresPlace, count: int
) -> None:
    mine, other = acquire(store), acquire(store, "other", "other")
    value = [{"projectionId": "p", "value": 1}]
    store.commit(many_events(other, 1, "other", projections=value))
    before = contents(place)
    with pytest.raises(IdempotencyConflict) as caught:
        store.commit(many_events(mine, count, projections=value))
    assert caught.value.details == {"projectionId": "p", "streamId": "stream"}
    assert contents(place) == before


@pytest.mark.parametrize("count", SIZES)
def test_an_outbox_message_may_name_an_event_of_the_same_commit_and_no_other(
    store: Broker, place: PostgresPlace, count: int
) -> None:
    lease = acquire(store)
    for named, is_known in (("nowhere", False), (f"many-{count - 1}", True)):
        request = many_events(lease, count, outbox=[outbox_message("out", eventId=named)])
        if is_known:
            assert store.commit(request).revision == count
        else:
            with pytest.raises(InvalidRequest, match="there is no event"):
                store.commit(request)
    assert messages(place) == ["many"]


@pytest.mark.parametrize("count", SIZES)
def test_a_repetition_gets_the_recorded_result(store: Broker, count: int) -> None:
    request = many_events(acquire(store), count)
    first, second = store.commit(request), store.commit(request)
    assert (first.recovered, second.recovered) == (False, True)
    assert first.event_cursors == second.event_cursors


# ----------------------------------------------------------------------------------- in a session


@pytest.mark.parametrize("count", SIZES)
def test_in_a_session_a_refused_commit_leaves_its_transaction_usable(
    store: Broker, place: PostgresPlace, clock: ManualClock, count: int
) -> None:
    with Session(store.engine) as session:
        unit = UnitOfWork(session, clock.options())
        lease = acquire(unit)
        unit.commit(many_events(lease, count, "first"))
        request = many_events(lease, count, "second", expectedRevision=count)
        request["events"][0]["eventId"] = "first-0"
        with pytest.raises(IdempotencyConflict):
            unit.commit(request)
        with pytest.raises(RevisionConflict):
            unit.commit(many_events(lease, count, "third"))
        unit.commit(many_events(lease, count, "fourth", expectedRevision=count))
        session.commit()
    assert messages(place) == ["first", "fourth"]
    assert rows(place, "SELECT count(*), max(revision) FROM events") == [(2 * count,) * 2]
