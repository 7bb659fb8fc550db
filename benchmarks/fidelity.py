"""What must be true for the figures to mean something; a run in which it is not fails.

The floor must run the store's statements, and leave the store's rows. Statements are seen by
SQLite's own trace, which also reports what triggers run: whoever changes a statement of the store
is told here to change the floor with it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sqlalchemy import Pool, event

from benchmarks import floor
from benchmarks.databases import Measured, Raw, measured, raw
from benchmarks.growth import filled
from benchmarks.leases import heartbeat_request, ready_heartbeat
from benchmarks.reads import page_request, ready_page
from benchmarks.workload import ACTOR, RUNTIME_EVENT, STREAM, Request, Requests, ready

TABLES = (
    "metadata",
    "actor_leases",
    "streams",
    "inbox",
    "mutation_receipts",
    "events",
    "outbox",
    "projections",
)
_PAGE = 2


class Inconsistent(AssertionError):
    """What the benchmark takes for granted is not so."""


def require(condition: bool, message: str) -> None:
    """Raise Inconsistent unless the condition holds."""
    if not condition:
        raise Inconsistent(message)


# ------------------------------------------------------------------------- floor and store agree


@dataclass(frozen=True, slots=True)
class _Pair:
    """An operation as the store does it, and as the floor does it, given the store's result."""

    what: str
    by_store: Callable[[], Any]
    by_floor: Callable[[Any], Any]


def check_floor(folder: Path) -> str:
    """Run everything that is measured once on either side; statements and rows must be the same."""
    of_store: list[str] = []
    of_floor: list[str] = []
    with (
        _traced(of_store),
        measured(folder / "fidelity.db") as store,
        raw(folder / "fidelity-floor.db") as plain,
    ):
        plain.connection.set_trace_callback(of_floor.append)
        store.broker.table_names()  # which opens the connection that reads
        for pair in _pairs(store, plain):
            of_store.clear()
            of_floor.clear()
            pair.by_floor(pair.by_store())
            _require_same(pair.what, _shapes(of_store), _shapes(of_floor))
    _require_same_rows(folder / "fidelity.db", folder / "fidelity-floor.db")
    return "the floor runs the statements of the store and leaves the same rows"


def _pairs(store: Measured, plain: Raw) -> Iterator[_Pair]:
    request = store.requests.next()
    yield _commit("a commit", store, plain, request)
    many = store.requests.next(3)
    yield _commit("a commit of many events", store, plain, many)
    yield _Pair(
        "a commit found again",
        lambda: store.broker.commit(request),
        lambda found: floor.replay(plain.cursor, ready(request, found.applied_at)),
    )
    asked = heartbeat_request(store.requests.lease)
    yield _Pair(
        "a heartbeat",
        lambda: store.broker.heartbeat_lease(asked, request_id="r"),
        lambda lease: floor.heartbeat(plain.cursor, ready_heartbeat("r", lease)),
    )
    yield _Pair(
        "a page",
        lambda: store.broker.read_authorized_events_page(page_request(store.requests, _PAGE)),
        lambda _page: floor.page(plain.cursor, ready_page(store.requests, _PAGE)),
    )


def _commit(
    what: str,
    store: Measured,
    plain: Raw,
    request: Request,
) -> _Pair:
    return _Pair(
        what,
        lambda: store.broker.commit(request),
        lambda result: floor.commit(plain.cursor, ready(request, result.applied_at)),
    )


@contextmanager
def _traced(log: list[str]) -> Iterator[None]:
    """Collect the statements of every connection that any pool opens meanwhile."""

    def trace(connection: sqlite3.Connection, _record: object) -> None:
        connection.set_trace_callback(log.append)

    event.listen(Pool, "connect", trace)
    try:
        yield
    finally:
        event.remove(Pool, "connect", trace)


_LITERAL = re.compile(r"'(?:[^']|'')*'|\b\d+\b|\bNULL\b")
_ALIAS = re.compile(r"\s+AS\s+\w+")
_QUALIFIER = re.compile(r"\b\w+\.(?=\w)")
_PUNCTUATION = re.compile(r"([=(),])")


def _shapes(statements: list[str]) -> list[str]:
    """Statements without what does not matter: values, aliases, qualifiers, quotes and spaces."""
    return [_shape(each) for each in statements]


