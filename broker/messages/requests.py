"""The requests, one for each operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from broker.messages.fields import (
    MAX_PAGE_EVENTS,
    Array,
    Default,
    Id,
    JsonValue,
    ListLimit,
    Natural,
    PageLimit,
    Position,
    Positive,
    absent,
    is_absent,
    is_none,
    optional_json,
)


class Request(BaseModel):
    """Base of every request: frozen, strict, no unknown fields, validated on every way in.

    Made from keywords in snake_case, or by `model_validate` from a mapping in camelCase. None for
    an optional field means absent. An operation validates what it is given once more, so that
    neither `model_construct` nor a payload changed meanwhile gets past it.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,  # the text of Pydantic's own errors would show nonces
        revalidate_instances="always",
        serialize_by_alias=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    def to_json(self) -> dict[str, Any]:
        """The wire form: camelCase, absent fields left out."""
        form: dict[str, Any] = self.__pydantic_serializer__.to_python(self)
        return form

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields replaced (by Python name), validated as any other request."""
        copied = super().model_copy(deep=deep)
        if not update:
            return copied
        return type(self).model_validate({**copied.__dict__, **update})


_LEFT_OUT = Field(exclude_if=is_none)  # of the wire form, when absent

OptionalId = Annotated[Id | None, _LEFT_OUT]
OptionalNatural = Annotated[Natural | None, _LEFT_OUT]
OptionalPosition = Annotated[Position | None, _LEFT_OUT]
FromTheStart = Annotated[Natural, Default(0)]


class LeaseCredential(Request):
    """What a caller shows to prove that a lease is still its own."""

    epoch: Positive
    nonce: Annotated[Id, Field(repr=False)]


class AcquireLeaseRequest(Request):
    """Take the lease on a stream that nobody holds, for `ttl_ms` milliseconds.

    Without `stream_id` the stream has the actor's id. `now` is accepted and ignored.
    """

    actor_id: Id
    stream_id: OptionalId = None
    holder_id: Id
    ttl_ms: Positive
    now: OptionalNatural = None


class TakeoverLeaseRequest(AcquireLeaseRequest):
    """Take the lease on a stream whose last lease has expired, for `ttl_ms` milliseconds."""


class HeartbeatLeaseRequest(Request):
    """Keep a live lease for `ttl_ms` milliseconds from now, which may shorten it."""

    actor_id: Id
    lease: LeaseCredential
    ttl_ms: Positive
    now: OptionalNatural = None


class CompareAndSwapLeaseRequest(Request):
    """Hand a live lease to `next_holder_id`, for `ttl_ms` milliseconds from now."""

    actor_id: Id
    lease: LeaseCredential
    ttl_ms: Positive
    now: OptionalNatural = None
    next_holder_id: Id


class ReleaseLeaseRequest(Request):
    """Give a live lease up; its row stays and keeps the epoch."""

    actor_id: Id
    lease: LeaseCredential
    now: OptionalNatural = None


class GetLeaseRequest(Request):
    """The lease row of an actor, live or not."""

    actor_id: Id


class NewEvent(Request):
    """An event to append. Without `occurred_at` (ms since 1970) it occurs at broker time."""

    event_id: Id
    event_type: Id
    payload: JsonValue
    occurred_at: OptionalNatural = None
    correlation_id: OptionalId = None
    causation_id: OptionalId = None
    trace_id: OptionalId = None


class NewOutboxMessage(Request):
    """A message for the outside world, stored with the events that caused it.

    `event_id` names an event of the same commit or an older one. Without `available_at` (ms since
    1970) it is due at once.
    """

    outbox_id: Id
    destination: Id
    payload: JsonValue
    event_id: OptionalId = None
    available_at: OptionalNatural = None


class NewProjection(Request):
    """The new value of a projection that belongs to the stream written to."""

    projection_id: Id
    value: JsonValue


if TYPE_CHECKING:  # lists are welcome; what is kept is a tuple
    NewEvents: TypeAlias = Sequence[NewEvent]
    NewOutboxMessages: TypeAlias = Sequence[NewOutboxMessage]
    NewProjections: TypeAlias = Sequence[NewProjection]
else:
    NewEvents = Annotated[tuple[NewEvent, ...], Array()]
    NewOutboxMessages = Annotated[tuple[NewOutboxMessage, ...], Array()]
    NewProjections = Annotated[tuple[NewProjection, ...], Array()]


class CommitRequest(Request):
    """Events, outbox messages, projections and a reply for the inbox: all of them, or none.

    `message_id` makes it safe to repeat; `expected_revision` is the number of events that the
    stream must have. `inbox_result` is handed back as `reply`; None is a value there, `ABSENT` is
    not. `committed_at` is accepted and ignored.
    """

    message_id: Id
    actor_id: Id
    lease: LeaseCredential
    stream_id: Id
    expected_revision: Natural
    events: NewEvents
    outbox: Annotated[NewOutboxMessages | None, _LEFT_OUT] = None
    projections: Annotated[NewProjections | None, _LEFT_OUT] = None
    inbox_result: Annotated[Any, AfterValidator(optional_json)] = Field(
        default_factory=absent, exclude_if=is_absent
    )
    committed_at: OptionalNatural = None


class GetStreamRevisionRequest(Request):
    """The number of events of a stream, 0 when it is unknown."""

    stream_id: Id


class ReadEventsRequest(Request):
    """All events of a stream after a revision, in revision order."""

    stream_id: Id
    after_revision: FromTheStart = 0


class Authorization(Request):
    """Who reads, and the credential of the live lease that allows it."""

    actor_id: Id
    lease: LeaseCredential


class ReadAuthorizedEventsRequest(ReadEventsRequest):
    """As `ReadEventsRequest`, for the holder of a live lease on that stream."""

    authorization: Authorization


class ReadAuthorizedEventsPageRequest(Request):
    """One page of a stream's events, for the holder of a live lease on it.

    `through_revision` is where the reader stops, by default the stream's revision now; passing a
    page's own back replays a finite snapshot. `max_bytes` is the byte budget of the page's events
    as a JSON array, by default the store's.
    """

    stream_id: Id
    after_revision: Natural
    through_revision: OptionalNatural = None
    limit: PageLimit
    actor_id: Id
    lease: LeaseCredential
    max_bytes: Annotated[Positive | None, _LEFT_OUT] = None

    @field_validator("through_revision")
    @classmethod
    def _does_not_precede(cls, through: int | None, info: ValidationInfo) -> int | None:
        if through is not None and through < info.data.get("after_revision", 0):
            raise PydanticCustomError("order", "must not precede afterRevision")
        return through


class ListStreamsRequest(Request):
    """Ids of a workspace's streams that begin with `prefix`, in byte order."""

    workspace_id: Id
    prefix: Id
    after_stream_id: OptionalPosition = None
    limit: ListLimit


