"""The store: opening and closing, every operation in every form of its request, forks."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.orm import Session

from broker import Broker, Options, UnitOfWork, configure_engine, schema
from broker.errors import (
    BrokerError,
    ConfigurationError,
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidRequest,
    SchemaDrift,
    SchemaError,
    StoreClosed,
)
from broker.operations import Operations
from tests.support import (
    MUTATIONS,
    ManualClock,
    acquire,
    commit_request,
    contents,
    floor,
    in_threads,
    is_write_locked,
    open_files,
    open_store,
    operate,
    operation_names,
    operation_requests,
    raw,
    rows,
    url_of,
    write_locked,
    write_locked_by_a_process,
)

OPERATIONS = sorted(operation_names())
BUSY_AT_ONCE = Options(busy_timeout_ms=0)


# ---------------------------------------------------------------------------------------- opening


def test_opening_makes_the_folder_the_file_and_the_schema(path: Path, clock: ManualClock) -> None:
    nested = path.parent / "a" / "b" / "broker.db"
    with open_store(nested, clock) as store:
        assert store.journal_mode == "wal"
        assert "actor_leases" in store.table_names()
    assert rows(nested, "PRAGMA journal_mode") == [("wal",)]
    assert rows(nested, "PRAGMA user_version") == [(3,)]
    assert floor(nested) == "1000"


def test_opening_persists_the_clock_and_never_lowers_it(path: Path) -> None:
    open_store(path, ManualClock(wall_ms=5_000)).close()
    assert floor(path) == "5000"
    open_store(path, ManualClock(wall_ms=2_000)).close()
    assert floor(path) == "5000"


@pytest.mark.parametrize(
    "given", [str, make_url, lambda url: URL.create("sqlite", database=make_url(url).database)]
)
def test_a_url_may_be_text_or_an_object(path: Path, given: Callable[[str], Any]) -> None:
    with Broker.open(given(url_of(path))) as store:
        assert acquire(store).epoch == 1


def test_a_url_may_name_an_async_driver_or_be_sqlites_own_form(path: Path) -> None:
    for url in (f"sqlite+aiosqlite:///{path}", f"sqlite:///file:{path}?uri=true"):
        with Broker.open(url) as store:
            assert store.journal_mode == "wal"
    assert path.is_file()


@pytest.mark.parametrize("url", ["not a url", "postgres//me:s3cret@host/db", 5, None, ""])
def test_what_is_no_url_is_refused_without_being_shown(url: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Broker.open(url)
    assert "s3cret" not in f"{caught.value}{caught.value.details}"


@pytest.mark.parametrize("migrate", [True, False])
@pytest.mark.parametrize(
    "name",
    ["a\0b.db", "\ud800.db", "a\udfffb/c.db", "d.db?timeout=abc", "d.db?cached_statements=x"],
)
def test_a_file_or_an_option_that_sqlite_cannot_use_is_refused_and_nothing_is_made(
    path: Path, name: str, migrate: bool
) -> None:
    with pytest.raises(ConfigurationError):
        Broker.open(f"sqlite:///{path.parent}/{name}", migrate=migrate)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["x:memory:y.db", "mode=memory.db", "a:memory:b/mode=memory/c.db"])
def test_a_file_whose_name_looks_like_memory_is_a_file(
    path: Path, clock: ManualClock, name: str
) -> None:
    file = path.parent / name
    with open_store(file, clock) as store:
        lease = acquire(store)
    assert rows(file, "SELECT actor_id FROM actor_leases") == [("actor",)]
    with open_store(file, clock, busy_timeout_ms=0) as again:
        assert again.get_lease({"actorId": "actor"}) == lease


@pytest.mark.parametrize(
    "url", ["postgresql://me:s3cret@host/db", "sqlite+pysqlcipher://:s3cret@/x.db", "sqlite://h/x"]
)
def test_another_kind_of_database_is_refused_without_showing_a_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Broker.open(url)
    assert "s3cret" not in f"{caught.value}{caught.value.details}"


def test_without_migration_a_missing_file_is_refused_and_not_made(path: Path) -> None:
    for url in (url_of(path), f"sqlite:///file:{path}?uri=true"):
        with pytest.raises(DatabaseUnavailable, match="there is no database"):
            Broker.open(url, migrate=False)
    missing_folder = path.parent / "nowhere" / "broker.db"
    with pytest.raises(DatabaseUnavailable):
        Broker.open(url_of(missing_folder), migrate=False)
    assert list(path.parent.iterdir()) == []


def test_without_migration_a_current_database_opens(path: Path, clock: ManualClock) -> None:
    open_store(path, clock).close()
    with Broker.open(url_of(path), migrate=False, options=clock.options()) as store:
        assert acquire(store).epoch == 1


@pytest.mark.parametrize("revision", ["0001", "0002", "0003"])
def test_without_migration_an_old_revision_is_refused_and_left_as_it_is(
    path: Path, revision: str
) -> None:
    schema.upgrade(url_of(path), revision)
    before = path.read_bytes()
    with pytest.raises(SchemaError, match=f"revision {revision}, not 0004") as caught:
        Broker.open(url_of(path), migrate=False)
    assert not isinstance(caught.value, SchemaDrift)
    assert path.read_bytes() == before
    with Broker.open(url_of(path)) as store:
        assert acquire(store).epoch == 1


DRIFTS = {
    "index": "DROP INDEX outbox_pending_idx",
    "another index": "CREATE INDEX extra ON events (trace_id)",
    "trigger": "CREATE TRIGGER extra AFTER INSERT ON streams BEGIN SELECT 1; END",
}


@pytest.mark.parametrize("statement", DRIFTS.values(), ids=DRIFTS)
def test_without_migration_a_drifted_schema_is_refused_with_the_facts(
    path: Path, clock: ManualClock, statement: str
) -> None:
    open_store(path, clock).close()
    with raw(path) as connection:
        connection.execute(statement)
    before = path.read_bytes()
    with pytest.raises(SchemaDrift, match="differs from the models") as caught:
        Broker.open(url_of(path), migrate=False)
    assert len(caught.value.details["facts"]) == 1
    assert path.read_bytes() == before
    assert open_files(path) == []


def test_a_database_with_an_applications_tables_is_refused_unless_it_is_shared(
    path: Path, clock: ManualClock
) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
        connection.execute("INSERT INTO orders VALUES ('mine')")
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="shared"):
        Broker.open(url_of(path))
    assert path.read_bytes() == before

    with Broker.open(url_of(path), shared=True, options=clock.options()) as store:
        assert acquire(store).epoch == 1
        assert "orders" in store.table_names()
    assert rows(path, "SELECT id FROM orders") == [("mine",)]
    with Broker.open(url_of(path), migrate=False) as store:
        assert store.journal_mode == "wal"


def not_a_database(path: Path) -> None:
    path.write_text("this is a letter, not a database\n" * 100)


def newer_version(path: Path) -> None:
    schema.upgrade(url_of(path))
    with raw(path) as connection:
        connection.execute("PRAGMA user_version=4")


def bad_floor(path: Path) -> None:
    schema.upgrade(url_of(path))
    with raw(path) as connection:
        connection.execute("INSERT OR REPLACE INTO metadata VALUES ('logical_time_floor', '01')")


def without_metadata(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE streams (x)")


@pytest.mark.parametrize("migrate", [True, False])
@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (not_a_database, DatabaseUnavailable),
        (newer_version, SchemaError),
        (bad_floor, SchemaError),
        (without_metadata, SchemaError),
    ],
)
def test_an_opening_that_fails_leaves_every_byte_and_no_open_file(
    path: Path, spoil: Callable[[Path], None], kind: type[BrokerError], migrate: bool
) -> None:
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(kind):
        Broker.open(url_of(path), migrate=migrate)
    assert path.read_bytes() == before
    assert open_files(path) == []
    assert list(path.parent.iterdir()) == [path]


def test_an_opening_that_cannot_persist_the_clock_leaves_no_open_file(
    path: Path, clock: ManualClock
) -> None:
    open_store(path, clock).close()
    with write_locked_by_a_process(path):
        with pytest.raises(DatabaseBusy):
            Broker.open(url_of(path), options=BUSY_AT_ONCE)
        assert open_files(path) == []
    with Broker.open(url_of(path), options=BUSY_AT_ONCE) as store:
        assert acquire(store).epoch == 1


def test_a_clock_that_answers_nonsense_fails_the_opening_and_leaves_no_open_file(
    path: Path,
) -> None:
    with pytest.raises(InvalidRequest, match="wall clock"):
        Broker.open(url_of(path), options=Options(wall_clock=lambda: -1))
    assert open_files(path) == []


def test_a_folder_that_cannot_be_made_is_said(path: Path) -> None:
    path.write_text("a file where a folder is wanted")
    with pytest.raises(DatabaseUnavailable, match="folder"):
        Broker.open(url_of(path / "broker.db"))


def test_a_folder_instead_of_a_file_is_said(path: Path) -> None:
    path.mkdir()
    with pytest.raises(DatabaseUnavailable, match="cannot be opened"):
        Broker.open(url_of(path))
    with pytest.raises(DatabaseUnavailable, match="there is no database"):
        Broker.open(url_of(path), migrate=False)


@pytest.mark.parametrize(
    "option",
    [
        {"receipt_capacity": 0},
        {"receipt_capacity": 65_537},
        {"receipt_capacity": True},
        {"busy_timeout_ms": -1},
        {"busy_timeout_ms": 1.5},
        {"page_max_bytes": 0},
        {"read_model_max_bytes": "1"},
    ],
)
def test_an_option_out_of_range_is_refused_by_name(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(option))):
        Options(**option)


# ------------------------------------------------------------------------------- every operation


class AnyMapping(Mapping[str, Any]):
    """A mapping that is not a dict."""

    def __init__(self, content: dict[str, Any]) -> None:
        self._content = content

    def __getitem__(self, key: str) -> Any:
        return self._content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


FORMS: dict[str, Callable[[Any], Any]] = {
    "message": lambda request: request,
    "dict": lambda request: request.to_json(),
    "mapping": lambda request: AnyMapping(request.to_json()),
}


def test_the_examples_cover_every_operation(store: Broker, clock: ManualClock) -> None:
    assert set(operation_requests(store, clock)) == operation_names()
    assert operation_names() == {name for name in dir(Operations) if not name.startswith("_")}


def test_every_operation_takes_its_message_a_dict_and_any_other_mapping(
    tmp_path: Path,
) -> None:
    answers = {}
    for form, convert in FORMS.items():
        clock = ManualClock()
        with open_store(tmp_path / f"{form}.db", clock) as store:
            answers[form] = {
                name: operate(store, name, request and convert(request))
                for name, request in operation_requests(store, clock).items()
            }
    assert answers["message"] == answers["dict"] == answers["mapping"]
    assert (
        contents(tmp_path / "message.db")["actor_leases"]
        == (contents(tmp_path / "mapping.db")["actor_leases"])
    )


def test_a_unit_of_work_of_the_store_has_its_clock_and_options(path: Path) -> None:
    clock = ManualClock()
    engine = configure_engine(create_engine(url_of(path)))
    with open_store(path, clock) as store, Session(engine) as session:
        unit = store.unit_of_work(session)
        assert isinstance(unit, UnitOfWork)
        assert unit.options is store.options
        clock.advance(500)
        lease = acquire(unit)
        assert (lease.acquired_at, lease.nonce) == (1_500, "nonce-1")
        session.commit()
        clock.wall_ms = clock.monotonic_ms = 0
        assert acquire(store, "second", "second").acquired_at == 1_500


def test_a_unit_of_work_may_be_on_the_stores_own_engine(store: Broker, path: Path) -> None:
    with Session(store.engine) as session:
        acquire(store.unit_of_work(session))
        session.rollback()
    assert rows(path, "SELECT * FROM actor_leases") == []


def test_reads_write_nothing_and_wait_for_nobody(
    path: Path, clock: ManualClock, store: Broker
) -> None:
    requests = operation_requests(store, clock)
    clock.advance(1)
    before, now = contents(path), floor(path)
    with write_locked(path):
        for name in operation_names() - MUTATIONS:
            operate(store, name, requests[name])
    assert (contents(path), floor(path)) == (before, now)


def test_many_threads_read_while_others_write(store: Broker) -> None:
    lease = acquire(store)
    done = threading.Event()
    seen: list[int] = []

    def write() -> None:
        try:
            for number in range(40):
                store.commit(commit_request(lease, f"m{number}", expectedRevision=number))
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            revision = store.get_stream_revision({"streamId": "stream"})
            events = store.read_events({"streamId": "stream"})
            assert [each.revision for each in events] == list(range(1, len(events) + 1))
            assert len(events) >= revision
            seen.append(revision)

    in_threads(write, read, read, read)
    assert store.get_stream_revision({"streamId": "stream"}) == 40
    assert seen


# ---------------------------------------------------------------------------------------- closing


@pytest.mark.parametrize("name", OPERATIONS)
def test_after_close_every_operation_says_that_the_store_is_closed(
    store: Broker, clock: ManualClock, name: str
) -> None:
    request = operation_requests(store, clock)[name]
    store.close()
    with pytest.raises(StoreClosed):
        operate(store, name, request)


def test_a_closed_store_makes_no_unit_of_work(store: Broker) -> None:
    store.close()
    with Session(store.engine) as session, pytest.raises(StoreClosed):
        store.unit_of_work(session)


def test_closing_lets_go_of_every_file_and_can_be_repeated(store: Broker, path: Path) -> None:
    acquire(store)
    store.get_lease({"actorId": "actor"})
    assert open_files(path)
    store.close()
    store.close()
    assert open_files(path) == []
    assert list(path.parent.iterdir()) == [path]


def test_leaving_the_context_closes_also_after_an_error(path: Path, clock: ManualClock) -> None:
    with pytest.raises(ZeroDivisionError), open_store(path, clock) as store:
        _ = 1 / 0
    with pytest.raises(StoreClosed):
        acquire(store)
    assert open_files(path) == []


def blocking(inside: threading.Event, go_on: threading.Event) -> Callable[[], str]:
    """A nonce source that stops in the middle of a write until it is let go on."""

    def nonce() -> str:
        inside.set()
        assert go_on.wait(10)
        return "nonce"

    return nonce


def wait_until_closed(store: Broker) -> None:
    with contextlib.suppress(StoreClosed):
        while True:
            store.get_lease({"actorId": "actor"})


def test_closing_waits_for_the_write_that_is_running(path: Path, clock: ManualClock) -> None:
    inside, go_on = threading.Event(), threading.Event()
    store = open_store(path, clock, nonce=blocking(inside, go_on))
    writing = threading.Thread(target=acquire, args=(store,))
    writing.start()
    assert inside.wait(10)
    closing_it = threading.Thread(target=store.close)
    closing_it.start()
    wait_until_closed(store)

    assert closing_it.is_alive()
    go_on.set()
    writing.join()
    closing_it.join()
    assert rows(path, "SELECT actor_id FROM actor_leases") == [("actor",)]
    assert open_files(path) == []


def test_who_waited_for_a_store_that_was_closed_is_told_and_opens_nothing(
    path: Path, clock: ManualClock
) -> None:
    inside, go_on = threading.Event(), threading.Event()
    store = open_store(path, clock, nonce=blocking(inside, go_on))
    outcomes: list[object] = []

    def second() -> None:
        try:
            outcomes.append(acquire(store, "second", "second"))
        except StoreClosed as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=acquire, args=(store,)), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    threads.append(threading.Thread(target=store.close))
    threads[2].start()
    go_on.set()
    for thread in threads:
        thread.join()

    stored = [actor for (actor,) in rows(path, "SELECT actor_id FROM actor_leases ORDER BY 1")]
    assert stored == (["actor"] if outcomes == [StoreClosed] else ["actor", "second"])
    assert open_files(path) == []


def test_a_write_that_begins_to_wait_before_close_gets_no_connection_after_it(
    store: Broker, path: Path
) -> None:
    # The turn is what a waiting write gets when `close` is through.
    store._connections._writer.close()
    with pytest.raises(StoreClosed):
        acquire(store)
    assert rows(path, "SELECT * FROM actor_leases") == []


def test_a_read_that_is_running_when_the_store_closes_gives_its_connection_back(
    path: Path, clock: ManualClock
) -> None:
    store = open_store(path, clock)
    inside, go_on = threading.Event(), threading.Event()

    def slow(_transaction: Any) -> str:
        inside.set()
        assert go_on.wait(10)
        return "read"

    answers: list[str] = []
    reading = threading.Thread(target=lambda: answers.append(store._read(slow)))
    reading.start()
    assert inside.wait(10)
    store.close()
    go_on.set()
    reading.join()
    assert answers == ["read"]
    assert open_files(path) == []


# ------------------------------------------------------------------------------------------ forks


def in_child(work: Callable[[], None]) -> int:
    """Do something in a fork of this process; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_and_its_parent_go_on_with_connections_of_their_own(
    store: Broker, path: Path
) -> None:
    lease = acquire(store)
    assert in_child(lambda: child_commits(store, lease)) == 0
    store.commit(commit_request(lease, "parent", expectedRevision=1))
    assert rows(path, "SELECT message_id FROM events ORDER BY rowid") == [("child",), ("parent",)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def child_commits(store: Broker, lease: Any) -> None:
    store.commit(commit_request(lease, "child"))


def test_an_idle_fork_costs_next_to_no_time(store: Broker) -> None:
    started = time.monotonic()
    assert in_child(lambda: None) == 0
    assert time.monotonic() - started < 2
    assert acquire(store).epoch == 1


def test_a_child_of_a_fork_in_the_middle_of_a_read_is_told_to_open_anew(
    path: Path, clock: ManualClock
) -> None:
    def child() -> None:
        with pytest.raises(ConfigurationError, match="forked while the store was in use"):
            acquire(store)

    with open_store(path, clock, busy_timeout_ms=20) as store:
        assert store._read(lambda _transaction: in_child(child)) == 0
        assert acquire(store).epoch == 1


def test_a_session_on_the_stores_engine_is_not_lost_by_a_fork(store_that_is_hasty: Broker) -> None:
    store = store_that_is_hasty
    with Session(store.engine) as session:
        acquire(store.unit_of_work(session))
        assert in_child(lambda: None) == 0
        session.commit()
    assert store.get_lease({"actorId": "actor"}) is not None


@pytest.fixture
def store_that_is_hasty(path: Path, clock: ManualClock) -> Iterator[Broker]:
    with open_store(path, clock, busy_timeout_ms=20) as opened:
        yield opened


def test_other_clients_see_no_lock_of_an_idle_store(store: Broker, path: Path) -> None:
    acquire(store)
    store.list_pending_outbox()
    assert not is_write_locked(path)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
