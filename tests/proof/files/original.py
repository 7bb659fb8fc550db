"""A store that is whole, and all that it answers: what a damaged one is compared with."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from broker import Broker, Options, schema
from broker.cli.apply import _wire
from broker.cli.migrations import drift_of
from broker.errors import BrokerError
from tests.places import Place, url_of
from tests.support import event, outbox_message, runtime_event

NOW = 1_000_000
_TTL_MS = 10**9
STREAMS = 4
_COMMITS = 12

#: What a store says to a question: JSON, or the error that it raised.
Answer = Any
Question = Callable[[Broker], Any]


def options(**others: Any) -> Options:
    """Options on a clock that stands still."""
    return Options(wall_clock=lambda: NOW, nonce=lambda: "nonce", busy_timeout_ms=500, **others)


def fill(place: Place) -> None:
    """Rows in every table, some of them larger than a page, some deleted again."""
    with Broker.open(url_of(place), options=options()) as store:
        for number in range(STREAMS):
            _fill_stream(store, f"s{number}")
        store.acquire_lease(_lease("released"), request_id="released")
        store.release_lease({"actorId": "released", "lease": {"epoch": 1, "nonce": "nonce"}})
        for number in range(STREAMS):
            store.mark_outbox_delivered({"outboxId": f"s{number}-0-o", "deliveredAt": NOW})


def _lease(name: str) -> dict[str, Any]:
    return {"actorId": name, "streamId": name, "holderId": "holder", "ttlMs": _TTL_MS}


def _fill_stream(store: Broker, stream: str) -> None:
    store.acquire_lease(_lease(stream), request_id=f"acquire-{stream}")
    for number in range(_COMMITS):
        store.commit(commit_of(stream, number))


def commit_of(stream: str, number: int) -> dict[str, Any]:
    """The `number`th commit of a stream, of two events."""
    name = f"{stream}-{number}"
    frame = runtime_event(stream, f"w{int(stream[1:]) % 2}", eventId=f"{name}-frame")
    size = 9_000 if number == _COMMITS // 2 else 90 + 7 * number
    return {
        "messageId": name,
        "actorId": stream,
        "lease": {"epoch": 1, "nonce": "nonce"},
        "streamId": stream,
        "expectedRevision": 2 * number,
        "events": [
            event(f"{name}-a", {"text": "x" * size, "number": number}, correlationId=name),
            event(f"{name}-b", frame, eventType="domain.event"),
        ],
        "outbox": [outbox_message(f"{name}-o", eventId=f"{name}-a")],
        "projections": [{"projectionId": f"{stream}-p{number % 3}", "value": {"at": number}}],
        "inboxResult": {"done": name},
    }


def questions() -> dict[str, Question]:
    """All that is asked of a store, by what it is; nothing of it writes anything but the clock."""
    asked: dict[str, Question] = {
        "journal": lambda store: _walked(store.walk_journal({"limit": 5})),
        "pending": lambda store: store.list_pending_outbox({"limit": 1_000}),
        "no lease": lambda store: store.get_lease({"actorId": "nobody"}),
    }
    for number in range(STREAMS):
        asked |= _questions_of_stream(f"s{number}")
    for number in range(2):
        asked |= _questions_of_workspace(f"w{number}")
    return asked


def _questions_of_stream(stream: str) -> dict[str, Question]:
    held = {"actorId": stream, "lease": {"epoch": 1, "nonce": "nonce"}}
    page = held | {"streamId": stream, "afterRevision": 3, "limit": 6}
    asked: dict[str, Question] = {
        f"lease of {stream}": lambda store: store.get_lease({"actorId": stream}),
        f"revision of {stream}": lambda store: store.get_stream_revision({"streamId": stream}),
        f"events of {stream}": lambda store: store.read_events({"streamId": stream}),
        f"walk of {stream}": lambda store: _walked(store.walk_events({"streamId": stream})),
        f"page of {stream}": lambda store: store.read_authorized_events_page(page),
        f"retry of acquire {stream}": lambda store: store.acquire_lease(
            _lease(stream), request_id=f"acquire-{stream}"
        ),
    }
    for number in range(3):
        asked[f"projection {number} of {stream}"] = _projection(f"{stream}-p{number}")
    for number in range(0, _COMMITS, 4):
        asked[f"retry of commit {number} of {stream}"] = _retry(stream, number)
    return asked


def _questions_of_workspace(name: str) -> dict[str, Question]:
    streams = {"workspaceId": name, "prefix": "s", "limit": 99}
    return {
        f"streams of {name}": lambda store: store.list_streams(streams),
        f"read model of {name}": lambda store: store.read_model_events({"workspaceId": name}),
        f"sources of {name}": lambda store: store.read_model_sources({"workspaceId": name}),
    }


def _projection(name: str) -> Question:
    return lambda store: store.read_projection({"projectionId": name})


def _retry(stream: str, number: int) -> Question:
    return lambda store: store.commit(commit_of(stream, number))


def _walked(events: Any) -> list[Any]:
    return list(events)


def answers(store: Broker) -> dict[str, Answer]:
    """Every answer of a store as JSON, or the error in its place."""
    return {name: answer(partial(question, store)) for name, question in questions().items()}


class Found(dict[str, Answer]):
    """Answers by what was asked, errors among them; an answer as it is."""


def answer(ask: Callable[[], Any]) -> Answer:
    """What is answered, as JSON; an error of the store's; or any other error, which is none."""
    try:
        found = ask()
        return found if type(found) is Found else json.loads(json.dumps(_wire(found)))
    except BrokerError as error:
        return error
    except Exception as error:
        return error


def write(store: Broker) -> Any:
    """A commit to each stream and what is read of it then; what the last one answered."""
    said: list[Any] = []
    for number in range(STREAMS):
        stream = f"s{number}"
        said.append(store.commit(commit_of(stream, _COMMITS)))
        said += store.read_events({"streamId": stream, "afterRevision": 2 * _COMMITS})
        said.append(store.read_projection({"projectionId": f"{stream}-p{_COMMITS % 3}"}))
        said += [
            each
            for each in store.list_pending_outbox({"limit": 1_000})
            if each.message_id == f"{stream}-{_COMMITS}"
        ]
    return said


def drift(place: Place) -> list[str]:
    """What the drift check says."""
    return drift_of(url_of(place))


def upgraded(place: Place) -> Any:
    """Where an upgrade leads."""
    return [each.revision for each in schema.upgrade(url_of(place), busy_timeout_ms=500)]
