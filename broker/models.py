"""Every table of the store on one page, as ORM entities that an application may query and join.

The eight tables are schema version 3, a contract with other programs that open the same file:
columns, their order and `PRAGMA user_version` do not change. Indexes and guard triggers below that
version 3 does not know come with later Alembic revisions.

Reading, joining and relating these entities is for everyone. Writing them is the broker's alone: it
keeps leases fenced, revisions gapless and messages idempotent. What a trigger can forbid to all
clients, whatever their pragmas, it forbids: see `broker.guards`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    FetchedValue,
    ForeignKeyConstraint,
    Index,
    Integer,
    Text,
    UniqueConstraint,
    event,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from broker.guards import GUARDS
from broker.postgresql.tables import attach, attach_to_events
from broker.runtime_events import DOMAIN_EVENT

# SQLite's STRICT tables know INTEGER and TEXT; PostgreSQL needs the wide name.
Int64 = BigInteger().with_variant(Integer(), "sqlite")

# Ids compare by their bytes on either backend: pages by id must not depend on a locale.
_IdText = Text().with_variant(Text(collation="C"), "postgresql")

Id = Annotated[str, mapped_column(_IdText)]
OptionalId = Annotated[str | None, mapped_column(_IdText)]
Key = Annotated[str, mapped_column(_IdText, primary_key=True)]

# A query takes `events_read_model_idx` if it repeats these texts. Other programs may have stored
# text that is not JSON; without the guard the index would refuse it, and reads would break on it.
WORKSPACE_OF_PAYLOAD = (
    "CASE WHEN json_valid(payload_json) THEN json_extract(payload_json, '$.actor.workspaceId') END"
)
EVENT_TYPE_OF_PAYLOAD = (
    "CASE WHEN json_valid(payload_json) THEN json_extract(payload_json, '$.eventType') END"
)
READ_MODEL_PREDICATE = f"event_type = '{DOMAIN_EVENT}'"


def _table(*items: Any) -> tuple[Any, ...]:
    return (*items, {"sqlite_strict": True})


class Base(DeclarativeBase):
    """The declarative base of the broker's tables; its `MetaData` holds nothing else."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {int: Int64, str: Text()}
    __table_args__: Any = _table()


def _deferred_key_to_inbox() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["message_id"], ["inbox.message_id"], deferrable=True, initially="DEFERRED"
    )


class MetadataEntry(Base):
    """A fact about the whole store: `schema_version`, `logical_time_floor`."""

    __tablename__ = "metadata"

    key: Mapped[Key]
    value: Mapped[str]


class ActorLease(Base):
    """The last lease of an actor, and so of a stream; an expired one is kept for its epoch."""

    __tablename__ = "actor_leases"
    __table_args__ = _table(
        CheckConstraint("epoch > 0"),
        Index("actor_leases_stream_id_uq", "stream_id", unique=True),
    )

    actor_id: Mapped[Key]
    stream_id: Mapped[Id]
    holder_id: Mapped[Id]
    epoch: Mapped[int]
    nonce: Mapped[str]
    acquired_at: Mapped[int]
    heartbeat_at: Mapped[int]
    expires_at: Mapped[int]


class Stream(Base):
    """A stream: how many events it has, and the workspace that owns it, once known."""

    __tablename__ = "streams"
    __table_args__ = _table(
        CheckConstraint("revision >= 0"),
        Index("streams_workspace_stream_idx", "workspace_id", "stream_id"),
    )

    stream_id: Mapped[Key]
    revision: Mapped[int]
    created_at: Mapped[int]
    updated_at: Mapped[int]
    workspace_id: Mapped[OptionalId]

    events: Mapped[list[Event]] = relationship(
        back_populates="stream", order_by="Event.revision", passive_deletes="all"
    )
    projections: Mapped[list[Projection]] = relationship(
        back_populates="stream", order_by="Projection.projection_id", passive_deletes="all"
    )


class InboxMessage(Base):
    """A commit that was applied, and the result that its repetition gets."""

    __tablename__ = "inbox"

    message_id: Mapped[Key]
    request_hash: Mapped[str]
    stream_id: Mapped[Id]
    applied_revision: Mapped[int]
    result_json: Mapped[str]
    applied_at: Mapped[int]

    events: Mapped[list[Event]] = relationship(
        back_populates="message", order_by="Event.revision", passive_deletes="all"
    )
    outbox: Mapped[list[OutboxMessage]] = relationship(
        back_populates="message", order_by="OutboxMessage.outbox_id", passive_deletes="all"
    )


