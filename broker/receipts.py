"""Receipts: what makes a lease mutation safe to repeat by its request id."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
from sqlalchemy import Select, bindparam, delete, func, insert, literal_column, select

from broker.canonical import NotJson, canonical_of, decode, digest
from broker.errors import CorruptRow, IdempotencyConflict
from broker.messages import Lease, Request, validate_request_id
from broker.models import MutationReceipt
from broker.postgresql.sql import MAKE_ROOM
from broker.shapes import Shape
from broker.statements import Row, Statement
from broker.transaction import Transaction


class Receipt(NamedTuple):
    """One mutation as the receipts know it; without `request_id` it is not remembered."""

    method: str
    request_id: str | None
    params_hash: str

    @classmethod
    def of(cls, method: str, request_id: str | None, request: Request) -> Receipt:
        """The receipt of a valid request as it was sent; the hash is of its canonical JSON.

        The request has no field that holds any JSON value. Raises InvalidRequest for a request id
        that is none.
        """
        if validate_request_id(request_id) is None:
            return cls(method, None, "")
        return cls(method, request_id, digest(canonical_of(request.to_json())))

    def find(self, transaction: Transaction) -> tuple[Any] | None:
        """The recorded response as a tuple of one, or None.

        Raises IdempotencyConflict when the id belongs to another method or other parameters.
        """
        if self.request_id is None:
            return None
        row = transaction.channel.one(_FIND, self.request_id)
        return None if row is None else self.match(row)

    def match(self, row: Row) -> tuple[Any]:
        """The response in `row` (see `RECORDED`); raises as `find`."""
        _SHAPE.require([row], [self.request_id])
        method, params_hash, response_json = row
        if (method, params_hash) != (self.method, self.params_hash):
            raise IdempotencyConflict(
                f"requestId {self.request_id!r} was used before for another request",
                requestId=self.request_id,
                method=self.method,
            )
        try:
            return (decode(response_json),)
        except NotJson as error:
            raise CorruptRow(
                f"the receipt of {self.request_id!r} holds text that {error}",
                table="mutation_receipts",
                row=self.request_id,
                column="response_json",
            ) from error

    def record(self, transaction: Transaction, response: Lease | None, now: int) -> None:
        """Remember the response, after the oldest receipts have made room for it."""
        if self.request_id is None:
            return
        # A lease has ids and safe integers, which orjson by itself writes in the stored form.
        text = orjson.dumps(response and response.to_json()).decode()
        transaction.channel.put(_MAKE_ROOM, transaction.options.receipt_capacity - 1)
        transaction.channel.put(_RECORD, self.request_id, self.method, self.params_hash, text, now)


RECORDED = (MutationReceipt.method, MutationReceipt.params_hash, MutationReceipt.response_json)

_SHAPE = Shape(*RECORDED)

_FIND = Statement(
    select(*RECORDED).where(MutationReceipt.request_id == bindparam("request_id")), "request_id"
)


def _oldest_beyond(kept: Any) -> Select[Any]:
    # Counting by itself visits pages only; as part of a larger aggregate it would visit rows.
    count = select(func.count()).select_from(MutationReceipt).scalar_subquery()
    return (
        select(MutationReceipt.request_id)
        .order_by(MutationReceipt.created_at, MutationReceipt.request_id)
        .limit(func.max(count - kept, literal_column("0")))
    )


_MAKE_ROOM = Statement(
    delete(MutationReceipt).where(
        MutationReceipt.request_id.in_(_oldest_beyond(bindparam("kept")))
    ),
    "kept",
    on_postgresql=MAKE_ROOM,
)

_RECORD = Statement(
    insert(MutationReceipt),
    "request_id",
    "method",
    "params_hash",
    "response_json",
    "created_at",
)
