"""Projections: read by id, written with the stream that they belong to and by no other."""

from __future__ import annotations

from typing import Any

import pytest

from broker import Broker
from broker.errors import CorruptRow, IdempotencyConflict
from broker.messages import StoredProjection
from tests.places import Place, client, contents, rows
from tests.support import ManualClock, acquire, commit_request, expect_refusal


def project(store: Broker, value: Any, message_id: str = "message", **others: Any) -> None:
    """Commit the projection `p` of the stream `stream`."""
    lease = store.get_lease({"actorId": "actor"}) or acquire(store)
    projections = [{"projectionId": "p", "value": value}]
    store.commit(commit_request(lease, message_id, projections=projections) | others)


@pytest.mark.parametrize(
    "value",
    [None, False, 0, -1.5, 2**60, "", "\ud83d", [], {}, {"b": [1, {"a": None}], "a": "é"}],
)
def test_a_projection_is_read_as_it_was_written(store: Broker, value: Any) -> None:
    project(store, value)
    assert store.read_projection({"projectionId": "p"}) == StoredProjection(
        "stream", 1, value, 1_000
    )


@pytest.mark.parametrize("projection_id", ["q", "P", "p ", "stream"])
def test_an_unknown_projection_is_none(store: Broker, projection_id: str) -> None:
    project(store, 1)
    assert store.read_projection({"projectionId": projection_id}) is None


def test_a_projection_carries_the_revision_and_time_of_its_last_commit(
    store: Broker, clock: ManualClock
) -> None:
    project(store, 1)
    clock.advance(20)
    project(store, 2, "m2", expectedRevision=1, events=[])
    assert store.read_projection({"projectionId": "p"}) == StoredProjection("stream", 1, 2, 1_020)


def test_a_replayed_commit_does_not_bring_an_older_value_back(store: Broker) -> None:
    project(store, "old")
    project(store, "new", "m2", expectedRevision=1)
    project(store, "old")
    found = store.read_projection({"projectionId": "p"})
    assert found is not None
    assert (found.value, found.revision) == ("new", 2)


def test_a_projection_of_another_stream_is_refused_with_all_of_its_commit(
    store: Broker, place: Place
) -> None:
    project(store, 1)
    other = acquire(store, "b", "t")
    before = contents(place)
    mine, theirs = {"projectionId": "mine", "value": 1}, {"projectionId": "p", "value": 2}
    with expect_refusal(IdempotencyConflict, projectionId="p", streamId="t"):
        store.commit(commit_request(other, "m2", projections=[mine, theirs]))
    assert contents(place) == before


def test_projections_that_a_commit_does_not_name_stay(store: Broker, place: Place) -> None:
    project(store, 1)
    project(store, 2, "m2", expectedRevision=1, projections=[{"projectionId": "q", "value": 3}])
    assert rows(
        place, "SELECT projection_id, revision, value_json FROM projections ORDER BY 1"
    ) == [
        ("p", 1, "1"),
        ("q", 2, "3"),
    ]


def test_b51_a_projection_and_its_revision_are_of_one_commit(store: Broker, place: Place) -> None:
    project(store, {"seen": 1})
    with expect_refusal(IdempotencyConflict, field="eventId", id="message-event"):
        project(
            store,
            {"seen": 2},
            "m2",
            expectedRevision=1,
            events=[{"eventId": "message-event", "eventType": "t", "payload": 0}],
        )
    assert rows(place, "SELECT revision, value_json FROM projections") == [(1, '{"seen":1}')]


@pytest.mark.parametrize("text", ["", "{", "[" * 5_000])
def test_a_projection_that_cannot_be_read_names_its_row(
    store: Broker, place: Place, text: str
) -> None:
    project(store, 1)
    with client(place) as other:
        other.execute("UPDATE projections SET value_json = ?", (text,))
    with expect_refusal(CorruptRow, table="projections", row="p", column="value_json"):
        store.read_projection({"projectionId": "p"})
    project(store, 2, "m2", expectedRevision=1)
    assert store.read_projection({"projectionId": "p"}) is not None
