"""Writes that fail in a group, each for another reason, and writes that go well beside them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker import Broker, journal, leases
from broker.errors import (
    CorruptRow,
    DatabaseError,
    DatabaseUnavailable,
    IdempotencyConflict,
    InvalidRequest,
    LeaseUnavailable,
    RevisionConflict,
    StaleLease,
)
from broker.messages import CommitResult, Lease
from broker.transaction import Transaction, Write
from tests.group_support import (
    queue_of,
)
from tests.journal_support import projection
from tests.places import raw
from tests.support import TTL_MS, acquire, commit_request, event, outbox_message


def committing(
    store: Broker, lease: Lease, message_id: str, /, **others: Any
) -> Write[CommitResult]:
    """The write of a commit, see `commit_request`."""
    return journal.commit(commit_request(lease, message_id) | others, store.options)


def acquiring(actor: str, request_id: str | None = None) -> Write[Lease]:
    request = {"actorId": actor, "streamId": actor, "holderId": "holder", "ttlMs": TTL_MS}
    return leases.acquire(request, request_id)


# Events of these types meet what their names say.
TRIGGERS = """
CREATE TRIGGER roll_back BEFORE INSERT ON events WHEN NEW.event_type = 'roll back' BEGIN
  SELECT RAISE(ROLLBACK, 'all of it');
END;
CREATE TRIGGER abort BEFORE INSERT ON events WHEN NEW.event_type = 'abort' BEGIN
  SELECT RAISE(ABORT, 'this one');
END;
"""

Failing = Callable[[Broker, Lease], Write[Any]]


def bad(**changes: Any) -> Failing:
    """A commit that is refused, at the revision at which its stream is."""
    return lambda store, lease: committing(store, lease, "bad", **{"expectedRevision": 1} | changes)


def fail_in_the_middle(_store: Broker, lease: Lease) -> Write[Any]:
    inner = committing(_store, lease, "bad", expectedRevision=1)

    def apply(transaction: Transaction) -> None:
        with transaction.savepoint():
            inner.apply(transaction)
            raise ZeroDivisionError

    return Write(apply)


def break_row(store: Broker, lease: Lease) -> Write[Any]:
    """A repetition whose recorded result cannot be read."""
    with raw(Path(str(store.engine.url.database))) as connection:
        connection.execute("UPDATE inbox SET result_json = '{}'")
    return committing(store, lease, "used", events=[event("used")], outbox=[outbox_message("used")])


def break_text(store: Broker, lease: Lease) -> Write[Any]:
    """A commit to a stream whose row holds text that is not UTF-8."""
    with raw(Path(str(store.engine.url.database))) as connection:
        connection.execute(
            "UPDATE streams SET workspace_id = CAST(x'ff' AS TEXT) WHERE stream_id = 'bad'"
        )
    return committing(store, lease, "bad", expectedRevision=1)


def fill_the_disk(store: Broker, lease: Lease) -> Write[Any]:
    channel = queue_of(store)._writer._channel
    assert channel is not None
    channel.connection.execute("PRAGMA max_page_count=1").fetchall()  # no larger than now
    return committing(store, lease, "bad", expectedRevision=1, events=[event("bad", "x" * 500_000)])


FAILING: dict[str, tuple[type[Exception], Failing]] = {
    "stale lease": (StaleLease, bad(lease={"epoch": 7, "nonce": "wrong"})),
    "revision": (RevisionConflict, bad(expectedRevision=7)),
    "id twice in one": (IdempotencyConflict, bad(events=[event("new"), event("new")])),
    "event id": (IdempotencyConflict, bad(events=[event("new"), event("used")])),
    "outbox id": (
        IdempotencyConflict,
        bad(outbox=[outbox_message("mine"), outbox_message("used")]),
    ),
    "unknown event": (InvalidRequest, bad(outbox=[outbox_message("mine", eventId="none")])),
    "foreign projection": (
        IdempotencyConflict,
        bad(projections=[projection("mine"), projection("foreign")]),
    ),
    "message id": (
        IdempotencyConflict,
        lambda store, lease: committing(store, lease, "used", expectedRevision=1),
    ),
    "lease taken": (LeaseUnavailable, lambda _store, _lease: acquiring("bad")),
    "error in the middle": (ZeroDivisionError, fail_in_the_middle),
    "row": (CorruptRow, break_row),
    "text": (CorruptRow, break_text),
    "trigger that aborts": (
        DatabaseError,
        bad(events=[event("e"), event("bad", eventType="abort")]),
    ),
    "trigger that rolls back": (
        DatabaseError,
        bad(events=[event("e"), event("bad", eventType="roll back")]),
    ),
    "trigger that rolls back, and id": (
        IdempotencyConflict,
        bad(events=[event("used", eventType="roll back")]),
    ),
    "full disk": (DatabaseUnavailable, fill_the_disk),
}


def prepared(store: Broker, path: Path) -> dict[str, Lease]:
    """Leases of three actors, of whom "bad" has used some ids, and one owns a projection."""
    made = {name: acquire(store, name, name) for name in ("one", "two", "bad")}
    store.commit(
        commit_request(made["bad"], "used", events=[event("used")], outbox=[outbox_message("used")])
    )
    store.commit(commit_request(made["one"], "owner", projections=[projection("foreign")]))
    with raw(path) as connection:
        connection.executescript(TRIGGERS)
    return made


def copied(path: Path, copy: Path) -> Path:
    """A copy that can be opened: a file with triggers of others on the store's tables cannot."""
    shutil.copy(path, copy)
    with raw(copy) as connection:
        connection.executescript("DROP TRIGGER roll_back; DROP TRIGGER abort")
    return copy


def good(store: Broker, made: dict[str, Lease]) -> list[Write[CommitResult]]:
    return [
        committing(store, made["one"], "first", expectedRevision=1, outbox=[outbox_message("o")]),
        committing(store, made["two"], "second", projections=[projection("p")]),
    ]
