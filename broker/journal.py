"""The commit: fenced by a lease, expected at a revision, applied once.

Steps are those of the protocol. What the database must find out by itself, that ids are unused and
projections the stream's own, is left to its constraints: only when one of them objects are the
questions asked one by one, to say which id it was.
"""

from __future__ import annotations

import sqlite3
from typing import Any, cast

import orjson
from sqlalchemy import bindparam, func, insert, literal_column, select, update

from broker.canonical import NotJson, decode
from broker.clock import MAX_SAFE_INTEGER
from broker.commits import PreparedCommit, prepare
from broker.errors import (
    BrokerError,
    CorruptRow,
    DatabaseError,
    IdempotencyConflict,
    InvalidRequest,
    RevisionConflict,
)
from broker.leases import AUTHORITY, require_authority
from broker.messages import CommitRequest, CommitResult, Given
from broker.models import ActorLease, Event, InboxMessage, Stream
from broker.options import Options
from broker.outbox import insert_outbox, is_outbox_id_used
from broker.projections import ForeignProjection, foreign_projection, upsert_projections
from broker.statements import Row, Statement
from broker.transaction import FLOOR, ONE_ROW, Transaction, Write


def commit(given: Given[CommitRequest], options: Options) -> Write[CommitResult]:
    """Append to a stream; see `Operations.commit`."""
    prepared = prepare(given, options.page_max_bytes)

    def recover(transaction: Transaction) -> tuple[CommitResult] | None:
        row = transaction.channel.one(_RECORDED, prepared.message_id)
        return None if row is None else (_recorded(prepared, row),)

    def apply(transaction: Transaction) -> CommitResult:
        return _apply(transaction, prepared)

    return Write(apply, recover, weight=sum(map(len, prepared.payloads)))


def _apply(transaction: Transaction, commit: PreparedCommit) -> CommitResult:
    row = cast(
        Row, transaction.channel.one(_LOOK, commit.message_id, commit.actor_id, commit.stream_id)
    )
    floor, last_cursor, request_hash, result_json, revision, owner = row[:6]
    if request_hash is not None:
        return _recorded(commit, (request_hash, result_json))

    now = transaction.advance(floor)
    require_authority(row[6:], commit.actor_id, commit.lease, commit.stream_id, now)
    _require_revision(commit, revision or 0)
    workspace_id = _owner_after(commit, owner) if commit.claims else owner
    commit.require_unique_ids()
    if commit.references:
        _require_known_events(transaction, commit)

    if (last_cursor or 0) + len(commit.events) > MAX_SAFE_INTEGER:
        raise DatabaseError("the cursors of the journal are used up: another writer took the last")

    result = _result(commit, revision or 0, last_cursor or 0, now)
    try:
        with transaction.savepoint():
            _write_stream(transaction, result, workspace_id, is_new=revision is None)
            _write_inbox(transaction, commit, result)
            _write_events(transaction, commit, result)
            insert_outbox(transaction, commit, now)
            upsert_projections(transaction, commit, result.revision, now)
    except (sqlite3.IntegrityError, ForeignProjection) as error:
        conflict = _conflict(transaction, commit)
        if conflict is None:
            raise
        try:
            raise conflict from error
        finally:
            del conflict  # which the traceback of its own cause would keep alive
    return result


# ---------------------------------------------------------------------------------------- judging


def _recorded(commit: PreparedCommit, row: Row) -> CommitResult:
    """The inbox's answer to a message id that it knows."""
    message_id = commit.message_id
    request_hash, result_json = row
    if request_hash != commit.request_hash:
        raise IdempotencyConflict(
            f"messageId {message_id!r} was used before for another request", messageId=message_id
        )
    try:
        form = {**cast("dict[str, Any]", decode(result_json)), "recovered": True}
        return CommitResult.from_json(form)
    except (KeyError, NotJson, TypeError) as error:
        raise CorruptRow(
            f"the inbox does not hold a result for {message_id!r}",
            table="inbox",
            row=message_id,
            column="result_json",
        ) from error


