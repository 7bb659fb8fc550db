"""What holds of every store at rest, whatever was killed, refused or raced: a doctor for its rows.

Read by a plain client, with none of the store's code, in one snapshot. What holds of a store in use
by its own operations alone: a database of the reference's may have a stream without a lease.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from broker.clock import MAX_SAFE_INTEGER
from broker.options import Options
from tests.places import Client, Place, PostgresPlace, client

CAPACITY = Options().receipt_capacity
UNSOUND = "the file is sound"
_SHOWN = 3  # of the rows that break a rule


def broken(place: Place, *, receipt_capacity: int = CAPACITY, was_opened: bool = True) -> list[str]:
    """Each rule that the store at a place breaks, with some of the rows; empty if it is sound.

    Of a damaged file it is that rule alone, or whatever the driver raises.

    The database must be at head. A file is recovered by that, as by any client that opens it. One
    that was made or migrated, and never opened since, may lack the clock's floor.
    """
    with client(place) as other:
        return broken_for(other, place, receipt_capacity=receipt_capacity, was_opened=was_opened)


def broken_for(
    other: Client, place: Place, *, receipt_capacity: int = CAPACITY, was_opened: bool = True
) -> list[str]:
    """As `broken`, by a client that is connected to the place already."""
    is_file = not isinstance(place, PostgresPlace)
    with snapshot(other, place):
        unsound = list(_broken_rules(other, _SOUND)) if is_file else []
        if unsound:  # whatever else is read of it means nothing
            return unsound
        found = list(_broken_rules(other, _RULES | (_OF_FILES if is_file else _OF_SERVERS)))
        found += _broken_results(other)
        found += _broken_floor(other, is_exact=is_file, may_lack=not was_opened)
        found += _broken_receipts(other, receipt_capacity)
    return found


@contextmanager
def snapshot(other: Client, place: Place) -> Iterator[None]:
    """A block in which all that a client reads is of one moment."""
    is_file = not isinstance(place, PostgresPlace)
    other.execute("BEGIN" if is_file else "BEGIN ISOLATION LEVEL REPEATABLE READ")
    try:
        yield
    finally:
        other.execute("ROLLBACK")


def _broken_rules(other: Client, rules: dict[str, str]) -> Iterator[str]:
    for rule, query in rules.items():
        yield from _say(rule, other.execute(query).fetchall())


def _say(rule: str, against: Sequence[Any]) -> Iterator[str]:
    if against:
        shown = ", ".join(map(repr, against[:_SHOWN]))
        more = f" and {len(against) - _SHOWN} more" if len(against) > _SHOWN else ""
        yield f"not so: {rule}: {shown}{more}"


# Each query finds what breaks its rule.
_RULES = {
    "a stream's revision is the number of its events": (
        "SELECT s.stream_id, s.revision, count(e.event_id) FROM streams AS s LEFT JOIN events AS e"
        " ON e.stream_id = s.stream_id GROUP BY s.stream_id, s.revision"
        " HAVING s.revision <> count(e.event_id)"
    ),
    "a stream's events have the revisions from 1 on, without gaps": (
        "SELECT stream_id, min(revision), max(revision), count(*) FROM events GROUP BY stream_id"
        " HAVING min(revision) <> 1 OR max(revision) <> count(*)"
        " OR count(DISTINCT revision) <> count(*)"
    ),
    "an event has its stream": (
        "SELECT event_id, stream_id FROM events"
        " WHERE stream_id NOT IN (SELECT stream_id FROM streams)"
    ),
    "an event has its message, of the same stream": (
        "SELECT e.event_id, e.message_id FROM events AS e LEFT JOIN inbox AS i"
        " ON i.message_id = e.message_id AND i.stream_id = e.stream_id WHERE i.message_id IS NULL"
    ),
    "an outbox message has its message, of the same time": (
        "SELECT o.outbox_id, o.message_id FROM outbox AS o LEFT JOIN inbox AS i"
        " ON i.message_id = o.message_id AND i.applied_at = o.created_at WHERE i.message_id IS NULL"
    ),
    "what an outbox message names is an event": (
        "SELECT outbox_id, event_id FROM outbox WHERE event_id IS NOT NULL"
        " AND event_id NOT IN (SELECT event_id FROM events)"
    ),
    "a message has its stream": (
        "SELECT message_id, stream_id FROM inbox"
        " WHERE stream_id NOT IN (SELECT stream_id FROM streams)"
    ),
    "a delivered message, and no other, was attempted": (
        "SELECT outbox_id, delivered_at, attempts FROM outbox"
        " WHERE (delivered_at IS NULL) <> (attempts = 0)"
    ),
    "a projection is of a revision that its stream has had": (
        "SELECT p.projection_id, p.stream_id, p.revision FROM projections AS p LEFT JOIN streams AS s"
        " ON s.stream_id = p.stream_id WHERE s.stream_id IS NULL OR p.revision > s.revision"
    ),
    "a stream's epochs never fall": (
        "SELECT later.event_id, earlier.producer_epoch, later.producer_epoch FROM events AS later"
        " JOIN events AS earlier ON earlier.stream_id = later.stream_id"
        " AND earlier.revision = later.revision - 1"
        " WHERE earlier.producer_epoch > later.producer_epoch"
    ),
    "a stream's cursors grow": (
        "SELECT later.event_id, earlier.rowid, later.rowid FROM events AS later"
        " JOIN events AS earlier ON earlier.stream_id = later.stream_id"
        " AND earlier.revision = later.revision - 1 WHERE earlier.rowid >= later.rowid"
    ),
    "a stream's time never falls": (
        "SELECT later.event_id, i.applied_at, j.applied_at FROM events AS later"
        " JOIN events AS earlier ON earlier.stream_id = later.stream_id"
        " AND earlier.revision = later.revision - 1"
        " JOIN inbox AS i ON i.message_id = earlier.message_id"
        " JOIN inbox AS j ON j.message_id = later.message_id WHERE i.applied_at > j.applied_at"
    ),
    "a stream's lease has the highest epoch of all": (
        "SELECT e.stream_id, max(e.producer_epoch), l.epoch FROM events AS e"
        " LEFT JOIN actor_leases AS l ON l.stream_id = e.stream_id GROUP BY e.stream_id, l.epoch"
        " HAVING l.epoch IS NULL OR l.epoch < max(e.producer_epoch)"
    ),
    "a lease begins before its heartbeat, which is before its end": (
        "SELECT actor_id, acquired_at, heartbeat_at, expires_at FROM actor_leases"
        " WHERE acquired_at > heartbeat_at OR heartbeat_at > expires_at"
    ),
    "a cursor is a safe integer": (
        f"SELECT event_id, rowid FROM events WHERE rowid NOT BETWEEN 1 AND {MAX_SAFE_INTEGER}"
    ),
}

_SOUND = {
    UNSOUND: "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'"
}
_OF_FILES = {
    "no row points nowhere": "SELECT * FROM pragma_foreign_key_check",
    "the two versions of the schema agree": (
        "SELECT value, user_version FROM metadata, pragma_user_version"
        " WHERE key = 'schema_version' AND value <> CAST(user_version AS TEXT)"
    ),
    "time grows with the journal": (
        "SELECT rowid, before, applied_at FROM (SELECT e.rowid, i.applied_at,"
        " lag(i.applied_at) OVER (ORDER BY e.rowid) AS before"
        " FROM events AS e JOIN inbox AS i ON i.message_id = e.message_id)"
        " WHERE before > applied_at"
    ),
}

# Cursors have gaps and commits overlap there, so that only the sequence bounds them.
_OF_SERVERS = {
    "no cursor is beyond the sequence": (
        "SELECT e.rowid, s.last_value FROM events AS e, events_rowid_seq AS s"
        " WHERE e.rowid > s.last_value OR NOT s.is_called"
    ),
    "no transaction is prepared": (
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    ),
}


# -------------------------------------------------------------------------------- recorded results


def _broken_results(other: Client) -> Iterator[str]:
    """The inbox against the rows that each message left."""
    events, outbox = _by_message(other, _EVENTS), _by_message(other, _OUTBOX)
    against = []
    for message_id, stream_id, revision, result_json, applied_at in other.execute(_INBOX):
        result = _object(result_json)
        theirs = events[message_id]
        expected = {
            "messageId": message_id,
            "streamId": stream_id,
            "previousRevision": revision - len(theirs),
            "revision": revision,
            "eventIds": [event_id for event_id, *_ in theirs],
            "eventCursors": [cursor for _, cursor, _ in theirs],
            "appliedAt": applied_at,
            "recovered": False,
        }
        numbers = [number for *_, number in theirs]
        ids = result.get("outboxIds")
        is_sound = (
            expected.items() <= result.items()
            and result.keys() <= expected.keys() | {"outboxIds", "reply"}
            and numbers == list(range(revision - len(theirs) + 1, revision + 1))
            and isinstance(ids, list)
            and sorted(ids) == sorted(outbox_id for (outbox_id,) in outbox[message_id])
        )
        if not is_sound:
            against.append((message_id, result, theirs, outbox[message_id]))
    return _say("a recorded result is what its rows say", against)


def _by_message(other: Client, query: str) -> dict[str, list[tuple[Any, ...]]]:
    grouped: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for message_id, *rest in other.execute(query):
        grouped[message_id].append(tuple(rest))
    return grouped


_EVENTS = "SELECT message_id, event_id, rowid, revision FROM events ORDER BY stream_id, revision"
_OUTBOX = "SELECT message_id, outbox_id FROM outbox"
_INBOX = "SELECT message_id, stream_id, applied_revision, result_json, applied_at FROM inbox"


def _broken_receipts(other: Client, capacity: int) -> Iterator[str]:
    """Receipts against their capacity, and against the epochs that the streams are at."""
    epochs = dict(other.execute("SELECT stream_id, epoch FROM actor_leases").fetchall())
    recorded = other.execute("SELECT request_id, response_json FROM mutation_receipts").fetchall()
    if len(recorded) > capacity:
        yield f"not so: there are at most {capacity} receipts: {len(recorded)}"
    against = []
    for request_id, response_json in recorded:
        response = _object(response_json)
        if response and epochs.get(response.get("streamId"), 0) < response.get("epoch", 0):
            against.append((request_id, response))
    yield from _say("no lease that was granted has an epoch beyond its stream's", against)


def _broken_floor(other: Client, *, is_exact: bool, may_lack: bool) -> Iterator[str]:
    """The clock's floor; on a server a commit may leave it to another that overlaps it."""
    found = other.execute("SELECT value FROM metadata WHERE key = 'logical_time_floor'").fetchall()
    texts = [text for (text,) in found]
    if may_lack and not texts:
        return
    if len(texts) != 1 or not _is_canonical(texts[0]):
        yield f"not so: the clock's floor is a canonical integer: {texts!r}"
        return
    latest = other.execute(_LATEST).fetchall() if is_exact else []
    yield from _say(
        "nothing happened after the clock's floor",
        [(text, at) for text in texts for (at,) in latest if at is not None and at > int(text)],
    )


_LATEST = (
    "SELECT max(applied_at) FROM inbox UNION ALL SELECT max(created_at) FROM mutation_receipts"
    " UNION ALL SELECT max(heartbeat_at) FROM actor_leases"
    " UNION ALL SELECT max(updated_at) FROM projections UNION ALL SELECT max(updated_at) FROM streams"
)


def _is_canonical(text: str) -> bool:
    return text.isascii() and text.isdigit() and str(int(text)) == text


def _object(text: str) -> dict[str, Any]:
    """The JSON object of a text, {} for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
