"""What a commit needs before it meets the database: validation, stored text, the request's hash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from broker.canonical import Encoded, canonical_of, digest
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
    request has no `inboxResult`. `claims` are those of the runtime events among its events.
    """

    request: CommitRequest
    request_hash: str
    payloads: Sequence[str]
    outbox_payloads: Sequence[str]
    values: Sequence[str]
    reply: str | None
    claims: Sequence[Claim]

    @property
    def outbox(self) -> Sequence[NewOutboxMessage]:
        return self.request.outbox or ()

    @property
    def projections(self) -> Sequence[NewProjection]:
        return self.request.projections or ()

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
    request, encoded = validate_and_encode(CommitRequest, given)
    ends = len(request.events), len(request.events) + len(request.outbox or ())
    last = ends[1] + len(request.projections or ())
    payloads, outbox_payloads = encoded[: ends[0]], encoded[ends[0] : ends[1]]
    values, reply = encoded[ends[1] : last], encoded[last:]

    texts = [payload.stored for payload in payloads]
    _require_readable(request, texts, page_max_bytes)
    return PreparedCommit(
        request,
        digest(_canonical(request, payloads, outbox_payloads, values, reply)),
        texts,
        [payload.stored for payload in outbox_payloads],
        [value.stored for value in values],
        reply[0].stored if reply else None,
        # Judged now, as it is encoded now: the caller may change the payload while a writer waits.
        [claim for event in request.events if (claim := claim_of(event.payload))],
    )


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


def _canonical(
    request: CommitRequest,
    payloads: list[Encoded],
    outbox_payloads: list[Encoded],
    values: list[Encoded],
    reply: list[Encoded],
) -> bytes:
    """Canonical JSON of the request without `lease` and `committedAt`.

    JSON values go in as they were encoded already. Names and ids need no more care than this, for
    names are ASCII and ids hold no lone surrogate.
    """
    form: dict[str, Any] = {
        "messageId": request.message_id,
        "actorId": request.actor_id,
        "streamId": request.stream_id,
        "expectedRevision": request.expected_revision,
        "events": [
            _event_form(event, payload)
            for event, payload in zip(request.events, payloads, strict=True)
        ],
    }
    if request.outbox is not None:
        form["outbox"] = [
            _outbox_form(message, payload)
            for message, payload in zip(request.outbox, outbox_payloads, strict=True)
        ]
    if request.projections is not None:
        form["projections"] = [
            {"projectionId": each.projection_id, "value": value.embeddable}
            for each, value in zip(request.projections, values, strict=True)
        ]
    if request.inbox_result is not ABSENT:
        form["inboxResult"] = reply[0].embeddable
    return canonical_of(form)


def _event_form(event: NewEvent, payload: Encoded) -> dict[str, Any]:
    form: dict[str, Any] = {
        "eventId": event.event_id,
        "eventType": event.event_type,
        "payload": payload.embeddable,
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


def _outbox_form(message: NewOutboxMessage, payload: Encoded) -> dict[str, Any]:
    form: dict[str, Any] = {
        "outboxId": message.outbox_id,
        "destination": message.destination,
        "payload": payload.embeddable,
    }
    if message.event_id is not None:
        form["eventId"] = message.event_id
    if message.available_at is not None:
        form["availableAt"] = message.available_at
    return form