def _require_revision(commit: PreparedCommit, actual: int) -> None:
    if actual != commit.expected_revision:
        raise RevisionConflict(
            f"stream {commit.stream_id!r} is at revision {actual},"
            f" not at {commit.expected_revision}: read on and decide again",
            streamId=commit.stream_id,
            expectedRevision=commit.expected_revision,
            actualRevision=actual,
        )
    if actual + len(commit.events) > MAX_SAFE_INTEGER:
        raise InvalidRequest(
            f"the revisions of stream {commit.stream_id!r} are used up", field="expectedRevision"
        )


def _owner_after(commit: PreparedCommit, owner: str | None) -> str | None:
    """The workspace that owns the stream once these events are in it."""
    stream_id = commit.stream_id
    for claim in commit.claims:
        if claim.stream_id != stream_id:
            raise InvalidRequest(
                f"a runtime event of stream {claim.stream_id!r} cannot be written to {stream_id!r}",
                streamId=stream_id,
                payloadStreamId=claim.stream_id,
            )
        owner = owner or claim.workspace_id
        if claim.workspace_id != owner:
            raise InvalidRequest(
                f"stream {stream_id!r} belongs to workspace {owner!r}, not to"
                f" {claim.workspace_id!r}",
                streamId=stream_id,
                workspaceId=claim.workspace_id,
                ownerWorkspaceId=owner,
            )
    return owner


def _require_known_events(transaction: Transaction, commit: PreparedCommit) -> None:
    # Asked beforehand, for an application's engine may not enforce foreign keys.
    if _unknown_event(transaction, commit) is not None:
        raise cast(BrokerError, _conflict(transaction, commit))


def _unknown_event(transaction: Transaction, commit: PreparedCommit) -> tuple[int, str] | None:
    """The first outbox message that names no event, by its index, and what it names."""
    for index, event_id in commit.references:
        if transaction.channel.one(_IS_EVENT, event_id) is None:
            return index, event_id
    return None


def _conflict(transaction: Transaction, commit: PreparedCommit) -> BrokerError | None:
    """Why a constraint objected, in the protocol's order of questions; None for no known reason."""
    for event_id, *_ in commit.events:
        if transaction.channel.one(_IS_EVENT, event_id):
            return _used("eventId", event_id)
    for outbox_id, *_ in commit.outbox:
        if is_outbox_id_used(transaction, outbox_id):
            return _used("outboxId", outbox_id)

    unknown = _unknown_event(transaction, commit)
    if unknown is not None:
        index, event_id = unknown
        field = f"outbox[{index}].eventId"
        return InvalidRequest(f"{field}: there is no event {event_id!r}", field=field)

    projection_id = foreign_projection(transaction, commit)
    if projection_id is None:
        return None
    return IdempotencyConflict(
        f"projectionId {projection_id!r} belongs to another stream",
        projectionId=projection_id,
        streamId=commit.stream_id,
    )


def _used(field: str, used: str) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"{field} {used!r} was used before by another message", field=field, id=used
    )


# ---------------------------------------------------------------------------------------- writing


def _result(commit: PreparedCommit, revision: int, last_cursor: int, now: int) -> CommitResult:
    count = len(commit.events)
    return CommitResult(
        commit.message_id,
        commit.stream_id,
        previous_revision=revision,
        revision=revision + count,
        event_ids=tuple([event[0] for event in commit.events]),
        # Nobody else can write meanwhile, and events are never deleted: the next ones are known.
        event_cursors=tuple(range(last_cursor + 1, last_cursor + count + 1)),
        outbox_ids=tuple([message[0] for message in commit.outbox]),
        applied_at=now,
        recovered=False,
        reply=commit.inbox_result,
    )


def _write_stream(
    transaction: Transaction, result: CommitResult, workspace_id: str | None, *, is_new: bool
) -> None:
    statement = _NEW_STREAM if is_new else _MOVE_STREAM
    transaction.channel.run(
        statement, result.stream_id, result.revision, result.applied_at, workspace_id
    )