def _shape(statement: str) -> str:
    bare = _LITERAL.sub("?", statement).replace('"', "")
    bare = _QUALIFIER.sub("", _ALIAS.sub("", bare))
    return " ".join(_PUNCTUATION.sub(r" \1 ", bare).split())


def _require_same(what: str, of_store: list[str], of_floor: list[str]) -> None:
    for number, (one, other) in enumerate(zip_longest(of_store, of_floor), 1):
        require(
            one == other,
            f"statement {number} of {what} is not the floor's: make benchmarks/floor.py follow"
            f" the store\n  store: {one}\n  floor: {other}",
        )


def _require_same_rows(one: Path, other: Path) -> None:
    with closing(sqlite3.connect(one)) as by_store, closing(sqlite3.connect(other)) as by_floor:
        for table in TABLES:
            query = f"SELECT rowid, * FROM {table}"
            require(
                by_store.execute(query).fetchall() == by_floor.execute(query).fetchall(),
                f"store and floor leave different rows in {table}",
            )


# ------------------------------------------------------------------- a filled database is a real one


def check_filled(folder: Path) -> str:
    """The store finds every commit of a filled database again, and SQLite every key."""
    path = folder / "filled.db"
    commits = 12
    with filled(path, commits) as store:
        lease = store.requests.lease
        again = Requests(lease)
        for _ in range(commits):
            found = store.broker.commit(again.next())
            require(found.recovered, f"the store does not know {found.message_id} of a filled one")
        require(again.revision == store.requests.revision, "a filled stream has another revision")
        require(store.broker.list_pending_outbox() == [], "a filled outbox is not delivered")
    with closing(sqlite3.connect(path)) as connection:
        broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        require(not broken, f"a filled database breaks keys: {broken}")
    return "a filled database is one that the store has written"


# --------------------------------------------------------------------------------- reads never write


def check_reads(folder: Path) -> str:
    """No reading connection changes a row, a byte of database or log, or what another connection sees."""
    path = folder / "untouched.db"
    opened: list[sqlite3.Connection] = []
    with measured(path, RUNTIME_EVENT) as store, _collected(opened), closing(_other(path)) as other:
        before = _state(path, other, opened)
        for read in _reads(store):
            read()
        require(_state(path, other, opened) == before, "a read has written")
    return "reads never write"


def _reads(store: Measured) -> list[Callable[[], object]]:
    broker, credential = store.broker, store.requests.credential
    holder = {"actorId": ACTOR, "lease": credential}
    workspace = {"workspaceId": "workspace-1"}
    return [
        lambda: broker.get_lease({"actorId": ACTOR}),
        lambda: broker.get_stream_revision({"streamId": STREAM}),
        lambda: broker.read_events({"streamId": STREAM}),
        lambda: broker.read_authorized_events({"streamId": STREAM, "authorization": holder}),
        lambda: broker.read_authorized_events_page(page_request(store.requests, _PAGE)),
        lambda: broker.list_streams(workspace | {"prefix": "s", "limit": 9}),
        lambda: broker.read_journal({}),
        lambda: broker.read_model_events(workspace),
        lambda: broker.read_model_sources(workspace),
        lambda: list(broker.walk_events({"streamId": STREAM})),
        lambda: list(broker.walk_journal({})),
        lambda: list(broker.walk_read_model_events(workspace)),
        lambda: broker.read_projection({"projectionId": f"{STREAM}:state"}),
        broker.list_pending_outbox,
        broker.table_names,
        lambda: broker.journal_mode,
    ]


@contextmanager
def _collected(opened: list[sqlite3.Connection]) -> Iterator[None]:
    def collect(connection: sqlite3.Connection, _record: object) -> None:
        opened.append(connection)

    event.listen(Pool, "connect", collect)
    try:
        yield
    finally:
        event.remove(Pool, "connect", collect)


def _other(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def _state(
    path: Path, other: sqlite3.Connection, opened: list[sqlite3.Connection]
) -> tuple[object, ...]:
    changes = sum(connection.total_changes for connection in opened)
    (version,) = other.execute("PRAGMA data_version").fetchone()
    return changes, version, path.read_bytes(), Path(f"{path}-wal").read_bytes()
