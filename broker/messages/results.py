"""The results, as slotted frozen dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar, Self, TypeVar, cast

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from broker.messages.fields import ABSENT, absent
from broker.messages.requests import LeaseCredential


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


R = TypeVar("R", bound=Result)


def unfrozen(kind: type[R]) -> type[R]:
    """A class like `kind` whose instances can be assigned to, until their `__class__` is made `kind`.

    It is for results that are made by the thousand: `__init__` of a frozen dataclass takes five
    times as long, as every field goes through a call of `object.__setattr__`.
    """
    names = [entry.name for entry in fields(kind)]  # type: ignore[arg-type]  # it is a dataclass
    namespace = {
        "__slots__": (),
        "__init__": vars(make_dataclass(kind.__name__, names))["__init__"],
        "__setattr__": object.__setattr__,
        "__delattr__": object.__delattr__,  # together with the other, or both are slow
    }
    return cast(type[R], type(kind.__name__, (kind,), namespace))


def maker(kind: type[R]) -> Callable[..., R]:
    """What makes a `kind` of the values of all its fields, in their order, several times faster."""
    unfrozen_kind: Any = unfrozen(kind)

    def make(*values: Any) -> R:
        made = unfrozen_kind(*values)
        made.__class__ = kind
        return cast(R, made)

    return make


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

    def extended(self, now: int, ttl_ms: int) -> Lease:
        """This lease after a heartbeat at `now`."""
        return make_lease(
            self.actor_id,
            self.stream_id,
            self.holder_id,
            self.epoch,
            self.nonce,
            self.acquired_at,
            now,
            now + ttl_ms,
        )

    @property
    def credential(self) -> LeaseCredential:
        """What to show in requests that need this lease."""
        return LeaseCredential(epoch=self.epoch, nonce=self.nonce)


make_lease = maker(Lease)


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
    reply: Any = field(default_factory=absent)


make_commit_result = maker(CommitResult)


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

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Self:
        """The page that has this wire form; KeyError or TypeError when it is none."""
        events = tuple([StoredEvent.from_json(event) for event in form["events"]])
        return cls(events, form["nextRevision"], form["throughRevision"], form["done"])


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
    destination: str
    payload: Any
    created_at: int
    available_at: int
    attempts: int
    event_id: str | None = None
    delivered_at: int | None = None