def _write_inbox(transaction: Transaction, commit: PreparedCommit, result: CommitResult) -> None:
    """Before the events: a message that comes last makes SQLite scan them all for its id."""
    form = {
        "messageId": result.message_id,
        "streamId": result.stream_id,
        "previousRevision": result.previous_revision,
        "revision": result.revision,
        "eventIds": result.event_ids,
        "eventCursors": result.event_cursors,
        "outboxIds": result.outbox_ids,
        "appliedAt": result.applied_at,
        "recovered": False,
    }
    if commit.reply is not None:
        form["reply"] = orjson.Fragment(commit.reply)
    transaction.channel.run(
        _REMEMBER,
        result.message_id,
        commit.request_hash,
        result.stream_id,
        result.revision,
        orjson.dumps(form).decode(),
        result.applied_at,
    )


def _write_events(transaction: Transaction, commit: PreparedCommit, result: CommitResult) -> None:
    if not commit.events:
        return
    message_id, stream_id, epoch = commit.message_id, commit.stream_id, commit.lease.epoch
    now, revision = result.applied_at, result.previous_revision
    rows = []
    for event, payload, cursor in zip(
        commit.events, commit.payloads, result.event_cursors, strict=True
    ):
        event_id, event_type, occurred_at, correlation_id, causation_id, trace_id, _ = event
        revision += 1
        rows.append(
            (
                event_id,
                message_id,
                stream_id,
                revision,
                event_type,
                payload,
                epoch,
                now if occurred_at is None else occurred_at,
                correlation_id,
                causation_id,
                trace_id,
                cursor,
            )
        )
    transaction.channel.run_each(_APPEND, rows)


# ------------------------------------------------------------------------------------- statements

_LAST_CURSOR = select(func.max(Event.cursor)).scalar_subquery()

_LOOK = Statement(
    select(
        FLOOR,
        _LAST_CURSOR,
        InboxMessage.request_hash,
        InboxMessage.result_json,
        Stream.revision,
        Stream.workspace_id,
        *AUTHORITY,
    )
    .select_from(ONE_ROW)
    .outerjoin(InboxMessage, InboxMessage.message_id == bindparam("message_id"))
    .outerjoin(ActorLease, ActorLease.actor_id == bindparam("actor_id"))
    .outerjoin(Stream, Stream.stream_id == bindparam("stream_id")),
    "message_id",
    "actor_id",
    "stream_id",
)

_RECORDED = Statement(
    select(InboxMessage.request_hash, InboxMessage.result_json).where(
        InboxMessage.message_id == bindparam("message_id")
    ),
    "message_id",
)

_IS_EVENT = Statement(
    select(literal_column("1")).where(Event.event_id == bindparam("event_id")), "event_id"
)

_NEW_STREAM = Statement(
    insert(Stream).values(
        stream_id=bindparam("id"),
        revision=bindparam("at"),
        created_at=bindparam("now"),
        updated_at=bindparam("now"),
        workspace_id=bindparam("owner"),
    ),
    "id",
    "at",
    "now",
    "owner",
)

_MOVE_STREAM = Statement(
    update(Stream)
    .where(Stream.stream_id == bindparam("id"))
    .values(
        revision=bindparam("at"),
        updated_at=bindparam("now"),
        workspace_id=func.coalesce(Stream.workspace_id, bindparam("owner")),
    ),
    "id",
    "at",
    "now",
    "owner",
)

_REMEMBER = Statement(
    insert(InboxMessage),
    "message_id",
    "request_hash",
    "stream_id",
    "applied_revision",
    "result_json",
    "applied_at",
)

_APPEND = Statement(
    insert(Event),
    "event_id",
    "message_id",
    "stream_id",
    "revision",
    "event_type",
    "payload_json",
    "producer_epoch",
    "occurred_at",
    "correlation_id",
    "causation_id",
    "trace_id",
    "rowid",
)
