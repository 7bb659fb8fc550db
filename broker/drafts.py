"""What commits leave in the database, once they are judged: many at a time, a table at a time.

Where many commits share a transaction, to write one kind of row after the other, instead of one
commit after the other, takes a third of the processor's time away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import bindparam, func, insert, update

from broker.commits import PreparedCommit
from broker.messages import CommitResult
from broker.messages.results import make_commit_result
from broker.models import Event, InboxMessage, Stream
from broker.outbox import insert_outbox, outbox_rows
from broker.postgresql.rows import RowsByTable, write_rows
from broker.projections import projection_rows, upsert_projections
from broker.statements import Row, Statement
from broker.transaction import Transaction


class Draft(NamedTuple):
    """A commit that may be written, and what it will have come to.

    `workspace_id` owns its stream then, or nobody does; `is_first` if the stream is new.
    """

    commit: PreparedCommit
    result: CommitResult
    workspace_id: str | None
    is_first: bool


def draft(
    commit: PreparedCommit,
    revision: int | None,
    event_cursors: tuple[int, ...],
    workspace_id: str | None,
    now: int,
) -> Draft:
    """The draft of a commit that comes after `revision`, None for a new stream."""
    before, count = revision or 0, len(commit.events)
    event_ids = tuple([event[0] for event in commit.events])
    outbox_ids = tuple([message[0] for message in commit.outbox])
    recovered = False
    result = make_commit_result(
        commit.message_id,
        commit.stream_id,
        before,
        before + count,
        event_ids,
        event_cursors,
        outbox_ids,
        now,
        recovered,
        commit.inbox_result,
    )
    return Draft(commit, result, workspace_id, is_first=revision is None)


def write_drafts(transaction: Transaction, drafts: Sequence[Draft]) -> None:
    """Write drafts of different streams, none of which refers to another.

    A constraint objects to an id that was used before, and to a projection of another stream.
    """
    rows = _rows_of(drafts)
    if transaction.channel.style.dialect == "postgresql":
        write_rows(transaction.channel, rows)
    else:
        _write_a_table_at_a_time(transaction, rows)


def _rows_of(drafts: Sequence[Draft]) -> RowsByTable:
    rows = RowsByTable([], [], [], [], [], [])
    for commit, result, workspace_id, is_first in drafts:
        revision, now = result.revision, result.applied_at
        streams = rows.new_streams if is_first else rows.moved_streams
        streams.append((commit.stream_id, revision, now, workspace_id))
        rows.inbox.append(_inbox_row(commit, result))
        rows.events.extend(_event_rows(commit, result))
        rows.outbox.extend(outbox_rows(commit, now))
        rows.projections.extend(projection_rows(commit, revision, now))
    return rows


def _write_a_table_at_a_time(transaction: Transaction, rows: RowsByTable) -> None:
    put_each = transaction.channel.put_each
    if rows.new_streams:
        put_each(_NEW_STREAM, rows.new_streams)
    if rows.moved_streams:
        put_each(_MOVE_STREAM, rows.moved_streams)
    put_each(_REMEMBER, rows.inbox)  # before the events: after them SQLite would scan those for it
    if rows.events:
        put_each(_APPEND, rows.events)
    if rows.outbox:
        insert_outbox(transaction, rows.outbox)
    if rows.projections:
        upsert_projections(transaction, rows.projections)


def _inbox_row(commit: PreparedCommit, result: CommitResult) -> Row:
    form: dict[str, Any] = {
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
    return (
        result.message_id,
        commit.request_hash,
        result.stream_id,
        result.revision,
        orjson.dumps(form).decode(),
        result.applied_at,
    )


def _event_rows(commit: PreparedCommit, result: CommitResult) -> list[Row]:
    message_id, stream_id, epoch = commit.message_id, commit.stream_id, commit.lease.epoch
    now, revision = result.applied_at, result.previous_revision
    rows: list[Row] = []
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
    return rows


# ------------------------------------------------------------------------------------- statements

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
