"""What a commit needs before it meets the database: validation, stored text, the request's hash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from broker.canonical import canonical_of, digest
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import IdempotencyConflict, InvalidRequest
from broker.events import MOST_EVENT_BYTES_BESIDES_PAYLOAD, event_bytes
from broker.messages import (
    ABSENT,
    CommitRequest,
    Given,
    LeaseCredential,
    validate_and_encode,
)
from broker.runtime_events import Claim, claim_of

# A Pydantic object looks each attribute up in its class first, its dictionary does not: for a commit
# that is a tenth of its preparation.
_event_of = itemgetter(
    "event_id",
    "event_type",
    "occurred_at",
    "correlation_id",
    "causation_id",
    "trace_id",
    "payload",
)
_message_of = itemgetter("outbox_id", "destination", "event_id", "available_at")
_projection_id_of = itemgetter("projection_id")

#: `event_id, event_type, occurred_at, correlation_id, causation_id, trace_id, payload` of an event.
EventParts: TypeAlias = tuple[str, str, int | None, str | None, str | None, str | None, Any]

#: `outbox_id, destination, event_id, available_at` of an outbox message.
MessageParts: TypeAlias = tuple[str, str, str | None, int | None]


class PreparedCommit(NamedTuple):
    """A valid commit request with everything that can be worked out without the database.

    `payloads`, `outbox_payloads`, `values` and `reply` are stored JSON, in the order of the
    request's lists; `reply` is None where the request has no `inbox_result`. `references` are the
    events of other commits that its outbox messages name, each with the index of the message.
    `claims` are those of the runtime events among its events.
    """

    message_id: str
    actor_id: str
    lease: LeaseCredential
    stream_id: str
    expected_revision: int
    request_hash: str
    events: Sequence[EventParts]
    payloads: Sequence[str]
    outbox: Sequence[MessageParts]
    outbox_payloads: Sequence[str]
    references: Sequence[tuple[int, str]]
    projection_ids: Sequence[str]
    values: Sequence[str]
    inbox_result: Any
    reply: str | None
    claims: Sequence[Claim]

    def require_unique_ids(self) -> None:
        """Raise IdempotencyConflict when an id stands twice in the request."""
        if len(self.events) > 1:
            _require_unique("eventId", [event[0] for event in self.events])
        if len(self.outbox) > 1:
            _require_unique("outboxId", [message[0] for message in self.outbox])
        if len(self.projection_ids) > 1:
            _require_unique("projectionId", self.projection_ids)


def prepare(given: Given[CommitRequest], page_max_bytes: int) -> PreparedCommit:
    """Validate and encode a commit; raises InvalidRequest.

    An event that would not fit into a page of `page_max_bytes` is refused: no reader could get it.
    A time that is not known yet counts as long as any can be.
    """
    request, texts, embeddable = validate_and_encode(CommitRequest, given)
    fields = request.__dict__
    events: list[EventParts] = [_event_of(each.__dict__) for each in fields["events"]]
    outbox: list[MessageParts] = [_message_of(each.__dict__) for each in fields["outbox"] or ()]
    projection_ids = [_projection_id_of(each.__dict__) for each in fields["projections"] or ()]

    outbox_at = len(events)
    projections_at = outbox_at + len(outbox)
    reply_at = projections_at + len(projection_ids)
    commit = PreparedCommit(
        fields["message_id"],
        fields["actor_id"],
        fields["lease"],
        fields["stream_id"],
        fields["expected_revision"],
        digest(_canonical(fields, events, outbox, projection_ids, iter(embeddable))),
        events,
        texts[:outbox_at],
        outbox,
        texts[outbox_at:projections_at],
        _references(events, outbox),
        projection_ids,
        texts[projections_at:reply_at],
        fields["inbox_result"],
        texts[reply_at] if reply_at < len(texts) else None,
        # Judged now, as it is encoded now: the caller may change the payload while a writer waits.
        [claim for event in events if (claim := claim_of(event[-1]))],
    )
    _require_readable(commit, page_max_bytes)
    return commit


def _references(
    events: Sequence[EventParts], outbox: Sequence[MessageParts]
) -> Sequence[tuple[int, str]]:
    if not outbox:
        return ()
    own = {event[0] for event in events}
    return [
        (index, event_id)
        for index, (_, _, event_id, _) in enumerate(outbox)
        if event_id is not None and event_id not in own
    ]


def _require_readable(commit: PreparedCommit, page_max_bytes: int) -> None:
    for index, text in enumerate(commit.payloads):
        # Four bytes a character at the most: nearly every event is let through by this line.
        if 4 * len(text) + MOST_EVENT_BYTES_BESIDES_PAYLOAD <= page_max_bytes:
            continue
        event_id, event_type, occurred_at, *ids, _ = commit.events[index]
        size = event_bytes(
            event_id,
            commit.message_id,
            commit.stream_id,
            commit.expected_revision + index + 1,
            event_type,
            text,
            commit.lease.epoch,
            MAX_SAFE_INTEGER if occurred_at is None else occurred_at,
            *ids,
        )
        if size + len("[]") > page_max_bytes:
            raise InvalidRequest(
                f"events[{index}].payload: the event has {size} bytes as JSON, more than fit into"
                f" a page of {page_max_bytes}",
                field=f"events[{index}].payload",
            )


def _require_unique(field: str, ids: Sequence[str]) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            raise IdempotencyConflict(
                f"{field} {each!r} stands twice in the request", field=field, id=each
            )
        seen.add(each)


# ----------------------------------------------------------------- the canonical form of a request


def _canonical(
    fields: Mapping[str, Any],
    events: Sequence[EventParts],
    outbox: Sequence[MessageParts],
    projection_ids: Sequence[str],
    values: Iterator[Any],
) -> bytes:
    """Canonical JSON of a request's fields without `lease` and `committedAt`.

    Its JSON values go in as `values` has them, encoded already, in the order of the fields. Names
    and ids need no more care than this, for names are ASCII and ids hold no lone surrogate.
    """
    form: dict[str, Any] = {
        "messageId": fields["message_id"],
        "actorId": fields["actor_id"],
        "streamId": fields["stream_id"],
        "expectedRevision": fields["expected_revision"],
        "events": list(map(_event_form, events, values)),
    }
    if fields["outbox"] is not None:
        form["outbox"] = list(map(_message_form, outbox, values))
    if fields["projections"] is not None:
        form["projections"] = list(map(_projection_form, projection_ids, values))
    if fields["inbox_result"] is not ABSENT:
        form["inboxResult"] = next(values)
    return canonical_of(form)


def _event_form(event: EventParts, payload: Any) -> dict[str, Any]:
    event_id, event_type, occurred_at, correlation_id, causation_id, trace_id, _ = event
    form: dict[str, Any] = {"eventId": event_id, "eventType": event_type, "payload": payload}
    if occurred_at is not None:
        form["occurredAt"] = occurred_at
    if correlation_id is not None:
        form["correlationId"] = correlation_id
    if causation_id is not None:
        form["causationId"] = causation_id
    if trace_id is not None:
        form["traceId"] = trace_id
    return form


def _message_form(message: MessageParts, payload: Any) -> dict[str, Any]:
    outbox_id, destination, event_id, available_at = message
    form: dict[str, Any] = {
        "outboxId": outbox_id,
        "destination": destination,
        "payload": payload,
    }
    if event_id is not None:
        form["eventId"] = event_id
    if available_at is not None:
        form["availableAt"] = available_at
    return form


def _projection_form(projection_id: str, value: Any) -> dict[str, Any]:
    return {"projectionId": projection_id, "value": value}