class ReadJournalRequest(Request):
    """Events of the whole database after a cursor, in cursor order: at most `limit` a page."""

    after_cursor: FromTheStart = 0
    limit: Annotated[PageLimit, Default(MAX_PAGE_EVENTS)] = MAX_PAGE_EVENTS


class ReadModelEventsRequest(Request):
    """A workspace's read-model events after a cursor, in cursor order."""

    workspace_id: Id
    after_cursor: FromTheStart = 0
    limit: Annotated[ListLimit, Default(128)] = 128


class ReadModelSourcesRequest(Request):
    """A workspace's streams that have read-model events, in byte order."""

    workspace_id: Id
    after_stream_id: OptionalPosition = None
    limit: Annotated[ListLimit, Default(128)] = 128


class ReadProjectionRequest(Request):
    """A projection by its id."""

    projection_id: Id


class ListPendingOutboxRequest(Request):
    """Messages that are due and not delivered, oldest first.

    `as_of` (ms since 1970) is the time to compare with, by default broker time.
    """

    limit: Annotated[Positive, Default(100)] = 100
    as_of: OptionalNatural = None


class MarkOutboxDeliveredRequest(Request):
    """Mark a message as delivered at `delivered_at` (ms since 1970), by default broker time."""

    outbox_id: Id
    delivered_at: OptionalNatural = None
