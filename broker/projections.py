"""Projections: values derived from a stream, kept in step with it by the same transaction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, case, select
from sqlalchemy.dialects.sqlite import insert

from broker.commits import PreparedCommit
from broker.events import stored_json
from broker.messages import Given, ReadProjectionRequest, StoredProjection, validate
from broker.models import Projection
from broker.shapes import Shape
from broker.statements import Row, Statement
from broker.transaction import Read, Transaction


def read(given: Given[ReadProjectionRequest]) -> Read[StoredProjection | None]:
    """A projection by its id, or None."""
    request = validate(ReadProjectionRequest, given)

    def read(transaction: Transaction) -> StoredProjection | None:
        row = transaction.channel.one(_READ, request.projection_id)
        if row is None:
            return None
        _SHAPE.require([row], [request.projection_id])
        stream_id, revision, value_json, updated_at = row
        value = stored_json(value_json, "projections", request.projection_id, "value_json")
        return StoredProjection(stream_id, revision, value, updated_at)

    return read


def projection_rows(commit: PreparedCommit, revision: int, now: int) -> list[Row]:
    """What `upsert_projections` takes for the projections of a commit."""
    return [
        (projection_id, commit.stream_id, revision, value, now)
        for projection_id, value in zip(commit.projection_ids, commit.values, strict=True)
    ]


def upsert_projections(transaction: Transaction, rows: Sequence[Row]) -> None:
    """Store projections; a constraint objects to one that belongs to another stream."""
    transaction.channel.put_each(_UPSERT, rows)


def foreign_projection(transaction: Transaction, commit: PreparedCommit) -> str | None:
    """The first projection of the commit that belongs to another stream."""
    for projection_id in commit.projection_ids:
        row = transaction.channel.one(_READ, projection_id)
        if row is not None and row[0] != commit.stream_id:
            return projection_id
    return None


_COLUMNS = (
    Projection.stream_id,
    Projection.revision,
    Projection.value_json,
    Projection.updated_at,
)
_SHAPE = Shape(*_COLUMNS)

_READ = Statement(
    select(*_COLUMNS).where(Projection.projection_id == bindparam("id")),
    "id",
)

_new = insert(Projection).values(
    projection_id=bindparam("id"),
    stream_id=bindparam("stream"),
    revision=bindparam("at"),
    value_json=bindparam("value"),
    updated_at=bindparam("now"),
)

_UPSERT = Statement(
    _new.on_conflict_do_update(
        index_elements=[Projection.projection_id],
        set_={
            "revision": case(  # else null, which it must not be
                (Projection.stream_id == _new.excluded.stream_id, _new.excluded.revision)
            ),
            "value_json": _new.excluded.value_json,
            "updated_at": _new.excluded.updated_at,
        },
    ),
    "id",
    "stream",
    "at",
    "value",
    "now",
)
