"""Walks: many events one by one, read page by page in bounded memory.

What is walked is said once, as pages; the drivers that read them, one for either kind of caller,
know nothing of it. Between two pages a walk holds no connection, no transaction and no cursor, so
that one which is abandoned leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from broker import reads
from broker.errors import CorruptRow
from broker.messages import (
    MAX_PAGE_EVENTS,
    Given,
    JournalEvent,
    ReadEventsRequest,
    ReadJournalRequest,
    ReadModelEventsRequest,
    StoredEvent,
    validate,
)
from broker.statements import Undecodable
from broker.transaction import Read, Transaction

E = TypeVar("E", bound=StoredEvent)

#: Makes the read of a page: the events after a place, at most so many.
Page: TypeAlias = Callable[[int, int], Read[list[E]]]


class Walk(NamedTuple, Generic[E]):
    """Pages one after another until one is empty.

    The first comes after the place `after`, every other after that of the last event before it,
    which `place` tells.
    """

    page: Page[E]
    after: int
    limit: int
    place: Callable[[E], int]


def events(given: Given[ReadEventsRequest]) -> Walk[StoredEvent]:
    """A walk of a stream after a revision."""
    request = validate(ReadEventsRequest, given)
    page = partial(reads.stream_page, request.stream_id)
    return Walk(page, request.after_revision, MAX_PAGE_EVENTS, attrgetter("revision"))


def journal(given: Given[ReadJournalRequest]) -> Walk[JournalEvent]:
    """A walk of all events of the database after a cursor."""
    request = validate(ReadJournalRequest, given)
    return Walk(reads.journal_page, request.after_cursor, request.limit, attrgetter("cursor"))


def read_model_events(given: Given[ReadModelEventsRequest]) -> Walk[JournalEvent]:
    """A walk of a workspace's read-model events after a cursor."""
    request = validate(ReadModelEventsRequest, given)
    page = partial(reads.read_model_page, request.workspace_id)
    return Walk(page, request.after_cursor, request.limit, attrgetter("cursor"))


def next_page(walk: Walk[E], after: int) -> Read[list[E]]:
    """The walk's page after a place.

    Where a row in it cannot be read, the first event comes alone if that one can: so a walk gives
    all events before such a row, and then ends with the error.
    """

    def read(transaction: Transaction) -> list[E]:
        try:
            return walk.page(after, walk.limit)(transaction)
        except (CorruptRow, Undecodable):
            return walk.page(after, 1)(transaction)

    return read


# ---------------------------------------------------------------------------------------- drivers


def each(read: Callable[..., list[E]], walk: Walk[E]) -> Iterator[E]:
    """The events of a walk; `read` is the `_read` of `Operations`."""
    after = walk.after
    while page := read(next_page, walk, after):
        yield from page
        after = walk.place(page[-1])


async def each_async(read: Callable[..., Awaitable[list[E]]], walk: Walk[E]) -> AsyncIterator[E]:
    """As `each`, where what `read` gives is awaited."""
    after = walk.after
    while page := await read(next_page, walk, after):
        for event in page:
            yield event
        after = walk.place(page[-1])
