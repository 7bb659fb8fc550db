"""Reading everything back, by a store opened anew, and comparing it with what the runs claim."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from broker import Broker
from broker.cli.demo.claims import Checks, Claim
from broker.cli.demo.legacy import Legacy, sqlite_url
from broker.cli.demo.scenario import WORKSPACES, Run
from broker.cli.migrations import drift_of
from broker.messages import JournalEvent

T = TypeVar("T")

PAGE = 50


def check_store(broker: Broker, old: Legacy, runs: list[Run], checks: Checks) -> None:
    """Compare what the store answers with what version 1 had and the runs claim."""
    for run in runs:
        _check_stream(broker, run, checks)
        _check_lease(broker, run, checks)
    for workspace_id in WORKSPACES:
        members = [run for run in runs if run.workspace_id == workspace_id]
        _check_frames(broker, workspace_id, old, members, checks)
        _check_sources(broker, workspace_id, members, checks)
        _check_lists(broker, workspace_id, members, checks)
    _check_projections(broker, old, runs, checks)
    _check_cursors(old, runs, checks)


def _check_stream(broker: Broker, run: Run, checks: Checks) -> None:
    stream = {"streamId": run.stream_id}
    checks.equal(Claim.STREAMS, run.stream_id, run.revision, broker.get_stream_revision(stream))
    events = broker.read_events(stream)
    numbers = [event.revision for event in events]
    checks.equal(Claim.STREAMS, run.stream_id, list(range(1, run.revision + 1)), numbers)
    found = [(event.event_id, event.payload) for event in events if event.event_id in run.events]
    checks.equal(Claim.STREAMS, run.stream_id, list(run.events.items()), found)


def _check_lease(broker: Broker, run: Run, checks: Checks) -> None:
    lease = broker.get_lease({"actorId": run.actor_id})
    if lease is None or run.lease is None:
        checks.holds(Claim.LEASES, run.actor_id, truth=False, reason="there is no lease")
        return
    expected = (run.stream_id, run.lease.holder_id, run.epoch, "released")
    state = "released" if lease.expires_at == lease.heartbeat_at else "not released"
    found = (lease.stream_id, lease.holder_id, lease.epoch, state)
    checks.equal(Claim.LEASES, run.actor_id, expected, found)


def _check_frames(
    broker: Broker, workspace_id: str, old: Legacy, runs: list[Run], checks: Checks
) -> None:
    def page(last: JournalEvent | None) -> list[JournalEvent]:
        after = 0 if last is None else last.cursor
        return broker.read_model_events(
            {"workspaceId": workspace_id, "afterCursor": after, "limit": PAGE}
        )

    cursors = _claimed_cursors(runs)
    frames = sorted((frame for run in runs for frame in run.frames), key=cursors.__getitem__)
    before = [frame for frame, stream_id in old.frames if old.owners[stream_id] == workspace_id]
    found = [event.event_id for event in _pages(page)]
    checks.equal(Claim.FRAMES, workspace_id, [*before, *frames], found)


def _check_sources(broker: Broker, workspace_id: str, runs: list[Run], checks: Checks) -> None:
    def page(last: Any) -> list[Any]:
        after = {} if last is None else {"afterStreamId": last.stream_id}
        return broker.read_model_sources({"workspaceId": workspace_id, "limit": PAGE} | after)

    found = [(source.stream_id, source.generation, source.active) for source in _pages(page)]
    expected = sorted((run.stream_id, run.epoch, False) for run in runs)
    checks.equal(Claim.SOURCES, workspace_id, expected, found)


def _check_lists(broker: Broker, workspace_id: str, runs: list[Run], checks: Checks) -> None:
    for prefix in (f"{workspace_id}/", "root-"):

        def page(last: str | None, prefix: str = prefix) -> list[str]:
            after = {} if last is None else {"afterStreamId": last}
            asked = {"workspaceId": workspace_id, "prefix": prefix, "limit": PAGE}
            return broker.list_streams(asked | after)

        expected = sorted(run.stream_id for run in runs if run.stream_id.startswith(prefix))
        checks.equal(Claim.LISTS, f"{workspace_id}, {prefix}", expected, list(_pages(page)))


def _pages(page: Callable[[T | None], list[T]]) -> Iterator[T]:
    """All items of a list that is read in pages, each after the last item of the one before."""
    last = None
    while items := page(last):
        yield from items
        if items[-1] == last:
            return  # the same page again: it would never end
        last = items[-1]


def _check_projections(broker: Broker, old: Legacy, runs: list[Run], checks: Checks) -> None:
    claimed = {run.projection_id: (run.stream_id, run.revision, run.projection) for run in runs}
    for projection_id, expected in (old.projections | claimed).items():
        found = broker.read_projection({"projectionId": projection_id})
        parts = None if found is None else (found.stream_id, found.revision, found.value)
        checks.equal(Claim.PROJECTIONS, projection_id, expected, parts)


def _check_cursors(old: Legacy, runs: list[Run], checks: Checks) -> None:
    results = [result for run in runs for _, result in run.commits]
    results.sort(key=lambda result: result.event_cursors)
    cursors = [cursor for result in results for cursor in result.event_cursors]
    checks.equal(Claim.CURSORS, "of all commits", sorted(set(cursors)), cursors)
    last = [row[0] for row in old.rows["events"]][-1:]
    checks.holds(Claim.CURSORS, "after version 1's", last < cursors[:1])
    times = [result.applied_at for result in results]
    checks.equal(Claim.CURSORS, "against time", sorted(times), times)


def _claimed_cursors(runs: list[Run]) -> dict[str, int]:
    return {
        event_id: cursor
        for run in runs
        for _, result in run.commits
        for event_id, cursor in zip(result.event_ids, result.event_cursors, strict=True)
    }


# ---------------------------------------------------------------------------------------- the file


def check_file(path: Path, old: Legacy, runs: list[Run], checks: Checks) -> None:
    """Look at the closed database with plain `sqlite3`, and for drift."""
    with closing(sqlite3.connect(path)) as database:
        for pragma, sound in _SOUND.items():
            checks.equal(Claim.FILE, pragma, sound, database.execute(f"PRAGMA {pragma}").fetchall())
        for table, expected in _claimed_rows(old, runs).items():
            rows = database.execute(f"SELECT {_KEYS[table]} FROM {table}").fetchall()
            checks.equal(Claim.ROWS, table, sorted(expected), sorted(key for (key,) in rows))
        attempts = dict(database.execute("SELECT outbox_id, attempts FROM outbox"))
    for outbox_id, expected_attempts in _claimed_attempts(old, runs).items():
        checks.equal(Claim.DELIVERY, outbox_id, expected_attempts, attempts.get(outbox_id))
    checks.equal(Claim.SCHEMA, "all facts", [], drift_of(sqlite_url(path)))


_SOUND = {"integrity_check": [("ok",)], "foreign_key_check": [], "journal_mode": [("wal",)]}
_KEYS = {
    "metadata": "key",
    "actor_leases": "actor_id",
    "streams": "stream_id",
    "inbox": "message_id",
    "mutation_receipts": "request_id",
    "events": "event_id",
    "outbox": "outbox_id",
    "projections": "projection_id",
}


def _claimed_rows(old: Legacy, runs: list[Run]) -> dict[str, Collection[str]]:
    """The keys of every row that there should be, by table."""

    def with_old(table: str, new: Iterable[str]) -> list[str]:
        return [*(row[1] for row in old.rows[table]), *new]  # the first column is the rowid

    return {
        "metadata": ["schema_version", "logical_time_floor"],
        "actor_leases": [run.actor_id for run in runs],
        "streams": [run.stream_id for run in runs],
        "inbox": with_old("inbox", (done.message_id for run in runs for _, done in run.commits)),
        "mutation_receipts": [request_id for run in runs for request_id in run.receipts],
        "events": with_old("events", (event_id for run in runs for event_id in run.events)),
        "outbox": with_old("outbox", (outbox_id for run in runs for outbox_id in run.outbox)),
        "projections": old.projections.keys() | {run.projection_id for run in runs},
    }


def _claimed_attempts(old: Legacy, runs: list[Run]) -> dict[str, int]:
    pending = {*old.pending, *(outbox_id for run in runs for outbox_id in run.outbox)}
    before = {row[1]: row[-1] for row in old.rows["outbox"]}  # the last column is the attempts
    return {key: before.get(key, 0) + (key in pending) for key in before.keys() | pending}
