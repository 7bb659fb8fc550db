"""Leases: who may write to a stream, and the epoch that fences off everybody else.

A stream has one lease row, and so has an actor. An expired row is kept, for it carries the epoch; a
stream whose actor has moved on keeps its epoch in a lineage row that belongs to no actor.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeGuard, cast

from sqlalchemy import bindparam, insert, literal_column, select, update
from sqlalchemy.orm import aliased

from broker.clock import MAX_SAFE_INTEGER
from broker.errors import CorruptRow, InvalidRequest, LeaseUnavailable, StaleLease
from broker.messages import (
    AcquireLeaseRequest,
    CompareAndSwapLeaseRequest,
    GetLeaseRequest,
    Given,
    HeartbeatLeaseRequest,
    Lease,
    LeaseCredential,
    ReleaseLeaseRequest,
    TakeoverLeaseRequest,
    validate,
)
from broker.messages.results import make_lease
from broker.models import ActorLease, MutationReceipt
from broker.postgresql.sql import LOOK_FOR_MUTATION
from broker.receipts import RECORDED, Receipt
from broker.shapes import Shape
from broker.statements import Row, Statement
from broker.transaction import ONE_ROW, TIME, Read, Transaction, Write

_LINEAGE = "runtime-broker-lineage"  # after the mark of the backend


class Standing(NamedTuple):
    """What a mutation finds: broker time, the actor's last lease, the stream's last lease."""

    now: int
    of_actor: Lease | None
    of_stream: Lease | None


#: Judges what it finds and does one mutation; raises a Refusal before it has written anything.
Change: TypeAlias = Callable[[Transaction, Standing], Lease | None]


# ------------------------------------------------------------------------------------- operations


def acquire(given: Given[AcquireLeaseRequest], request_id: str | None) -> Write[Lease]:
    """Take the lease on a stream that nobody holds."""
    request = validate(AcquireLeaseRequest, given)
    actor_id, stream_id = request.actor_id, request.stream_id or request.actor_id

    def change(transaction: Transaction, found: Standing) -> Lease:
        if is_live(found.of_actor, found.now):
            raise _unavailable(actor_id, found.of_actor)
        if is_live(found.of_stream, found.now):
            raise _unavailable(actor_id, found.of_stream, stream_id)
        return _grant(transaction, found, actor_id, stream_id, request.holder_id, request.ttl_ms)

    receipt = Receipt.of("lease.acquire", request_id, request)
    return _mutation(receipt, actor_id, stream_id, request.ttl_ms, change)


def takeover(given: Given[TakeoverLeaseRequest], request_id: str | None) -> Write[Lease]:
    """Take the lease on a stream whose last lease has expired."""
    request = validate(TakeoverLeaseRequest, given)
    actor_id, stream_id = request.actor_id, request.stream_id or request.actor_id

    def change(transaction: Transaction, found: Standing) -> Lease:
        if found.of_stream is None or is_live(found.of_stream, found.now):
            raise _unavailable(actor_id, found.of_stream, stream_id)
        if is_live(found.of_actor, found.now):
            raise _unavailable(actor_id, found.of_actor, found.of_actor.stream_id)
        return _grant(transaction, found, actor_id, stream_id, request.holder_id, request.ttl_ms)

    receipt = Receipt.of("lease.takeover", request_id, request)
    return _mutation(receipt, actor_id, stream_id, request.ttl_ms, change)


def heartbeat(given: Given[HeartbeatLeaseRequest], request_id: str | None) -> Write[Lease]:
    """Keep a live lease for longer, or for less."""
    request = validate(HeartbeatLeaseRequest, given)

    def change(transaction: Transaction, found: Standing) -> Lease:
        lease = require_live(found.of_actor, request.actor_id, request.lease, found.now)
        kept = lease.extended(found.now, request.ttl_ms)
        transaction.channel.put(_EXTEND, kept.actor_id, kept.heartbeat_at, kept.expires_at)
        return kept

    receipt = Receipt.of("lease.heartbeat", request_id, request)
    return _mutation(receipt, request.actor_id, None, request.ttl_ms, change)


def compare_and_swap(
    given: Given[CompareAndSwapLeaseRequest], request_id: str | None
) -> Write[Lease]:
    """Hand a live lease to the next holder, under the next epoch."""
    request = validate(CompareAndSwapLeaseRequest, given)

    def change(transaction: Transaction, found: Standing) -> Lease:
        last = require_live(found.of_actor, request.actor_id, request.lease, found.now)
        on_its_stream = found._replace(of_stream=last)
        return _grant(
            transaction,
            on_its_stream,
            last.actor_id,
            last.stream_id,
            request.next_holder_id,
            request.ttl_ms,
        )

    receipt = Receipt.of("lease.compare-and-swap", request_id, request)
    return _mutation(receipt, request.actor_id, None, request.ttl_ms, change)


def release(given: Given[ReleaseLeaseRequest], request_id: str | None) -> Write[None]:
    """Give a live lease up; its row stays and keeps the epoch."""
    request = validate(ReleaseLeaseRequest, given)

    def change(transaction: Transaction, found: Standing) -> None:
        lease = require_live(found.of_actor, request.actor_id, request.lease, found.now)
        transaction.channel.put(_EXTEND, lease.actor_id, found.now, found.now)

    receipt = Receipt.of("lease.release", request_id, request)
    return _mutation(receipt, request.actor_id, None, 0, change)


def get(given: Given[GetLeaseRequest]) -> Read[Lease | None]:
    """The lease row of an actor, live or not."""
    request = validate(GetLeaseRequest, given)

    def read(transaction: Transaction) -> Lease | None:
        row = transaction.channel.one(_GET, request.actor_id)
        return None if row is None else _lease_in(row)

    return read


# ---------------------------------------------------------------------------------------- judging


def is_live(lease: Lease | None, now: int) -> TypeGuard[Lease]:
    """Whether there is a lease that has not expired at `now`."""
    return lease is not None and lease.expires_at > now


def require_live(
    lease: Lease | None, actor_id: str, credential: LeaseCredential, now: int
) -> Lease:
    """The actor's lease, if the credential is that of a live one; else StaleLease."""
    if lease is None or not _proves(credential, lease.epoch, lease.nonce, lease.expires_at, now):
        raise _stale(actor_id)
    return lease


