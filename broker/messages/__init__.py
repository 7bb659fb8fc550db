"""What goes in and what comes out.

Requests are frozen Pydantic models: camelCase on the wire, snake_case in Python, validated whichever
way they are made. Results are slotted frozen dataclasses, which a page of events builds several
times faster. `to_json` gives either its wire form, in which an absent field stays absent.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from broker.messages.fields import ABSENT, MAX_ID_BYTES, MAX_LIST_ITEMS, MAX_PAGE_EVENTS, Absent
from broker.messages.requests import (
    AcquireLeaseRequest,
    Authorization,
    CommitRequest,
    CompareAndSwapLeaseRequest,
    GetLeaseRequest,
    GetStreamRevisionRequest,
    HeartbeatLeaseRequest,
    LeaseCredential,
    ListPendingOutboxRequest,
    ListStreamsRequest,
    MarkOutboxDeliveredRequest,
    NewEvent,
    NewOutboxMessage,
    NewProjection,
    ReadAuthorizedEventsPageRequest,
    ReadAuthorizedEventsRequest,
    ReadEventsRequest,
    ReadJournalRequest,
    ReadModelEventsRequest,
    ReadModelSourcesRequest,
    ReadProjectionRequest,
    ReleaseLeaseRequest,
    Request,
    TakeoverLeaseRequest,
)
from broker.messages.results import (
    CommitResult,
    EventsPage,
    JournalEvent,
    Lease,
    ReadModelSource,
    Result,
    StoredEvent,
    StoredOutboxMessage,
    StoredProjection,
)
from broker.messages.validation import (
    MAX_REQUEST_ID_BYTES,
    Given,
    is_id,
    validate,
    validate_and_encode,
    validate_request_id,
)

__all__ = [
    "ABSENT",
    "MAX_ID_BYTES",
    "MAX_LIST_ITEMS",
    "MAX_PAGE_EVENTS",
    "MAX_REQUEST_ID_BYTES",
    "REQUESTS",
    "RESULTS",
    "Absent",
    "AcquireLeaseRequest",
    "Authorization",
    "CommitRequest",
    "CommitResult",
    "CompareAndSwapLeaseRequest",
    "EventsPage",
    "GetLeaseRequest",
    "GetStreamRevisionRequest",
    "Given",
    "HeartbeatLeaseRequest",
    "JournalEvent",
    "Lease",
    "LeaseCredential",
    "ListPendingOutboxRequest",
    "ListStreamsRequest",
    "MarkOutboxDeliveredRequest",
    "NewEvent",
    "NewOutboxMessage",
    "NewProjection",
    "ReadAuthorizedEventsPageRequest",
    "ReadAuthorizedEventsRequest",
    "ReadEventsRequest",
    "ReadJournalRequest",
    "ReadModelEventsRequest",
    "ReadModelSource",
    "ReadModelSourcesRequest",
    "ReadProjectionRequest",
    "ReleaseLeaseRequest",
    "Request",
    "Result",
    "StoredEvent",
    "StoredOutboxMessage",
    "StoredProjection",
    "TakeoverLeaseRequest",
    "is_id",
    "json_schemas",
    "validate",
    "validate_and_encode",
    "validate_request_id",
]

REQUESTS: tuple[type[Request], ...] = (
    AcquireLeaseRequest,
    HeartbeatLeaseRequest,
    CompareAndSwapLeaseRequest,
    TakeoverLeaseRequest,
    ReleaseLeaseRequest,
    GetLeaseRequest,
    CommitRequest,
    GetStreamRevisionRequest,
    ReadEventsRequest,
    ReadAuthorizedEventsRequest,
    ReadAuthorizedEventsPageRequest,
    ListStreamsRequest,
    ReadJournalRequest,
    ReadModelEventsRequest,
    ReadModelSourcesRequest,
    ReadProjectionRequest,
    ListPendingOutboxRequest,
    MarkOutboxDeliveredRequest,
)

RESULTS: tuple[type[Result], ...] = (
    Lease,
    CommitResult,
    StoredEvent,
    JournalEvent,
    EventsPage,
    ReadModelSource,
    StoredProjection,
    StoredOutboxMessage,
)


def json_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema (2020-12) of the wire form of every request and result, by its name."""
    return {kind.__name__: TypeAdapter(kind).json_schema() for kind in (*REQUESTS, *RESULTS)}
