"""Reads across the streams of a workspace: lists, the read model, its sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from broker.errors import CorruptRow, InvalidRequest
from broker.messages import JournalEvent, ReadModelSource
from broker.reads import _READ_MODEL, _SOURCES, _STREAMS_BETWEEN, _STREAMS_FROM
from tests.places import Place, client, raw
from tests.reads_support import array_bytes, frame, ids, write
from tests.support import (
    ManualClock,
    acquire,
    event,
    expect_refusal,
    open_store,
    query_plan,
    runtime_event,
)

# --- Lists of streams -------------------------------------------------------------------------


def own(store: Broker, *streams: str, workspace: str = "ws") -> None:
    """Give streams an owner."""
    for stream in streams:
        write(store, stream, frame(f"frame of {stream}", stream, workspace))


def listed(store: Broker, prefix: str, **others: Any) -> list[str]:
    request = {"workspaceId": "ws", "prefix": prefix, "limit": 512}
    return store.list_streams(request | others)


def test_b56_a_prefix_is_literal_and_exact(store: Broker) -> None:
    own(store, "a_b/1", "axb/1", "A_B/1", "a_b/2", "a%b/1")
    assert listed(store, "a_b/") == ["a_b/1", "a_b/2"]
    assert listed(store, "a%") == ["a%b/1"]
    assert listed(store, "%") == []
    assert listed(store, "A") == ["A_B/1"]


def test_a_whole_id_is_a_prefix_of_itself(store: Broker) -> None:
    own(store, "s", "s1", "r", "t")
    assert listed(store, "s") == ["s", "s1"]
    assert listed(store, "s1") == ["s1"]
    assert listed(store, "s12") == []


def test_streams_are_in_byte_order_beyond_the_basic_plane_too(store: Broker) -> None:
    streams = ["s/\uffff", "s/\U0001f600", "s/\ue000", "s/\ud7ff", "s/é", "s/z", "s/Z", "s/"]
    own(store, *streams)
    assert listed(store, "s/") == sorted(streams, key=str.encode)
    assert listed(store, "s/")[-1] == "s/\U0001f600"


@pytest.mark.parametrize(
    ("prefix", "inside", "outside"),
    [
        ("a\ud7ff", ["a\ud7ff", "a\ud7ffz", "a\ud7ff\U0010ffff"], ["a\ue000", "a\ud7fe"]),
        ("\U0010ffff", ["\U0010ffff", "\U0010ffff\U0010ffff"], ["\U0010fffe", "\uffff"]),
        ("a\U0010ffff", ["a\U0010ffff", "a\U0010ffff\U0010ffffz"], ["a\U0010fffe", "b"]),
        ("\U0010ffff\U0010ffff", ["\U0010ffff\U0010ffff"], ["\U0010ffff"]),
        ("\x7f", ["\x7f", "\x7f\x7f"], ["\x80", "~"]),
        ("\uffff", ["\uffff", "\uffffa"], ["\U00010000", "\ufffe"]),
        ("it's", ["it's", "it's%"], ["it''s", "its"]),
    ],
    ids=ascii,
)
def test_a_prefix_ends_where_its_last_character_does(
    store: Broker, prefix: str, inside: list[str], outside: list[str]
) -> None:
    own(store, *inside, *outside)
    assert listed(store, prefix) == inside


def test_a_list_goes_on_after_a_stream_whether_that_is_in_it_or_not(store: Broker) -> None:
    own(store, "a1", "a2", "a3", "b")
    for after, rest in (
        (None, ["a1", "a2", "a3"]),
        ("", ["a1", "a2", "a3"]),
        ("Z", ["a1", "a2", "a3"]),
        ("a1", ["a2", "a3"]),
        ("a1x", ["a2", "a3"]),
        ("a3", []),
        ("zzz", []),
        ("\1", ["a1", "a2", "a3"]),
    ):
        assert listed(store, "a", afterStreamId=after) == rest


def test_a_list_of_streams_keeps_its_limit_and_can_be_paged(store: Broker) -> None:
    streams = [f"s{number}" for number in range(7)]
    own(store, *streams)
    seen: list[str] = []
    while page := listed(store, "s", limit=3, afterStreamId=seen[-1] if seen else None):
        assert len(page) <= 3
        seen += page
    assert seen == streams


def test_only_the_workspaces_own_streams_are_listed(store: Broker) -> None:
    own(store, "s1")
    own(store, "s2", workspace="other")
    own(store, "s3", workspace="WS")
    write(store, "s4", event("nobody's"))
    assert listed(store, "s") == ["s1"]
    assert listed(store, "s", workspaceId="other") == ["s2"]


@pytest.mark.parametrize("statement", [_STREAMS_FROM, _STREAMS_BETWEEN])
def test_a_list_of_streams_is_found_in_the_index_in_order(
    store: Broker, path: Path, statement: Any
) -> None:
    (step,) = query_plan(path, statement)
    assert "USING COVERING INDEX streams_workspace_stream_idx (workspace_id=?" in step


# --- The read model ---------------------------------------------------------------------------


def model(store: Broker, workspace: str = "ws", **request: Any) -> list[JournalEvent]:
    return store.read_model_events({"workspaceId": workspace} | request)


def test_the_read_model_is_in_cursor_order_across_streams(store: Broker) -> None:
    write(store, "z", frame("f1", "z"), event("note"))
    write(store, "a", frame("f2", "a"))
    write(store, "z", frame("f3", "z"))
    found = model(store)
    assert [(each.event_id, each.cursor) for each in found] == [("f1", 1), ("f2", 3), ("f3", 4)]
    assert found[0].to_json()["payload"] == runtime_event("z", "ws")
    assert ids(model(store, afterCursor=1)) == ["f2", "f3"]
    assert ids(model(store, afterCursor=3, limit=1)) == ["f3"]
    assert model(store, afterCursor=4) == []


@pytest.mark.parametrize("limit", [1, 128, None, 512])
def test_the_read_model_keeps_its_limit_which_is_128_by_default(
    store: Broker, limit: int | None
) -> None:
    write(store, "s", *[frame(f"f{number}", "s") for number in range(600)])
    request: dict[str, Any] = {} if limit is None else {"limit": limit}
    assert len(model(store, **request)) == (limit or 128)


def _with(changes: dict[str, Any], **actor: Any) -> dict[str, Any]:
    payload = runtime_event("s", "ws") | changes
    payload["actor"] = payload["actor"] | actor
    return payload


NOT_IN_THE_MODEL: dict[str, dict[str, Any]] = {
    "other column": event("x", _with({}), eventType="note"),
    "column in capitals": event("x", _with({}), eventType="Domain.Event"),
    "other kind": event("x", _with({"kind": "tool.started"}), eventType="domain.event"),
    "kind of no text": event("x", _with({"kind": ["domain.event"]}), eventType="domain.event"),
    "other event type": event("x", _with({"eventType": "v1"}), eventType="domain.event"),
    "other workspace": event(
        "x", _with({"sequence": 0}, workspaceId="other"), eventType="domain.event"
    ),
    "workspace of no text": event("x", _with({}, workspaceId=["ws"]), eventType="domain.event"),
    "no object": event("x", "domain.event", eventType="domain.event"),
    "null": event("x", None, eventType="domain.event"),
}


@pytest.mark.parametrize("other", NOT_IN_THE_MODEL.values(), ids=NOT_IN_THE_MODEL)
def test_this_is_not_in_the_read_model(store: Broker, other: dict[str, Any]) -> None:
    write(store, "s", frame("f", "s"), other)
    assert ids(model(store)) == ["f"]


def test_an_event_of_the_shape_counts_even_if_it_is_no_runtime_event(store: Broker) -> None:
    loose = event("x", _with({"sequence": 0}), eventType="domain.event")
    write(store, "s", loose, frame("f", "s"))
    assert ids(model(store)) == ["x", "f"]


def test_an_event_in_a_stream_that_the_workspace_does_not_own_stays_out(store: Broker) -> None:
    loose = event("x", _with({"sequence": 0}), eventType="domain.event")
    write(store, "s", loose)
    write(store, "t", frame("f", "t", "other"), loose | {"eventId": "y"})
    assert model(store) == []
    assert ids(model(store, "other")) == ["f"]


@pytest.mark.parametrize("text", ['{"actor":', "", "NaN", '{"a":1} x'])
def test_b26_malformed_rows_of_another_writer_do_not_break_the_read_model(
    store: Broker, place: Place, text: str
) -> None:
    write(store, "s", frame("f1", "s"))
    with client(place) as other:
        other.execute(
            "INSERT INTO events (event_id, message_id, stream_id, revision, event_type,"
            " payload_json, producer_epoch, occurred_at)"
            " VALUES ('bad', 's 0', 's', 2, 'domain.event', ?, 1, 1)",
            (text,),
        )
        other.execute("UPDATE streams SET revision = 2 WHERE stream_id = 's'")
    write(store, "s", frame("f2", "s"))
    assert ids(model(store)) == ["f1", "f2"]
    assert store.read_model_sources({"workspaceId": "ws"}) == [ReadModelSource("s", 1, active=True)]
    with expect_refusal(CorruptRow, table="events", row="bad", column="payload_json"):
        store.read_events({"streamId": "s"})


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_read_model_keeps_its_budget_to_the_byte(
    place: Place, clock: ManualClock, count: int
) -> None:
    frames = [frame(f"f{number}", "s", payload="é" * number) for number in range(12)]
    with open_store(place, clock) as store:
        write(store, "s", *frames)
        everything = model(store, afterCursor=8)
    budget = array_bytes(everything[:count])
    for spare, found in ((0, count), (-1, max(count - 1, 1))):
        with open_store(place, clock, read_model_max_bytes=budget + spare) as store:
            assert model(store, afterCursor=8) == everything[:found]


def test_a_first_event_over_the_budget_comes_alone_so_that_a_reader_gets_on(
    store: Broker,
) -> None:
    large = frame("large", "s", payload="x" * 600_000)
    write(store, "s", frame("f1", "s"), large, frame("f2", "s"), frame("f3", "s"))
    assert ids(model(store)) == ["f1"]
    assert ids(model(store, afterCursor=1)) == ["large"]
    assert ids(model(store, afterCursor=2)) == ["f2", "f3"]


def test_the_event_type_of_the_read_model_can_be_chosen(place: Place, clock: ManualClock) -> None:
    with open_store(place, clock, read_model_event_type="it's v3") as store:
        write(store, "s", frame("f2", "s"), frame("f3", "s", eventType="it's v3"))
        assert ids(model(store)) == ["f3"]
        write(store, "t", frame("g2", "t"))
        assert store.read_model_sources({"workspaceId": "ws"}) == [
            ReadModelSource("s", 1, active=True)
        ]


@pytest.mark.parametrize("analyze", [False, True])
def test_the_read_model_is_found_in_its_index_in_order(
    store: Broker, path: Path, analyze: bool
) -> None:
    for workspace in ("ws", "other"):
        stream = f"stream of {workspace}"
        frames = [frame(f"{workspace} {number}", stream, workspace) for number in range(200)]
        write(store, stream, *frames, *[event(f"{workspace} note {n}") for n in range(200)])
    if analyze:
        with raw(path) as other:
            other.execute("ANALYZE")
    steps = query_plan(path, _READ_MODEL)
    assert any(step.startswith("SEARCH events USING INDEX events_read_model_idx") for step in steps)
    assert not any("SCAN" in step or "TEMP B-TREE" in step for step in steps), steps


# --- Sources ----------------------------------------------------------------------------------


def sources(store: Broker, **request: Any) -> list[ReadModelSource]:
    return store.read_model_sources({"workspaceId": "ws"} | request)


def test_a_source_tells_the_epoch_of_its_lease_and_whether_it_is_live(
    store: Broker, clock: ManualClock
) -> None:
    own(store, "b", "a")
    assert sources(store) == [
        ReadModelSource("a", 1, active=True),
        ReadModelSource("b", 1, active=True),
    ]
    clock.advance(60_000)
    acquire(store, "writer of b", "b")
    assert sources(store) == [
        ReadModelSource("a", 1, active=False),
        ReadModelSource("b", 2, active=True),
    ]


def test_a_source_that_its_writer_has_left_keeps_its_epoch_and_is_not_active(
    store: Broker, clock: ManualClock
) -> None:
    own(store, "a")
    clock.advance(60_000)
    acquire(store, "writer of a", "elsewhere")
    assert sources(store) == [ReadModelSource("a", 1, active=False)]


def test_a_source_is_live_until_the_very_millisecond(store: Broker, clock: ManualClock) -> None:
    own(store, "a")
    clock.advance(59_999)
    assert sources(store) == [ReadModelSource("a", 1, active=True)]
    clock.advance(1)
    assert sources(store) == [ReadModelSource("a", 1, active=False)]


def test_streams_without_read_model_events_or_of_others_are_no_sources(store: Broker) -> None:
    own(store, "a")
    own(store, "theirs", workspace="other")
    write(store, "b", event("r", _with({"streamId": "b"}), eventType="note"))
    write(store, "c", event("n"))
    assert [source.stream_id for source in sources(store)] == ["a"]


def test_sources_are_paged_in_byte_order(store: Broker) -> None:
    streams = ["\uffff", "\U0001f600", "a", "Z", "é"]
    own(store, *streams)
    seen: list[str] = []
    while page := sources(store, limit=2, afterStreamId=seen[-1] if seen else ""):
        seen += [source.stream_id for source in page]
    assert seen == sorted(streams, key=str.encode)


def test_sources_are_found_without_sorting(store: Broker, path: Path) -> None:
    own(store, "a")
    steps = query_plan(path, _SOURCES)
    assert not any("SCAN" in step or "TEMP B-TREE" in step for step in steps), steps
    assert "streams_workspace_stream_idx" in steps[0]


@pytest.mark.parametrize(
    ("request_", "details"),
    [
        ({"limit": 513}, {"limit": 513}),
        ({"limit": 0}, {"field": "limit"}),
        ({"workspaceId": ""}, {"field": "workspaceId"}),
    ],
)
def test_a_bad_request_for_the_read_model_is_refused(
    store: Broker, request_: dict[str, Any], details: dict[str, Any]
) -> None:
    for read in (store.read_model_events, store.read_model_sources):
        with expect_refusal(InvalidRequest, **details):
            read({"workspaceId": "ws"} | request_)
    with expect_refusal(InvalidRequest, field="afterCursor"):
        store.read_model_events({"workspaceId": "ws", "afterCursor": -1})
    with expect_refusal(InvalidRequest):
        store.read_model_sources({"workspaceId": "ws", "afterStreamId": "\0"})