def require_authority(
    row: Row, actor_id: str, credential: LeaseCredential, stream_id: str, now: int
) -> None:
    """Raise StaleLease unless `row`, of `AUTHORITY`, is a live lease on the stream."""
    leased_stream, epoch, nonce, expires_at = row
    if epoch is not None:
        _AUTHORITY.require([row], [actor_id])
    if epoch is None or not _proves(credential, epoch, nonce, expires_at, now):
        raise _stale(actor_id)
    if leased_stream != stream_id:
        raise StaleLease(
            f"the lease of {actor_id!r} is for stream {leased_stream!r}, not for {stream_id!r}",
            actorId=actor_id,
            authorizedStreamId=leased_stream,
            streamId=stream_id,
        )


def _proves(credential: LeaseCredential, epoch: int, nonce: str, expires_at: int, now: int) -> bool:
    return (
        expires_at > now
        and epoch == credential.epoch
        and hmac.compare_digest(nonce.encode(), credential.nonce.encode())
    )


def _stale(actor_id: str) -> StaleLease:
    return StaleLease(
        f"the lease that {actor_id!r} shows is not, or no longer, live: acquire it again",
        actorId=actor_id,
    )


def _unavailable(
    actor_id: str, blocking: Lease | None, stream_id: str | None = None
) -> LeaseUnavailable:
    details: dict[str, Any] = {"actorId": actor_id}
    if blocking is not None:
        details["expiresAt"] = blocking.expires_at
    if stream_id is not None:
        details["streamId"] = stream_id
    return LeaseUnavailable(_why_unavailable(actor_id, blocking, stream_id), **details)


def _why_unavailable(actor_id: str, blocking: Lease | None, stream_id: str | None) -> str:
    if blocking is None:
        return f"stream {stream_id!r} never had a lease to take over: acquire it"
    return (
        f"{actor_id!r} cannot have the lease: {blocking.actor_id!r} holds"
        f" {blocking.stream_id!r} until {blocking.expires_at}"
    )


# ------------------------------------------------------------------------------------------ doing


def _mutation(
    receipt: Receipt, actor_id: str, stream_id: str | None, ttl_ms: int, change: Change
) -> Write[Any]:
    """A lease mutation: looked up in the receipts, judged, done, and recorded there."""

    def recover(transaction: Transaction) -> tuple[Lease | None] | None:
        recorded = receipt.find(transaction)
        return None if recorded is None else (_recorded(receipt, recorded[0]),)

    def mutate(transaction: Transaction) -> Lease | None:
        row = cast(Row, transaction.channel.one(_LOOK, receipt.request_id, actor_id, stream_id))
        if row[2] is not None:
            return _recorded(receipt, receipt.match(row[2:5])[0])
        now = transaction.advance(*row[:2])
        if now + ttl_ms > MAX_SAFE_INTEGER:
            raise InvalidRequest("ttlMs: broker time + ttlMs must be a safe integer", field="ttlMs")

        found = Standing(now, _lease_in(row[5:13]), _lease_in(row[13:21]))
        with transaction.savepoint():
            lease = change(transaction, found)
            receipt.record(transaction, lease, now)
        return lease

    return Write(lambda transaction: transaction.settled(partial(mutate, transaction)), recover)


