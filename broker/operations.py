"""Every operation of the store, once.

`Broker` and `UnitOfWork` differ in who owns the transaction, and in nothing else: both derive their
methods from here and say only how something is read and how something is written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from broker import journal, leases, outbox, projections, reads, walks
from broker.messages import (
    AcquireLeaseRequest,
    CommitRequest,
    CommitResult,
    CompareAndSwapLeaseRequest,
    EventsPage,
    GetLeaseRequest,
    GetStreamRevisionRequest,
    Given,
    HeartbeatLeaseRequest,
    JournalEvent,
    Lease,
    ListPendingOutboxRequest,
    ListStreamsRequest,
    MarkOutboxDeliveredRequest,
    ReadAuthorizedEventsPageRequest,
    ReadAuthorizedEventsRequest,
    ReadEventsRequest,
    ReadJournalRequest,
    ReadModelEventsRequest,
    ReadModelSource,
    ReadModelSourcesRequest,
    ReadProjectionRequest,
    ReleaseLeaseRequest,
    StoredEvent,
    StoredOutboxMessage,
    StoredProjection,
    TakeoverLeaseRequest,
)
from broker.options import Options
from broker.transaction import Read, Write
from broker.walks import E, Walk

T = TypeVar("T")
P = ParamSpec("P")

_ANY_PENDING = ListPendingOutboxRequest()


class Operations(ABC):
    """The operations. Each takes its request message, or a mapping with the same content.

    All of them raise InvalidRequest for a request that cannot be accepted, with the path of the
    first fault in `details["field"]`, and the errors of the database described in `broker.errors`.
    A refused operation leaves nothing but the store's clock. Times are broker time, in
    milliseconds since 1970.
    """

    options: Options

    @abstractmethod
    def _read(self, make: Callable[P, Read[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what `make` gives for these arguments in a transaction that only reads.

        `make` takes no part in the transaction; it may be called on another thread.
        """

    @abstractmethod
    def _write(self, make: Callable[P, Write[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `_read`, in a transaction that writes."""

    def _walk(self, make: Callable[P, Walk[E]], *args: P.args, **kwargs: P.kwargs) -> Iterator[E]:
        """Walk what `make` gives for these arguments, each page being a `_read`."""
        return walks.each(self._read, make(*args, **kwargs))

    # ------------------------------------------------------------------------------------- leases

    def acquire_lease(
        self, request: Given[AcquireLeaseRequest], *, request_id: str | None = None
    ) -> Lease:
        """Take the lease on a stream, one epoch after its last one.

        With `request_id` the call is safe to repeat: the same request gets the recorded response,
        whatever has happened to the lease since. Raises LeaseUnavailable while the actor or
        somebody else on the stream holds a live lease, IdempotencyConflict when the request id
        was used for something else.
        """
        return self._write(leases.acquire, request, request_id)

    def heartbeat_lease(
        self, request: Given[HeartbeatLeaseRequest], *, request_id: str | None = None
    ) -> Lease:
        """Let a live lease expire `ttl_ms` from now, which may be sooner than before.

        Epoch and nonce stay. `request_id` as in `acquire_lease`. Raises StaleLease.
        """
        return self._write(leases.heartbeat, request, request_id)

    def compare_and_swap_lease(
        self, request: Given[CompareAndSwapLeaseRequest], *, request_id: str | None = None
    ) -> Lease:
        """Hand a live lease to `next_holder_id`, under the next epoch and a fresh nonce.

        `request_id` as in `acquire_lease`. Raises StaleLease.
        """
        return self._write(leases.compare_and_swap, request, request_id)

    def takeover_lease(
        self, request: Given[TakeoverLeaseRequest], *, request_id: str | None = None
    ) -> Lease:
        """Take the lease on a stream that has had one which has expired, one's own included.

        `request_id` as in `acquire_lease`. Raises LeaseUnavailable while that lease is live, when
        there never was one, and while the actor holds a live lease elsewhere.
        """
        return self._write(leases.takeover, request, request_id)

    def release_lease(
        self, request: Given[ReleaseLeaseRequest], *, request_id: str | None = None
    ) -> None:
        """Let a live lease expire now; its row stays and keeps the epoch.

        `request_id` as in `acquire_lease`. Raises StaleLease.
        """
        return self._write(leases.release, request, request_id)

    def get_lease(self, request: Given[GetLeaseRequest]) -> Lease | None:
        """The lease row of an actor, live or not; None if it has none."""
        return self._read(leases.get, request)

    # ------------------------------------------------------------------------------------ commits

    def commit(self, request: Given[CommitRequest]) -> CommitResult:
        """Append events, and store outbox messages, projections and the inbox record with them.

        All of it happens, or none. The call is safe to repeat: the same request under the same
        message id gets the recorded result, with `recovered=True`, whether or not its lease is
        still live.

        Raises StaleLease when the credential is not the live one of a lease on this stream;
        RevisionConflict when the stream is not at `expected_revision`; IdempotencyConflict when
        the message id, an event or outbox id, or a projection id was used for something else;
        InvalidRequest also for a runtime event of another stream or workspace, an outbox message
        of an unknown event, and an event too large for a page.
        """
        return self._write(journal.commit, request, self.options)

    # -------------------------------------------------------------------------------------- reads

    def get_stream_revision(self, request: Given[GetStreamRevisionRequest]) -> int:
        """The number of events of a stream, 0 when it is unknown."""
        return self._read(reads.stream_revision, request)

    def read_events(self, request: Given[ReadEventsRequest]) -> list[StoredEvent]:
        """All events of a stream after `after_revision`, in revision order."""
        return self._read(reads.events, request)

    def read_authorized_events(
        self, request: Given[ReadAuthorizedEventsRequest]
    ) -> list[StoredEvent]:
        """As `read_events`, for the holder of a live lease on the stream. Raises StaleLease."""
        return self._read(reads.authorized_events, request)

    def read_authorized_events_page(
        self, request: Given[ReadAuthorizedEventsPageRequest]
    ) -> EventsPage:
        """A page of a stream, for the holder of a live lease on it.

        It holds at most `limit` events, and as many as fit into the byte budget as a JSON array.
        Raises StaleLease; InvalidRequest also when `through_revision` is ahead of the stream or
        the first event alone exceeds the budget.
        """
        return self._read(reads.authorized_events_page, request)

    def list_streams(self, request: Given[ListStreamsRequest]) -> list[str]:
        """Ids of a workspace's streams that begin with a literal prefix, in byte order."""
        return self._read(reads.list_streams, request)

    def read_model_events(self, request: Given[ReadModelEventsRequest]) -> list[JournalEvent]:
        """A page of a workspace's read-model events after a cursor, in cursor order.

        It keeps within the store's byte budget, but a first event that exceeds it comes alone.
        """
        return self._read(reads.read_model_events, request)

    def read_journal(self, request: Given[ReadJournalRequest]) -> list[JournalEvent]:
        """A page of all events of the database after a cursor, in cursor order.

        It keeps within the byte budget of pages, but a first event that exceeds it comes alone.
        """
        return self._read(reads.journal, request)

    def walk_events(self, request: Given[ReadEventsRequest]) -> Iterator[StoredEvent]:
        """All events of a stream after `after_revision`, in revision order, read page by page.

        However many there are, no more than two pages of them are in memory. A page is what one
        transaction reads: at most 128 events and as many as fit into the byte budget of pages, but
        a first event that exceeds it comes alone. The walk goes on, through what is written
        meanwhile too, until it finds nothing more. Between pages it holds neither a connection nor
        a transaction (a `UnitOfWork` reads in its session's), so it may pause or be abandoned
        anywhere. Raises CorruptRow after the events before such a row.
        """
        return self._walk(walks.events, request)

    def walk_journal(self, request: Given[ReadJournalRequest]) -> Iterator[JournalEvent]:
        """As `walk_events`, all events of the database after a cursor, in cursor order.

        The pages are those of `read_journal`.
        """
        return self._walk(walks.journal, request)

    def walk_read_model_events(
        self, request: Given[ReadModelEventsRequest]
    ) -> Iterator[JournalEvent]:
        """As `walk_events`, a workspace's read-model events after a cursor, in cursor order.

        The pages are those of `read_model_events`.
        """
        return self._walk(walks.read_model_events, request)

    def read_model_sources(self, request: Given[ReadModelSourcesRequest]) -> list[ReadModelSource]:
        """A workspace's streams that have read-model events, with the state of their leases."""
        return self._read(reads.read_model_sources, request)

    def read_projection(self, request: Given[ReadProjectionRequest]) -> StoredProjection | None:
        """A projection by its id, or None."""
        return self._read(projections.read, request)

    # ------------------------------------------------------------------------------------- outbox

    def list_pending_outbox(
        self, request: Given[ListPendingOutboxRequest] = _ANY_PENDING
    ) -> list[StoredOutboxMessage]:
        """Messages that are due at `as_of` and not delivered, by creation time and id."""
        return self._read(outbox.list_pending, request)

    def mark_outbox_delivered(self, request: Given[MarkOutboxDeliveredRequest]) -> bool:
        """Mark a message as delivered and count the attempt; whether it was this call that did."""
        return self._write(outbox.mark_delivered, request)

    # ----------------------------------------------------------------------------- the database

    def table_names(self) -> list[str]:
        """The names of all tables of the database, sorted."""
        return self._read(reads.table_names)

    @property
    def journal_mode(self) -> str:
        """How the database keeps its journal, which is "wal" on a connection of the store's."""
        return self._read(reads.journal_mode)
