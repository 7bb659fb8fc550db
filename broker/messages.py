"""What goes in and what comes out.

Requests are frozen Pydantic models: camelCase on the wire, snake_case in Python, validated whichever
way they are made. Results are slotted frozen dataclasses, which a page of events builds several
times faster. `to_json` gives either its wire form, in which an absent field stays absent.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self, TypeAlias, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from broker.canonical import Encoded, NotJson, encode
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import InvalidRequest

MAX_ID_BYTES = 1_024
MAX_REQUEST_ID_BYTES = 256
MAX_PAGE_EVENTS = 128
MAX_LIST_ITEMS = 512


class Absent(enum.Enum):
    """The type of `ABSENT`, which stands for a JSON value that was not given; null is a value."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT


# ------------------------------------------------------------------------------------ field types


def _identifier(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("identifier", "must not contain NUL")
    if value.startswith("\1"):
        raise PydanticCustomError("identifier", "must not start with U+0001, which is reserved")
    return _bounded(value)


def _bounded(value: str) -> str:
    if not value.isascii() and len(value.encode()) > MAX_ID_BYTES:
        raise PydanticCustomError("identifier", "must have at most 1024 bytes in UTF-8")
    return value


def _position(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("identifier", "must not contain NUL")
    return _bounded(value)


def _integral(value: Any) -> Any:
    """JSON has one kind of number: 1.0 is the integer 1."""
    return int(value) if type(value) is float and value.is_integer() else value


def _array(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise PydanticCustomError("array", "must be an array")
    return value


def _json(value: Any, info: ValidationInfo) -> Any:
    """Check a JSON value, and hand its encoded form to whoever asked for it by the context."""
    try:
        encoded = encode(value)
    except NotJson as error:
        raise PydanticCustomError("json", "{reason}", {"reason": str(error)}) from None
    if info.context is not None:
        info.context.append(encoded)
    return value


def _optional_json(value: Any, info: ValidationInfo) -> Any:
    return value if value is ABSENT else _json(value, info)


def _absent() -> Absent:
    return ABSENT


def _is_none(value: Any) -> bool:
    return value is None


def _is_absent(value: Any) -> bool:
    return value is ABSENT


Id = Annotated[
    str, Field(strict=True, min_length=1, max_length=MAX_ID_BYTES), AfterValidator(_identifier)
]
_Position = Annotated[str, Field(strict=True, max_length=MAX_ID_BYTES), AfterValidator(_position)]
Natural = Annotated[int, BeforeValidator(_integral), Field(strict=True, ge=0, le=MAX_SAFE_INTEGER)]
Positive = Annotated[int, BeforeValidator(_integral), Field(strict=True, ge=1, le=MAX_SAFE_INTEGER)]
PageLimit = Annotated[int, BeforeValidator(_integral), Field(strict=True, ge=1, le=MAX_PAGE_EVENTS)]
ListLimit = Annotated[int, BeforeValidator(_integral), Field(strict=True, ge=1, le=MAX_LIST_ITEMS)]
JsonValue = Annotated[Any, AfterValidator(_json)]


# --------------------------------------------------------------------------------------- requests


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
        revalidate_instances="always",
        serialize_by_alias=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    def to_json(self) -> dict[str, Any]:
        """The wire form: camelCase, absent fields left out."""
        return self.model_dump()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields replaced (by Python name), validated as any other request."""
        copied = super().model_copy(deep=deep)
        if not update:
            return copied
        return type(self).model_validate({**copied.__dict__, **update})


_LEFT_OUT = Field(exclude_if=_is_none)  # of the wire form, when absent

OptionalId = Annotated[Id | None, _LEFT_OUT]
OptionalNatural = Annotated[Natural | None, _LEFT_OUT]
OptionalPosition = Annotated[_Position | None, _LEFT_OUT]


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
    NewEvents = Annotated[tuple[NewEvent, ...], BeforeValidator(_array)]
    NewOutboxMessages = Annotated[tuple[NewOutboxMessage, ...], BeforeValidator(_array)]
    NewProjections = Annotated[tuple[NewProjection, ...], BeforeValidator(_array)]


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
    inbox_result: Annotated[Any, AfterValidator(_optional_json)] = Field(
        default_factory=_absent, exclude_if=_is_absent
    )
    committed_at: OptionalNatural = None


class GetStreamRevisionRequest(Request):
    """The number of events of a stream, 0 when it is unknown."""

    stream_id: Id


class ReadEventsRequest(Request):
    """All events of a stream after a revision, in revision order."""

    stream_id: Id
    after_revision: Natural = 0


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

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if self.through_revision is not None and self.through_revision < self.after_revision:
            raise PydanticCustomError(
                "order", "must not precede afterRevision", {"field": "throughRevision"}
            )
        return self


class ListStreamsRequest(Request):
    """Ids of a workspace's streams that begin with `prefix`, in byte order."""

    workspace_id: Id
    prefix: Id
    after_stream_id: OptionalPosition = None
    limit: ListLimit


class ReadModelEventsRequest(Request):
    """A workspace's read-model events after a cursor, in cursor order."""

    workspace_id: Id
    after_cursor: Natural = 0
    limit: ListLimit = 128


class ReadModelSourcesRequest(Request):
    """A workspace's streams that have read-model events, in byte order."""

    workspace_id: Id
    after_stream_id: OptionalPosition = None
    limit: ListLimit = 128


class ReadProjectionRequest(Request):
    """A projection by its id."""

    projection_id: Id


class ListPendingOutboxRequest(Request):
    """Messages that are due and not delivered, oldest first.

    `as_of` (ms since 1970) is the time to compare with, by default broker time.
    """

    limit: Positive = 100
    as_of: OptionalNatural = None


class MarkOutboxDeliveredRequest(Request):
    """Mark a message as delivered at `delivered_at` (ms since 1970), by default broker time."""

    outbox_id: Id
    delivered_at: OptionalNatural = None


# ---------------------------------------------------------------------------------------- results


class Result:
    """Base of every result."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel)

    def to_json(self) -> dict[str, Any]:
        """The wire form: camelCase, absent fields left out."""
        form = {}
        for name, wire_name in _wire_names(type(self)):  # type: ignore[arg-type]  # classes hash
            value = getattr(self, name)
            if value is not ABSENT and (value is not None or name in _JSON_VALUES):
                form[wire_name] = _to_json(value)
        return form

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Self:
        """The result that has this wire form; KeyError or TypeError when it is none."""
        names = {wire_name: name for name, wire_name in _wire_names(cls)}  # type: ignore[arg-type]  # classes hash
        given = {names[wire_name]: value for wire_name, value in form.items()}
        return cls(
            **{
                name: tuple(value) if type(value) is list and name not in _JSON_VALUES else value
                for name, value in given.items()
            }
        )


_JSON_VALUES = {"payload", "reply", "value"}  # kept as they are; null is one of them


@cache
def _wire_names(kind: Any) -> tuple[tuple[str, str], ...]:
    return tuple((entry.name, to_camel(entry.name)) for entry in fields(kind))


def _to_json(value: Any) -> Any:
    if isinstance(value, Result):
        return value.to_json()
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Lease(Result):
    """The right of `actor_id` to write to `stream_id` until `expires_at`.

    Times are broker time, in milliseconds since 1970. The lease is live while `expires_at` is later
    than broker time.
    """

    actor_id: str
    stream_id: str
    holder_id: str
    epoch: int
    nonce: str = field(repr=False)
    acquired_at: int
    heartbeat_at: int
    expires_at: int

    @property
    def credential(self) -> LeaseCredential:
        """What to show in requests that need this lease."""
        return LeaseCredential(epoch=self.epoch, nonce=self.nonce)


@dataclass(frozen=True, slots=True)
class CommitResult(Result):
    """What a commit did, as the inbox remembers it; `recovered` when this call only found it.

    `event_cursors` are positions in the journal of the whole database. `reply` is `ABSENT` unless
    the request had an `inbox_result`.
    """

    message_id: str
    stream_id: str
    previous_revision: int
    revision: int
    event_ids: tuple[str, ...]
    event_cursors: tuple[int, ...]
    outbox_ids: tuple[str, ...]
    applied_at: int
    recovered: bool
    reply: Any = field(default_factory=_absent)


@dataclass(frozen=True, slots=True)
class StoredEvent(Result):
    """An event as stored; `occurred_at` in milliseconds since 1970."""

    event_id: str
    message_id: str
    stream_id: str
    revision: int
    event_type: str
    payload: Any
    producer_epoch: int
    occurred_at: int
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class JournalEvent(StoredEvent):
    """A stored event with its position in the journal of the whole database."""

    cursor: int = 0


@dataclass(frozen=True, slots=True)
class EventsPage(Result):
    """A page of a stream; read on from `next_revision` until `done`."""

    events: tuple[StoredEvent, ...]
    next_revision: int
    through_revision: int
    done: bool


@dataclass(frozen=True, slots=True)
class ReadModelSource(Result):
    """A stream that feeds the read model: its lease's epoch, and whether that lease is live."""

    stream_id: str
    generation: int
    active: bool


@dataclass(frozen=True, slots=True)
class StoredProjection(Result):
    """A projection as of `revision` of its stream; `updated_at` in milliseconds since 1970."""

    stream_id: str
    revision: int
    value: Any
    updated_at: int


@dataclass(frozen=True, slots=True)
class StoredOutboxMessage(Result):
    """An outbox message; times in milliseconds since 1970, `attempts` counts its deliveries."""

    outbox_id: str
    message_id: str
    event_id: str | None
    destination: str
    payload: Any
    created_at: int
    available_at: int
    delivered_at: int | None
    attempts: int


REQUESTS: tuple[type[Request], ...] = (
    AcquireLeaseRequest,
    HeartbeatLeaseRequest,
    CompareAndSwapLeaseRequest,
    TakeoverLeaseRequest,
    ReleaseLeaseRequest,
    GetLeaseRequest,
    CommitRequest,
    GetStreamRevisionRequest,
    ReadEventsRequest,
    ReadAuthorizedEventsRequest,
    ReadAuthorizedEventsPageRequest,
    ListStreamsRequest,
    ReadModelEventsRequest,
    ReadModelSourcesRequest,
    ReadProjectionRequest,
    ListPendingOutboxRequest,
    MarkOutboxDeliveredRequest,
)

RESULTS: tuple[type[Result], ...] = (
    Lease,
    CommitResult,
    StoredEvent,
    JournalEvent,
    EventsPage,
    ReadModelSource,
    StoredProjection,
    StoredOutboxMessage,
)


def json_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema (2020-12) of the wire form of every request and result, by its name."""
    return {kind.__name__: TypeAdapter(kind).json_schema() for kind in (*REQUESTS, *RESULTS)}


# ------------------------------------------------------------------------------------- validation

Message = TypeVar("Message", bound=Request)

#: What an operation takes: its request, or a mapping with the same content.
Given: TypeAlias = Message | Mapping[str, Any]


def validate(
    kind: type[Message], given: Given[Message], encoded: list[Encoded] | None = None
) -> Message:
    """The request in `given`, checked; raises InvalidRequest with the path of the first fault.

    First means in the order of the request's fields, unknown fields last. `encoded` receives the
    encoded form of every JSON value of the request, in the same order.
    """
    if isinstance(given, Mapping) and not isinstance(given, dict):
        given = dict(given)
    try:
        return cast(Message, kind.__pydantic_validator__.validate_python(given, context=encoded))
    except ValidationError as error:
        raise _refusal(error) from None  # Pydantic's text would show nonces and payloads


def validate_request_id(request_id: object) -> str | None:
    """The id under which a lease mutation is remembered, checked; None means not at all."""
    if request_id is None:
        return None
    try:
        checked = _ID.validate_python(request_id)
        if len(checked.encode()) <= MAX_REQUEST_ID_BYTES:
            return checked
        reason = f"must have at most {MAX_REQUEST_ID_BYTES} bytes in UTF-8"
    except ValidationError as error:
        reason = error.errors(include_input=False)[0]["msg"]
    raise InvalidRequest(f"requestId: {reason}", field="requestId")


_ID: TypeAdapter[str] = TypeAdapter(Id)


def _refusal(error: ValidationError) -> InvalidRequest:
    faults = error.errors(include_url=False)
    fault = next((one for one in faults if one["type"] != "extra_forbidden"), faults[0])
    path = _path(fault)
    return InvalidRequest(f"{path}: {fault['msg']}", **_details(path, fault))


def _path(fault: ErrorDetails) -> str:
    if fault["type"] == "order":
        return str(fault["ctx"]["field"])
    path = ""
    for step in fault["loc"]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "request"


def _details(path: str, fault: ErrorDetails) -> dict[str, Any]:
    """Usually the path; three fields are reported otherwise, as clients of the protocol expect."""
    if path == "afterStreamId":
        return {}
    if path == "asOf":
        return {"field": "now"}
    limit = fault.get("ctx", {}).get("le")
    if path == "limit" and limit == MAX_LIST_ITEMS and fault["input"] <= MAX_SAFE_INTEGER:
        return {"limit": fault["input"]}
    return {"field": path}