def _grant(
    transaction: Transaction,
    found: Standing,
    actor_id: str,
    stream_id: str,
    holder_id: str,
    ttl_ms: int,
) -> Lease:
    """A new lease, one epoch after the stream's last, in place of that and of the actor's last."""
    epoch = 1 if found.of_stream is None else found.of_stream.epoch + 1
    if epoch > MAX_SAFE_INTEGER:
        raise InvalidRequest(f"the epochs of stream {stream_id!r} are used up", field="lease.epoch")
    drawn = {"epoch": epoch, "nonce": transaction.options.nonce()}
    nonce = validate(LeaseCredential, drawn).nonce
    now = found.now
    lease = Lease(actor_id, stream_id, holder_id, epoch, nonce, now, now, now + ttl_ms)

    if found.of_actor is not None and found.of_actor.stream_id != stream_id:
        _leave_behind(transaction, found.of_actor)
    transaction.channel.put(_INSERT if found.of_stream is None else _REPLACE, *_row_of(lease))
    return lease


def _leave_behind(transaction: Transaction, lease: Lease) -> None:
    """Keep the epoch of a stream that its actor leaves, so that it never goes back."""
    mark = transaction.lineage_mark
    lineage_id = f"{mark}{_LINEAGE}:{lease.stream_id.encode().hex().upper()}"
    nonce = secrets.token_hex(16)
    transaction.channel.put(_RENAME, lease.actor_id, lineage_id, f"{mark}{_LINEAGE}", nonce)


_row_of = attrgetter(*[each.name for each in fields(Lease)])  # in the order of `_COLUMNS`


def _lease_in(row: Row) -> Lease | None:
    if row[0] is None:
        return None
    _LEASE.require([row])
    return make_lease(*row)


def _recorded(receipt: Receipt, response: Any) -> Lease | None:
    if response is None and receipt.method == "lease.release":
        return None
    try:
        return Lease.from_json(response)
    except (AttributeError, KeyError, TypeError) as error:
        raise CorruptRow(
            f"the receipt of {receipt.request_id!r} does not hold a lease",
            table="mutation_receipts",
            row=receipt.request_id,
            column="response_json",
        ) from error


# ------------------------------------------------------------------------------------- statements


#: What `require_authority` judges, for statements that join the actor's lease.
AUTHORITY = (ActorLease.stream_id, ActorLease.epoch, ActorLease.nonce, ActorLease.expires_at)


def lease_columns(entity: Any) -> tuple[Any, ...]:
    """The columns of a lease row, in the order of `Lease`."""
    return (
        entity.actor_id,
        entity.stream_id,
        entity.holder_id,
        entity.epoch,
        entity.nonce,
        entity.acquired_at,
        entity.heartbeat_at,
        entity.expires_at,
    )


_LEASE = Shape(*lease_columns(ActorLease))
_AUTHORITY = Shape(*AUTHORITY)

_OnStream = aliased(ActorLease)

_LOOK = Statement(
    select(*TIME, *RECORDED, *lease_columns(ActorLease), *lease_columns(_OnStream))
    .select_from(ONE_ROW)
    .outerjoin(MutationReceipt, MutationReceipt.request_id == bindparam("request_id"))
    .outerjoin(ActorLease, ActorLease.actor_id == bindparam("actor_id"))
    .outerjoin(_OnStream, _OnStream.stream_id == bindparam("stream_id")),
    "request_id",
    "actor_id",
    "stream_id",
    on_postgresql=LOOK_FOR_MUTATION,
)

_GET = Statement(
    select(*lease_columns(ActorLease)).where(ActorLease.actor_id == bindparam("actor_id")),
    "actor_id",
)

_EXTEND = Statement(
    update(ActorLease)
    .where(ActorLease.actor_id == bindparam("of_actor"))
    .values(heartbeat_at=bindparam("now"), expires_at=bindparam("until")),
    "of_actor",
    "now",
    "until",
)

_RENAME = Statement(
    update(ActorLease)
    .where(ActorLease.actor_id == bindparam("of_actor"))
    .values(
        actor_id=bindparam("lineage"),
        holder_id=bindparam("holder"),
        nonce=bindparam("secret"),
        acquired_at=literal_column("0"),
        heartbeat_at=literal_column("0"),
        expires_at=literal_column("0"),
    ),
    "of_actor",
    "lineage",
    "holder",
    "secret",
)

_COLUMNS = tuple(each.name for each in fields(Lease))

_INSERT = Statement(insert(ActorLease), *_COLUMNS)

# Not deleted and inserted: who waits for a row that others lock would not see another in its place.
_REPLACE = Statement(
    update(ActorLease)
    .where(ActorLease.stream_id == bindparam("stream_id"))
    .values({name: bindparam(name) for name in _COLUMNS if name != "stream_id"}),
    *_COLUMNS,
)
