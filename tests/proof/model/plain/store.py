"""Every operation on the plain database, as one process does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.proof.model.plain import commits, leases, reads
from tests.proof.model.plain.database import Database, Refused, Row
from tests.proof.model.plain.requests import accepted, is_id
from tests.proof.model.plain.text import sha256
from tests.proof.model.plain.time import BrokerTime
from tests.support import ManualClock

MOST = 2**53 - 1

#: `{"result": …}` or `{"error": {"code": …, "details": …}}`, in the wire form.
Answer = dict[str, Any]

MUTATIONS: dict[str, tuple[str, Callable[..., Row | None]]] = {
    "acquire_lease": ("lease.acquire", leases.acquire),
    "heartbeat_lease": ("lease.heartbeat", leases.heartbeat),
    "compare_and_swap_lease": ("lease.compare-and-swap", leases.compare_and_swap),
    "takeover_lease": ("lease.takeover", leases.takeover),
    "release_lease": ("lease.release", leases.release),
}


@dataclass(frozen=True)
class Limits:
    """What a process was told at its opening."""

    receipt_capacity: int = 4_096
    page_max_bytes: int = 1_044_480
    read_model_max_bytes: int = 524_288


@dataclass
class PlainStore:
    """A process that has the database open; its nonces are those of `name`, counted."""

    database: Database
    hands: ManualClock
    name: str
    limits: Limits = field(default_factory=Limits)
    nonces: count[int] = field(default_factory=lambda: count(1))
    time: BrokerTime = field(init=False)
    now_of_unit: int | None = None
    is_time_of_unit: bool = False
    journal_ends: int = MOST

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """A new process takes the place of the one before."""
        self.time = BrokerTime(self.hands)
        self._advance()

    def begin_unit(self, *, on_server: bool) -> None:
        """A transaction of the application's begins.

        In a file it reads the time once; on a server it does not see its own events in the journal.
        """
        self.now_of_unit, self.is_time_of_unit = None, not on_server
        self.journal_ends = self.database.last_cursor if on_server else MOST

    def end_unit(self) -> None:
        """It ends."""
        self.now_of_unit, self.is_time_of_unit, self.journal_ends = None, False, MOST

    def answer(
        self,
        operation: str,
        request: Any,
        request_id: Any = None,
        cursors: Sequence[int] | None = None,
    ) -> Answer:
        """What an operation answers; `cursors` are those to be given, else the next ones."""
        try:
            if operation in MUTATIONS:
                return {"result": self._mutate(operation, request, request_id)}
            if operation == "commit":
                return {"result": self._commit(accepted("commit", request), cursors)}
            return {"result": getattr(self, f"_{operation}")(accepted(operation, request))}
        except Refused as refused:
            error: Answer = {"code": refused.code}
            if refused.details:
                error["details"] = refused.details
            return {"error": error}

    # --------------------------------------------------------------------------------------- time

    def _advance(self) -> int:
        now = self._observe()
        self.database.floor = max(self.database.floor, now)
        return now

    def _observe(self) -> int:
        floor = self.database.floor
        if self.now_of_unit is not None and self.is_time_of_unit and self.now_of_unit >= floor:
            return self.now_of_unit
        self.now_of_unit = self.time.read(floor)
        return self.now_of_unit

    def _peek(self) -> int:
        if self.is_time_of_unit and self.now_of_unit is not None:
            return self.now_of_unit
        return self.time.peek(self.database.floor)

    # ------------------------------------------------------------------------------------- writes

    def _mutate(self, operation: str, given: Any, request_id: Any) -> Row | None:
        request = accepted(operation, given)
        if request_id is not None and not is_id(request_id, 256):
            raise Refused("invalid_request", field="requestId")
        method, change = MUTATIONS[operation]
        receipt = self.database.receipts.get(request_id)
        if receipt is not None:
            if (receipt["method"], receipt["paramsHash"]) != (method, sha256(request)):
                raise Refused("idempotency_conflict", requestId=request_id, method=method)
            response: Row | None = receipt["response"]
            return response

        now = self._advance()
        if now + request.get("ttlMs", 0) > MOST:
            raise Refused("invalid_request", field="ttlMs")
        response = change(self.database, request, now, self._nonce)
        if request_id is not None:
            self._remember(request_id, method, request, response, now)
        return response

    def _nonce(self) -> str:
        return f"{self.name}-{next(self.nonces)}"

    def _remember(
        self, request_id: str, method: str, request: Row, response: Row | None, now: int
    ) -> None:
        receipts = self.database.receipts
        by_age = sorted(receipts, key=lambda each: (receipts[each]["createdAt"], each.encode()))
        surplus = len(receipts) + 1 - self.limits.receipt_capacity
        for oldest in by_age[: max(0, surplus)]:
            del receipts[oldest]
        receipts[request_id] = {
            "method": method,
            "paramsHash": sha256(request),
            "response": response,
            "createdAt": now,
        }

    def _commit(self, request: Row, cursors: Sequence[int] | None) -> Row:
        commits.require_readable(request, self.limits.page_max_bytes)
        hashed = {
            name: value for name, value in request.items() if name not in ("lease", "committedAt")
        }
        recorded = self.database.inbox.get(request["messageId"])
        if recorded is not None:
            if recorded["requestHash"] != sha256(hashed):
                raise Refused("idempotency_conflict", messageId=request["messageId"])
            return {**recorded["result"], "recovered": True}

        now = self._advance()
        owner = commits.judge(self.database, request, now)
        if cursors is None:
            next_one = self.database.last_cursor + 1
            cursors = range(next_one, next_one + len(request["events"]))
        result = commits.write(self.database, request, owner, cursors, now)
        self.database.inbox[request["messageId"]] = {
            "requestHash": sha256(hashed),
            "result": result,
        }
        return result

    def _mark_outbox_delivered(self, request: Row) -> bool:
        return reads.mark_delivered(self.database, request, self._peek())

    # -------------------------------------------------------------------------------------- reads

    def _get_lease(self, request: Row) -> Row | None:
        lease = self.database.lease_of(request["actorId"])
        return None if lease is None else dict(lease)

    def _get_stream_revision(self, request: Row) -> int:
        return self.database.revision_of(request["streamId"])

    def _read_events(self, request: Row) -> list[Row]:
        return reads.of_stream(self.database, request)

    _walk_events = _read_events

    def _read_authorized_events(self, request: Row) -> list[Row]:
        self._authorize(request["authorization"], request["streamId"])
        return reads.of_stream(self.database, request)

    def _read_authorized_events_page(self, request: Row) -> Row:
        self._authorize(request, request["streamId"])
        return reads.page(self.database, request, self.limits.page_max_bytes)

    def _authorize(self, reader: Row, stream_id: str) -> None:
        now = self._observe()
        leases.require_authority(self.database, reader["actorId"], reader["lease"], stream_id, now)

    def _list_streams(self, request: Row) -> list[str]:
        return reads.streams(self.database, request)

    def _read_journal(self, request: Row) -> list[Row]:
        found = reads.journal(self.database, request, self.journal_ends)[
            : request.get("limit", 128)
        ]
        return reads.fitting_or_first(found, self.limits.page_max_bytes)

    def _walk_journal(self, request: Row) -> list[Row]:
        return reads.journal(self.database, request, self.journal_ends)

    def _read_model_events(self, request: Row) -> list[Row]:
        found = reads.read_model(self.database, request, self.journal_ends)[
            : request.get("limit", 128)
        ]
        return reads.fitting_or_first(found, self.limits.read_model_max_bytes)

    def _walk_read_model_events(self, request: Row) -> list[Row]:
        return reads.read_model(self.database, request, self.journal_ends)

    def _read_model_sources(self, request: Row) -> list[Row]:
        return reads.sources(self.database, request, self._observe())

    def _read_projection(self, request: Row) -> Row | None:
        return self.database.projections.get(request["projectionId"])

    def _list_pending_outbox(self, request: Row) -> list[Row]:
        return reads.pending(self.database, request, self._peek())