class MutationReceipt(Base):
    """A lease mutation that was applied, and the response that its repetition gets."""

    __tablename__ = "mutation_receipts"
    __table_args__ = _table(Index("mutation_receipts_created_idx", "created_at", "request_id"))

    request_id: Mapped[Key]
    method: Mapped[str]
    params_hash: Mapped[str]
    response_json: Mapped[str]
    created_at: Mapped[int]


class Event(Base):
    """An event of a stream, and its place, `cursor`, in the journal of the whole database."""

    __tablename__ = "events"
    __table_args__ = _table(
        _deferred_key_to_inbox(),
        ForeignKeyConstraint(["stream_id"], ["streams.stream_id"]),
        UniqueConstraint("stream_id", "revision"),
        CheckConstraint("revision > 0"),
        CheckConstraint("producer_epoch > 0"),
        Index("events_message_idx", "message_id"),
        Index(
            "events_read_model_idx",
            text(WORKSPACE_OF_PAYLOAD),
            text(EVENT_TYPE_OF_PAYLOAD),
            sqlite_where=text(READ_MODEL_PREDICATE),
        ).ddl_if(dialect="sqlite"),
    )

    event_id: Mapped[Key]
    message_id: Mapped[Id]
    stream_id: Mapped[Id]
    revision: Mapped[int]
    event_type: Mapped[str]
    payload_json: Mapped[str]
    producer_epoch: Mapped[int]
    occurred_at: Mapped[int]
    correlation_id: Mapped[OptionalId]
    causation_id: Mapped[OptionalId]
    trace_id: Mapped[OptionalId]

    # SQLite's own rowid, and on PostgreSQL a column that is made after the table: a `system` column is
    # queried and fetched, but never created or migrated.
    cursor: Mapped[int] = mapped_column("rowid", Int64, FetchedValue(), system=True)

    stream: Mapped[Stream] = relationship(back_populates="events")
    message: Mapped[InboxMessage] = relationship(back_populates="events")
    outbox: Mapped[list[OutboxMessage]] = relationship(
        back_populates="event", order_by="OutboxMessage.outbox_id", passive_deletes="all"
    )


class OutboxMessage(Base):
    """A message to be delivered to some destination, perhaps on account of an event."""

    __tablename__ = "outbox"
    __table_args__ = _table(
        _deferred_key_to_inbox(),
        ForeignKeyConstraint(["event_id"], ["events.event_id"]),
        CheckConstraint("attempts >= 0"),
        Index("outbox_pending_idx", "delivered_at", "available_at", "created_at"),
        Index("outbox_message_idx", "message_id"),
        Index(
            "outbox_undelivered_idx",
            "created_at",
            "outbox_id",
            "available_at",
            sqlite_where=text("delivered_at IS NULL"),
            postgresql_where=text("delivered_at IS NULL"),
        ),
    )

    outbox_id: Mapped[Key]
    message_id: Mapped[Id]
    event_id: Mapped[OptionalId]
    destination: Mapped[str]
    payload_json: Mapped[str]
    created_at: Mapped[int]
    available_at: Mapped[int]
    delivered_at: Mapped[int | None]
    attempts: Mapped[int] = mapped_column(server_default=text("0"))

    message: Mapped[InboxMessage] = relationship(back_populates="outbox")
    event: Mapped[Event | None] = relationship(back_populates="outbox")


class Projection(Base):
    """A value derived from a stream, as of one of its revisions."""

    __tablename__ = "projections"
    __table_args__ = _table(
        ForeignKeyConstraint(["stream_id"], ["streams.stream_id"]),
        CheckConstraint("revision >= 0"),
    )

    projection_id: Mapped[Key]
    stream_id: Mapped[Id]
    revision: Mapped[int]
    value_json: Mapped[str]
    updated_at: Mapped[int]

    stream: Mapped[Stream] = relationship(back_populates="projections")


# --- What CREATE TABLE does not say ---------------------------------------------------------


def _attach_guards() -> None:
    for guard in GUARDS:
        table = Base.metadata.tables[guard.table]
        for statement in guard.ddl("sqlite"):
            ddl: DDL = DDL(statement.replace("%", "%%"))  # type: ignore[no-untyped-call]  # it has no hints; it formats its text with %
            event.listen(table, "after_create", ddl.execute_if(dialect="sqlite"))
        for statement in guard.ddl("postgresql"):
            attach(table, statement)
        if guard.postgresql is not None:  # a function outlives the table of its trigger
            attach(table, f"DROP FUNCTION IF EXISTS {{schema}}{guard.name}()", "after_drop")


attach_to_events(Base.metadata.tables["events"])
_attach_guards()
