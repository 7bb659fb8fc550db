"""What a commit needs before it meets the database: validation, stored text, the request's hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from broker.canonical import canonical_of, digest
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import IdempotencyConflict, InvalidRequest
from broker.events import MOST_EVENT_BYTES_BESIDES_PAYLOAD, event_bytes
from broker.messages import (
    ABSENT,
    CommitRequest,
    Given,
    NewEvent,
    NewOutboxMessage,
    NewProjection,
    validate_and_encode,
)
from broker.runtime_events import Claim, claim_of


class PreparedCommit(NamedTuple):
    """A valid commit request with everything that can be worked out without the database.

    The texts are stored JSON, in the order of the request's lists; `reply` is None where the
    request has no `inboxResult`. `references` are the events of other commits that its outbox
    messages name, each with the index of the message. `claims` are those of the runtime events
    among its events.
    """

    request: CommitRequest
    request_hash: str
    payloads: Sequence[str]
    outbox: Sequence[NewOutboxMessage]
    outbox_payloads: Sequence[str]
    references: Sequence[tuple[int, str]]
    projections: Sequence[NewProjection]
    values: Sequence[str]
    reply: str | None
    claims: Sequence[Claim]

    def require_unique_ids(self) -> None:
        """Raise IdempotencyConflict when an id stands twice in the request."""
        if len(self.request.events) > 1:
            _require_unique("eventId", [event.event_id for event in self.request.events])
        if len(self.outbox) > 1:
            _require_unique("outboxId", [message.outbox_id for message in self.outbox])
        if len(self.projections) > 1:
            _require_unique("projectionId", [each.projection_id for each in self.projections])


def prepare(given: Given[CommitRequest], page_max_bytes: int) -> PreparedCommit:
    """Validate and encode a commit; raises InvalidRequest.

    An event that would not fit into a page of `page_max_bytes` is refused: no reader could get it.
    A time that is not known yet counts as long as any can be.
    """
    request, texts, embeddable = validate_and_encode(CommitRequest, given)
    events, outbox, projections = request.events, request.outbox or (), request.projections or ()
    outbox_at = len(events)
    projections_at = outbox_at + len(outbox)
    reply_at = projections_at + len(projections)

    payloads = texts[:outbox_at]
    _require_readable(request, payloads, page_max_bytes)
    return PreparedCommit(
        request,
        digest(_canonical(request, iter(embeddable))),
        payloads,
        outbox,
        texts[outbox_at:projections_at],
        _references(events, outbox),
        projections,
        texts[projections_at:reply_at],
        texts[reply_at] if reply_at < len(texts) else None,
        # Judged now, as it is encoded now: the caller may change the payload while a writer waits.
        [claim for event in events if (claim := claim_of(event.payload))],
    )


def _references(
    events: Sequence[NewEvent], outbox: Sequence[NewOutboxMessage]
) -> Sequence[tuple[int, str]]:
    if not outbox:
        return ()
    own = {event.event_id for event in events}
    return [
        (index, event_id)
        for index, message in enumerate(outbox)
        if (event_id := message.event_id) is not None and event_id not in own
    ]


def _require_readable(request: CommitRequest, texts: list[str], page_max_bytes: int) -> None:
    for index, text in enumerate(texts):
        # Four bytes a character at the most: nearly every event is let through by this line.
        if 4 * len(text) + MOST_EVENT_BYTES_BESIDES_PAYLOAD <= page_max_bytes:
            continue
        event = request.events[index]
        size = event_bytes(
            event.event_id,
            request.message_id,
            request.stream_id,
            request.expected_revision + index + 1,
            event.event_type,
            text,
            request.lease.epoch,
            MAX_SAFE_INTEGER if event.occurred_at is None else event.occurred_at,
            event.correlation_id,
            event.causation_id,
            event.trace_id,
        )
        if size + len("[]") > page_max_bytes:
            raise InvalidRequest(
                f"events[{index}].payload: the event has {size} bytes as JSON, more than fit into"
                f" a page of {page_max_bytes}",
                field=f"events[{index}].payload",
            )


def _require_unique(field: str, ids: list[str]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            raise IdempotencyConflict(
                f"{field} {each!r} stands twice in the request", field=field, id=each
            )
        seen.add(each)


# --------------------------------------------------------------------------- the hash of a request


def _canonical(request: CommitRequest, values: Iterator[Any]) -> bytes:
    """Canonical JSON of the request without `lease` and `committedAt`.

    Its JSON values go in as `values` has them, encoded already, in the order of the fields. Names
    and ids need no more care than this, for names are ASCII and ids hold no lone surrogate.
    """
    form: dict[str, Any] = {
        "messageId": request.message_id,
        "actorId": request.actor_id,
        "streamId": request.stream_id,
        "expectedRevision": request.expected_revision,
        "events": list(map(_event_form, request.events, values)),
    }
    if request.outbox is not None:
        form["outbox"] = list(map(_outbox_form, request.outbox, values))
    if request.projections is not None:
        form["projections"] = list(map(_projection_form, request.projections, values))
    if request.inbox_result is not ABSENT:
        form["inboxResult"] = next(values)
    return canonical_of(form)


def _event_form(event: NewEvent, payload: Any) -> dict[str, Any]:
    form: dict[str, Any] = {
        "eventId": event.event_id,
        "eventType": event.event_type,
        "payload": payload,
    }
    if event.occurred_at is not None:
        form["occurredAt"] = event.occurred_at
    if event.correlation_id is not None:
        form["correlationId"] = event.correlation_id
    if event.causation_id is not None:
        form["causationId"] = event.causation_id
    if event.trace_id is not None:
        form["traceId"] = event.trace_id
    return form


def _outbox_form(message: NewOutboxMessage, payload: Any) -> dict[str, Any]:
    form: dict[str, Any] = {
        "outboxId": message.outbox_id,
        "destination": message.destination,
        "payload": payload,
    }
    if message.event_id is not None:
        form["eventId"] = message.event_id
    if message.available_at is not None:
        form["availableAt"] = message.available_at
    return form


def _projection_form(projection: NewProjection, value: Any) -> dict[str, Any]:
    return {"projectionId": projection.projection_id, "value": value}
