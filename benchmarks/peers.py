"""Peers: libraries from PyPI whose job on SQLite is comparable, side by side with the store.

None of them does the same work, so a ratio here says what the other work costs, not who is better:
each figure has its entry in `Peer.differences`, to be printed with it. What the two have in common
is made equal: the payloads, a database file in WAL mode, a flush at every COMMIT. The last two are
asked of each peer's own connection, and a peer that answers otherwise is not measured.

The store's commits are of events alone here, for peers have neither outbox messages nor
projections.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, uuid4

import orjson
from sqlalchemy import Engine, text

from benchmarks.databases import Measured, measured
from benchmarks.fidelity import require
from benchmarks.measure import Figure, alternate, compare, median_us, timed
from benchmarks.optional import NotInstalled, version_of
from benchmarks.reads import page_request
from benchmarks.scale import Scale
from benchmarks.workload import Request, payload

if TYPE_CHECKING:
    from dbos import SQLAlchemyDatasource
    from eventsourcing.persistence import StoredEvent
    from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

#: As `PRAGMA synchronous` answers: 2 is FULL.
DURABLE = {"journal_mode": "wal", "synchronous": 2}


@dataclass(frozen=True, slots=True)
class Peer:
    """A library to compare with: its name on PyPI, and by figure in what its work differs."""

    package: str
    figures: Callable[[Scale, Path, random.Random], Iterator[Figure]]
    differences: Mapping[str, str]

    @property
    def version(self) -> str | None:
        """The version that is installed, None without one."""
        return version_of(self.package)


def figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    """Every figure of every peer that is installed, the store's medians against the peer's.

    Raises `fidelity.Inconsistent` if a peer is less durable than the store.
    """
    for peer in PEERS:
        if peer.version is not None:
            yield from peer.figures(scale, folder, rng)


def notes() -> list[str]:
    """Lines to print with the figures: in what each differs, or that its peer is not installed."""
    lines = []
    for peer in PEERS:
        if peer.version is None:
            lines.append(str(NotInstalled(peer.package)))
        else:
            label = f"{peer.package} {peer.version}"
            lines += [f"{label}, {name}: {how}" for name, how in peer.differences.items()]
    return lines


def _commits(store: Measured, count: int, events: int = 1) -> list[int]:
    """The nanoseconds of some commits of events alone, from request dict to result."""
    return timed(store.broker.commit, [_events_alone(store, events) for _ in range(count)])


def _events_alone(store: Measured, events: int = 1) -> Request:
    request = store.requests.next(events)
    return {name: request[name] for name in request.keys() - {"outbox", "projections"}}


def _require_durable(package: str, pragma: Callable[[str], object]) -> None:
    answers = {name: pragma(name) for name in DURABLE}
    require(answers == DURABLE, f"{package} runs with {answers}, the store with {DURABLE}")


# ---------------------------------------------------------------------------------- eventsourcing


@dataclass(slots=True)
class EventSourcing:
    """The recorder of the `eventsourcing` library, and one stream of its events.

    It is the recorder of applications, whose events have a place in the whole journal as the
    store's have. It takes and gives bytes; that they are JSON is added here, within the clock.
    """

    recorder: SQLiteApplicationRecorder
    event: type[StoredEvent]
    stream: UUID
    revision: int = 0

    def appends(self, count: int, events: int = 1) -> list[int]:
        """The nanoseconds of some calls that each append some events, from payloads to rows."""
        return timed(self._append, [self._payloads(events) for _ in range(count)])

    def reads(self, count: int, size: int) -> list[int]:
        """The nanoseconds of reading the events after the first so many times."""
        return timed(self.read, [size] * count)

    def read(self, size: int) -> list[object]:
        """The payloads of some events after the first."""
        stored = self.recorder.select_events(self.stream, gt=1, limit=size)
        return [orjson.loads(event.state) for event in stored]

    def _payloads(self, events: int) -> list[tuple[int, dict[str, Any]]]:
        first = self.revision + 1
        self.revision += events
        return [(revision, payload(revision)) for revision in range(first, first + events)]

    def _append(self, payloads: list[tuple[int, dict[str, Any]]]) -> None:
        self.recorder.insert_events(
            [
                self.event(self.stream, revision, "task.progressed", orjson.dumps(each))
                for revision, each in payloads
            ]
        )


@contextmanager
def eventsourcing(path: Path) -> Iterator[EventSourcing]:
    """A fresh database of the library with one event, by its own defaults: WAL, synchronous=FULL."""
    from eventsourcing.persistence import StoredEvent
    from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

    with closing(SQLiteDatastore(str(path))) as datastore:
        _require_durable("eventsourcing", lambda name: _pragma_of_datastore(datastore, name))
        recorder = SQLiteApplicationRecorder(datastore)
        recorder.create_table()
        peer = EventSourcing(recorder, StoredEvent, uuid4())
        peer.appends(1)
        yield peer


def _pragma_of_datastore(datastore: SQLiteDatastore, name: str) -> object:
    with datastore.transaction(commit=False) as cursor:
        cursor.execute(f"PRAGMA {name}")
        return cursor.fetchone()[0]


def _eventsourcing_figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    size, many = scale.page_events, scale.bulk_events
    with (
        measured(folder / "beside-eventsourcing.db") as store,
        eventsourcing(folder / "eventsourcing.db") as peer,
    ):
        _commits(store, 1, size)
        peer.appends(1, size)
        request = page_request(store.requests, size)
        appends = alternate(
            {
                "store": lambda: _commits(store, scale.block),
                "peer": lambda: peer.appends(scale.block),
            },
            scale.rounds,
            rng,
        )
        bulk = alternate(
            {"store": lambda: _commits(store, 1, many), "peer": lambda: peer.appends(1, many)},
            scale.bulk_rounds,
            rng,
        )
        pages = alternate(
            {
                "store": lambda: timed(
                    store.broker.read_authorized_events_page, [request] * scale.block
                ),
                "peer": lambda: peer.reads(scale.block, size),
            },
            scale.rounds,
            rng,
        )
    against = "against eventsourcing"
    yield compare(
        "eventsourcing_append", f"one event, {against}", appends["store"], appends["peer"]
    )
    rates = {name: many / median_us(rounds) * 1e6 for name, rounds in bulk.items()}
    yield Figure(
        "eventsourcing_bulk",
        f"events by {many:,} a call, {against}",
        "per_s",
        rates["store"],
        rates["peer"],
    )
    yield compare(
        "eventsourcing_read", f"{size} events read, {against}", pages["store"], pages["peer"]
    )


# ------------------------------------------------------------------------------------------- DBOS

#: Is given a number and a payload, and returns what is recorded.
Workflow: TypeAlias = Callable[[int, dict[str, Any]], dict[str, Any]]


class DurableWorkflows:
    """DBOS, and two workflows of it that each record one result under the workflow's id.

    `record` does nothing but return its result. `append` inserts an event into a table of the
    application's first, in one transaction with the result of that step.
    """

    def __init__(self, datasource: SQLAlchemyDatasource) -> None:
        from dbos import DBOS, SetWorkflowID

        insert = text("INSERT INTO journal (event_id, payload_json) VALUES (:event_id, :payload)")

        def record(number: int, _payload: dict[str, Any]) -> dict[str, Any]:
            return {"revision": number}

        def insert_event(number: int, payload: dict[str, Any]) -> dict[str, Any]:
            row = {"event_id": f"e-{number}", "payload": orjson.dumps(payload).decode()}
            datasource.sql_session().execute(insert, row)
            return {"revision": number}

        def append(number: int, payload: dict[str, Any]) -> dict[str, Any]:
            return step(number, payload)

        step: Workflow = datasource.transaction(name="insert_event")(insert_event)
        self.record: Workflow = DBOS.workflow(name="record")(record)
        self.append: Workflow = DBOS.workflow(name="append")(append)
        self._under_id = SetWorkflowID
        self._number = 0

    def runs(self, workflow: Workflow, count: int) -> list[int]:
        """The nanoseconds of some runs of a workflow, each under an id of its own."""
        numbers = range(self._number, self._number + count)
        self._number += count
        payloads = [(number, payload(number)) for number in numbers]
        return timed(lambda each: self.run(workflow, *each), payloads)

    def repeats(self, workflow: Workflow, count: int) -> list[int]:
        """The nanoseconds of running a workflow again that has been run."""
        self.runs(workflow, 1)
        last = (self._number - 1, payload(self._number - 1))
        return timed(lambda each: self.run(workflow, *each), [last] * count)

    def run(self, workflow: Workflow, number: int, payload: dict[str, Any]) -> dict[str, Any]:
        """Run a workflow, or find its result if one has been run under this id."""
        with self._under_id(f"w-{number:016x}"):
            return workflow(number, payload)


@contextmanager
def dbos(path: Path) -> Iterator[DurableWorkflows]:
    """DBOS on a fresh database that is also the application's, without a server or a network.

    By itself it leaves a new file with a rollback journal, on which it is slower. WAL mode stays
    with a file, so the file is made in it.
    """
    from dbos import DBOS, SQLAlchemyDatasource

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
        connection.execute("CREATE TABLE journal (event_id TEXT PRIMARY KEY, payload_json TEXT)")
    url = f"sqlite:///{path}"
    DBOS(config={"name": "benchmark", "system_database_url": url, "log_level": "WARNING"})
    datasource = SQLAlchemyDatasource.create(url)
    try:
        _require_durable("dbos", lambda name: _pragma_of_engine(datasource.engine, name))
        workflows = DurableWorkflows(datasource)
        DBOS.launch()
        yield workflows
    finally:
        DBOS.destroy(destroy_registry=True)
        datasource.engine.dispose()


def _pragma_of_engine(engine: Engine, name: str) -> object:
    with engine.connect() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()


def _dbos_figures(scale: Scale, folder: Path, rng: random.Random) -> Iterator[Figure]:
    # A workflow takes many times as long as a commit: fewer of them are as steady.
    rounds, block = max(scale.rounds // 2, 1), max(scale.block // 4, 1)
    with measured(folder / "beside-dbos.db") as store, dbos(folder / "dbos.db") as peer:
        request = _events_alone(store)
        store.broker.commit(request)
        spent = alternate(
            {
                "commit": lambda: _commits(store, block),
                "replay": lambda: timed(store.broker.commit, [request] * block),
                "record": lambda: peer.runs(peer.record, block),
                "append": lambda: peer.runs(peer.append, block),
                "repeat": lambda: peer.repeats(peer.record, block),
            },
            rounds,
            rng,
        )
    yield compare(
        "dbos_workflow", "one commit, against a DBOS workflow", spent["commit"], spent["record"]
    )
    yield compare(
        "dbos_transaction", "… against one with a transaction", spent["commit"], spent["append"]
    )
    yield compare("dbos_repeat", "… found again", spent["replay"], spent["repeat"])


# ------------------------------------------------------------------------------ what is different

_INSERT_ALONE = (
    "as durable, one flush a call; inserts rows and nothing else: no lease and no fencing, no "
    "validation, no canonical form, no hash, no event ids, no record of the request, so that a "
    "retry looks like a conflict, a violated primary key of stream and version"
)

PEERS = (
    Peer(
        "eventsourcing",
        _eventsourcing_figures,
        {
            "eventsourcing_append": _INSERT_ALONE,
            "eventsourcing_bulk": "the same for many events at once",
            "eventsourcing_read": (
                "reads rows of fewer columns and nothing else: no lease of the reader, no bound on "
                "the bytes of a page"
            ),
        },
    ),
    Peer(
        "dbos",
        _dbos_figures,
        {
            "dbos_workflow": (
                "does more: it records the arguments before the work and the result after it, two "
                "flushes for one, and so can take up what a crash cut short; does less: no journal "
                "of events, no stream with a revision, no lease, no hash, so that an id used again "
                "with other arguments gives the first result"
            ),
            "dbos_transaction": (
                "the same, and inserts the event into a table of the application's in one "
                "transaction with the step's result: five flushes for one"
            ),
            "dbos_repeat": (
                "does not compare the arguments with the first ones; takes SQLite's write lock "
                "where the store only reads; neither flushes"
            ),
        },
    ),
)
