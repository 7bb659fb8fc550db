"""Text that would be SQL, a placeholder or a format is text: it comes back as it was given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from broker import Broker, Options, UnitOfWork
from broker.messages import REQUESTS, json_schemas
from tests.places import Place, contents, url_of
from tests.support import TTL_MS, ManualClock, open_store, runtime_event

ATTACKS = [
    "'; DROP TABLE events; --",
    '"; DROP TABLE events; --',
    "' OR '1'='1",
    "\\'; DROP TABLE events; --",
    "x'); COMMIT; DELETE FROM inbox; --",
    "$guard$; DROP TABLE events; $guard$",
    "? :id $1 %s %(id)s %% {schema} {0} {0.__class__}",
    "%_*?[a]\\%",
    "/* */ -- \t\n\r\x0b",
    '{"a": 1}\', 1) --',
    "\u2019\uff07\u02bc; \U0001d11e",
]


def everything(store: Any, text: str) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    """Each operation with `text` in each of its fields that is one, and in what is stored."""
    lease: Any = None
    acquired = {"actorId": text, "streamId": text, "holderId": text, "ttlMs": TTL_MS}
    yield "acquire_lease", acquired, text
    lease = store.get_lease({"actorId": text})
    shown = {"actorId": text, "lease": {"epoch": lease.epoch, "nonce": lease.nonce}}
    value = {text: [text]}
    event = {"eventId": text, "eventType": text, "payload": value}
    others = {"correlationId": text, "causationId": text, "traceId": text}
    frame = runtime_event(text, text, eventId=f"{text}2")
    runtime = {"eventId": f"{text}2", "eventType": "domain.event", "payload": frame}
    outbox = {"outboxId": text, "destination": text, "payload": value, "eventId": text}
    yield (
        "commit",
        {
            **shown,
            "messageId": text,
            "streamId": text,
            "expectedRevision": 0,
            "events": [event | others, runtime],
            "outbox": [outbox],
            "projections": [{"projectionId": text, "value": value}],
            "inboxResult": value,
        },
        None,
    )
    stream = {"streamId": text}
    yield "get_stream_revision", stream, None
    yield "read_events", stream, None
    yield "read_authorized_events", stream | {"authorization": shown}, None
    yield "read_authorized_events_page", stream | shown | {"afterRevision": 0, "limit": 9}, None
    yield "list_streams", {"workspaceId": text, "prefix": text, "limit": 9}, None
    yield (
        "list_streams",
        {"workspaceId": text, "prefix": text, "afterStreamId": text, "limit": 9},
        None,
    )
    yield "read_journal", {}, None
    yield "read_model_events", {"workspaceId": text}, None
    yield "read_model_sources", {"workspaceId": text}, None
    yield "read_model_sources", {"workspaceId": text, "afterStreamId": text}, None
    yield "read_projection", {"projectionId": text}, None
    yield "list_pending_outbox", {}, None
    yield "mark_outbox_delivered", {"outboxId": text}, None
    yield "heartbeat_lease", shown | {"ttlMs": TTL_MS}, f"{text}2"
    yield "compare_and_swap_lease", shown | {"ttlMs": TTL_MS, "nextHolderId": text}, f"{text}3"
    swapped = store.get_lease({"actorId": text})
    shown = {"actorId": text, "lease": {"epoch": swapped.epoch, "nonce": swapped.nonce}}
    yield "release_lease", shown, f"{text}4"
    yield "takeover_lease", acquired, f"{text}5"


def answers(store: Any, text: str) -> dict[str, Any]:
    """What the operations answer, those that come twice by their last answer."""
    answered = {}
    for name, request, request_id in everything(store, text):
        more = {} if request_id is None else {"request_id": request_id}
        answered[name] = getattr(store, name)(request, **more)
    return answered


def assert_it_was_text(answered: dict[str, Any], text: str) -> None:
    commit, events = answered["commit"], answered["read_events"]
    assert (commit.message_id, commit.event_ids) == (text, (text, f"{text}2"))
    assert commit.reply == {text: [text]}
    assert [(each.event_id, each.trace_id) for each in events] == [(text, text), (f"{text}2", None)]
    assert events[0].payload == {text: [text]}
    assert answered["read_authorized_events"] == events
    assert answered["get_stream_revision"] == 2
    assert answered["list_streams"] == []  # after itself
    assert [each.event_id for each in answered["read_model_events"]] == [f"{text}2"]
    assert answered["read_projection"].value == {text: [text]}
    assert text in {each.destination for each in answered["list_pending_outbox"]}
    assert answered["takeover_lease"].holder_id == text


def assert_nothing_else_happened(place: Place) -> None:
    counted = {name: len(rows) for name, rows in contents(place).items()}
    assert counted["events"] == 2 * len(ATTACKS)
    assert counted["inbox"] == counted["outbox"] == counted["projections"] == len(ATTACKS)
    assert counted["mutation_receipts"] == 5 * len(ATTACKS)


def test_a_store_keeps_it_as_text(store: Broker, place: Place) -> None:
    tables = store.table_names()
    for text in ATTACKS:
        assert_it_was_text(answers(store, text), text)
    assert store.table_names() == tables
    assert_nothing_else_happened(place)


class Units:
    """Does each operation by a unit of work in a transaction of its own."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine, self._options = engine, options

    def __getattr__(self, name: str) -> Any:
        def operate(*given: Any, **more: Any) -> Any:
            with Session(self._engine) as session, session.begin():
                return getattr(UnitOfWork(session, self._options), name)(*given, **more)

        return operate


def test_a_unit_of_work_keeps_it_as_text(place: Place, clock: ManualClock) -> None:
    engine = create_engine(url_of(place))
    for text in ATTACKS:
        assert_it_was_text(answers(Units(engine, clock.options()), text), text)
    engine.dispose()
    assert_nothing_else_happened(place)


def test_the_type_of_read_model_events_is_text(place: Place, clock: ManualClock) -> None:
    for text in ATTACKS:
        with open_store(place, clock, read_model_event_type=text) as store:
            assert list(store.read_model_events({"workspaceId": text})) == []
            assert store.options.read_model_event_type == text


def test_every_field_of_text_was_tried(store: Broker, path: Path) -> None:
    assert path.exists()  # on one backend, for the fields are the same
    schemas = json_schemas()
    tried = {
        field for _, request, _ in performed(store, "text") for field in _texts_in(request, "")
    }
    assert {
        field for kind in REQUESTS for field in _text_fields(schemas[kind.__name__])
    } - tried == {"nonce"}


def performed(store: Broker, text: str) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    for name, request, request_id in everything(store, text):
        more = {} if request_id is None else {"request_id": request_id}
        getattr(store, name)(request, **more)
        yield name, request, request_id


def _texts_in(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts_in(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner, name)
    elif value == "text":
        yield name


def _text_fields(schema: dict[str, Any]) -> set[str]:
    parts = [schema, *schema.get("$defs", {}).values()]
    return {
        name
        for part in parts
        for name, field in part.get("properties", {}).items()
        if "string" in str(field)
    }
