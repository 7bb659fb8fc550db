"""The commit: fenced by a lease, expected at a revision, applied once.

Here it is judged; `broker.drafts` writes it. Steps are those of the protocol. What the database must find out by itself, that ids are unused and
projections the stream's own, is left to its constraints: only when one of them objects are the
questions asked one by one, to say which id it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from sqlalchemy import bindparam, func, literal_column, select

from broker.canonical import NotJson, decode
from broker.clock import MAX_SAFE_INTEGER
from broker.commits import PreparedCommit, prepare
from broker.drafts import Draft, draft, write_drafts
from broker.errors import (
    BrokerError,
    CorruptRow,
    IdempotencyConflict,
    InvalidRequest,
    Refusal,
    RevisionConflict,
)
from broker.leases import AUTHORITY, require_authority
from broker.messages import CommitRequest, CommitResult, Given
from broker.models import ActorLease, Event, InboxMessage, Stream
from broker.options import Options
from broker.outbox import is_outbox_id_used
from broker.postgresql.sql import LOOK_FOR_COMMIT
from broker.projections import foreign_projection
from broker.shapes import Shape
from broker.statements import VIOLATIONS, Row, Statement
from broker.transaction import ONE_ROW, TIME, Batch, Transaction, Write


def commit(given: Given[CommitRequest], options: Options) -> Write[CommitResult]:
    """Append to a stream; see `Operations.commit`."""
    prepared = prepare(given, options.page_max_bytes)

    def recover(transaction: Transaction) -> tuple[CommitResult] | None:
        row = transaction.channel.one(_RECORDED, prepared.message_id)
        return None if row is None else (_recorded(prepared, row),)

    def apply(transaction: Transaction) -> CommitResult:
        return _apply(transaction, prepared)

    weight = sum(map(len, prepared.payloads))
    return Write(apply, recover, weight, Batch(_apply_all, prepared))


def _apply(transaction: Transaction, commit: PreparedCommit) -> CommitResult:
    try:
        return transaction.settled(partial(_judge_and_write, transaction, commit))
    except VIOLATIONS as error:
        conflict = _conflict(transaction, commit)
        if conflict is None:
            raise
        try:
            raise conflict from error
        finally:
            del conflict  # which the traceback of its own cause would keep alive


def _judge_and_write(transaction: Transaction, commit: PreparedCommit) -> CommitResult:
    judged = _judge(transaction, commit, 0)
    if isinstance(judged, CommitResult):
        return judged
    with transaction.savepoint():
        write_drafts(transaction, [judged])
    return judged.result


def _apply_all(
    transaction: Transaction, commits: Sequence[PreparedCommit]
) -> Sequence[CommitResult | Refusal]:
    """As `_apply` one after another, but written together; raises Spoilt where that fails.

    One that depends on what others write (the same message or stream, an event that an outbox
    message names) is judged after that was written.
    """
    outcomes: list[CommitResult | Refusal] = []
    drafts: list[Draft] = []
    drafted: set[str] = set()  # ids of messages and of streams
    events = 0
    for commit in commits:
        if commit.message_id in drafted or commit.stream_id in drafted or commit.references:
            _write_together(transaction, drafts)
            drafts, drafted, events = [], set(), 0
        try:
            judged = _judge(transaction, commit, events)
        except Refusal as refusal:  # without a traceback, that would keep all of them alive
            outcomes.append(refusal.with_traceback(None))
            continue
        if isinstance(judged, CommitResult):
            outcomes.append(judged)
            continue
        outcomes.append(judged.result)
        drafts.append(judged)
        drafted.update((commit.message_id, commit.stream_id))
        events += len(commit.events)
    _write_together(transaction, drafts)
    return outcomes


def _write_together(transaction: Transaction, drafts: Sequence[Draft]) -> None:
    if drafts:
        with transaction.savepoint():
            write_drafts(transaction, drafts)


# ---------------------------------------------------------------------------------------- judging


def _judge(
    transaction: Transaction, commit: PreparedCommit, events_before: int
) -> CommitResult | Draft:
    """What an earlier call has come to, or what to write.

    `events_before` are those of drafts that are not written yet. Raises a Refusal.
    """
    count = len(commit.events)
    row = cast(
        Row,
        transaction.channel.one(
            _LOOK, commit.message_id, commit.actor_id, commit.stream_id, count, transaction.mark
        ),
    )
    floor, server, found, request_hash, result_json, revision, owner = row[:7]
    if request_hash is not None:
        return _recorded(commit, (request_hash, result_json))

    now = transaction.advance(floor, server)
    require_authority(row[7:], commit.actor_id, commit.lease, commit.stream_id, now)
    if revision is not None:
        _STREAM.require([(revision, owner)], [commit.stream_id])
    _require_revision(commit, revision or 0)
    workspace_id = _owner_after(commit, owner) if commit.claims else owner
    commit.require_unique_ids()
    if commit.references:
        _require_known_events(transaction, commit)

    cursors = transaction.cursors(found, count, events_before)
    return draft(commit, revision, cursors, workspace_id, now)


def _recorded(commit: PreparedCommit, row: Row) -> CommitResult:
    """The inbox's answer to a message id that it knows."""
    message_id = commit.message_id
    _RESULT.require([row], [message_id])
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


# ------------------------------------------------------------------------------------- statements

_RESULT = Shape(InboxMessage.request_hash, InboxMessage.result_json)
_STREAM = Shape(Stream.revision, Stream.workspace_id)

_LAST_CURSOR = select(func.max(Event.cursor)).scalar_subquery()

_LOOK = Statement(
    select(
        *TIME,
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
    "count",
    "mark",
    on_postgresql=LOOK_FOR_COMMIT,
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
