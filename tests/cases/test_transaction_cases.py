"""Cases about connections, transactions and crashes; each test names its case."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pwd
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Engine,
    NullPool,
    StaticPool,
    create_engine,
    select,
    text,
    update,
)
from sqlalchemy import exc as sa_exc
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from broker import IMMEDIATE, Broker, UnitOfWork, configure_engine
from broker.engine import make_engine
from broker.errors import (
    BrokerError,
    ConfigurationError,
    DatabaseBusy,
    OutcomeUnknown,
    RevisionConflict,
    StaleLease,
)
from broker.messages import Lease
from broker.models import ActorLease
from broker.statements import Channel, Statement
from tests import support
from tests.support import (
    TTL_MS,
    ManualClock,
    acquire,
    break_commit,
    commit_request,
    contents,
    finish,
    is_write_locked,
    open_files,
    open_store,
    outbox_message,
    page_request,
    raw,
    rows,
    start_python,
    url_of,
    wait_for,
    write_locked,
)


class Application(DeclarativeBase):
    """An application's own table, in the same database."""


class Order(Application):
    __tablename__ = "orders"

    name: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(default="new")


HOOKED: dict[str, Callable[[str], Engine]] = {
    "ours": make_engine,
    "configured": lambda url: configure_engine(create_engine(url)),
}


@pytest.fixture(params=HOOKED)
def hooked(request: pytest.FixtureRequest, store: Broker, path: Path) -> Iterator[Engine]:
    """An engine with our hooks, on a database with the store's tables and the application's."""
    engine = HOOKED[request.param](url_of(path))
    Application.metadata.create_all(engine)
    yield engine
    engine.dispose()


def orders(path: Path) -> list[str]:
    return [name for (name,) in rows(path, "SELECT name FROM orders ORDER BY name")]


# --------------------------------------------------------------------------------------------- B01


def create_and_fail(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE half (x)"))
        raise ZeroDivisionError


def test_b01_a_table_made_in_a_transaction_that_fails_is_not_there(
    hooked: Engine, path: Path
) -> None:
    with pytest.raises(ZeroDivisionError):
        create_and_fail(hooked)
    assert rows(path, "SELECT name FROM sqlite_schema WHERE name = 'half'") == []


def test_b01_a_released_savepoint_is_undone_by_the_outer_rollback(
    hooked: Engine, path: Path
) -> None:
    with hooked.connect() as connection:
        outer, nested = connection.begin(), connection.begin_nested()
        connection.execute(text("INSERT INTO orders VALUES ('nested', 'new')"))
        nested.commit()
        outer.rollback()
    assert orders(path) == []


def test_b01_a_unit_in_a_released_savepoint_is_undone_by_the_outer_rollback(
    hooked: Engine, path: Path, store: Broker
) -> None:
    with Session(hooked) as session:
        with session.begin_nested():
            acquire(store.unit_of_work(session))
        session.rollback()
    assert rows(path, "SELECT * FROM actor_leases") == []


def test_b01_without_the_begin_hook_half_of_the_work_stays(path: Path) -> None:
    """What the tests above would see if somebody removed it."""
    engine = configure_engine(create_engine(url_of(path)))
    engine.dispatch.begin.listeners.clear()
    with pytest.raises(ZeroDivisionError):
        create_and_fail(engine)
    assert rows(path, "SELECT name FROM sqlite_schema WHERE name = 'half'") == [("half",)]


def test_b01_the_driver_begins_nothing_by_itself(hooked: Engine, path: Path) -> None:
    """Without the connect hook it would begin before an INSERT, and commit as it likes."""
    connection = hooked.raw_connection()
    cursor = connection.cursor()
    cursor.execute("INSERT INTO orders VALUES ('by itself', 'new')")
    connection.close()
    assert orders(path) == ["by itself"]


# --------------------------------------------------------------------------------------------- B02


def test_b02_reading_and_then_writing_never_meets_a_stale_snapshot(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    lease = acquire(store)

    def work(mine: Broker, name: str) -> None:
        for number in range(20):
            commit_at_any_revision(mine, lease, f"{name}-{number}")

    with open_store(path, clock) as other:
        support.in_threads(
            lambda: work(store, "a"),
            lambda: work(store, "b"),
            lambda: work(other, "c"),
            lambda: work(other, "d"),
        )
    found = rows(path, "SELECT revision FROM events ORDER BY rowid")
    assert found == [(number,) for number in range(1, 81)]


def commit_at_any_revision(store: Broker, lease: Lease, message_id: str) -> None:
    while True:
        revision = store.get_stream_revision({"streamId": lease.stream_id})
        try:
            store.commit(commit_request(lease, message_id, expectedRevision=revision))
        except RevisionConflict:
            continue
        return


def test_b02_a_stale_snapshot_asks_for_the_whole_unit_again(hooked: Engine, store: Broker) -> None:
    with Session(hooked) as session:
        session.scalars(select(Order)).all()
        acquire(store, "other", "other")
        with pytest.raises(DatabaseBusy, match="run the whole unit again") as caught:
            acquire(store.unit_of_work(session))
        cause = caught.value.__cause__
        assert isinstance(cause, sqlite3.OperationalError)
        assert cause.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT
        session.rollback()
        assert acquire(store.unit_of_work(session)).epoch == 1


def test_b02_a_unit_begun_as_a_writer_needs_no_second_run(hooked: Engine, store: Broker) -> None:
    with Session(hooked.execution_options(**IMMEDIATE)) as session:
        session.scalars(select(Order)).all()
        assert is_write_locked(Path(str(hooked.url.database)))
        assert acquire(store.unit_of_work(session)).epoch == 1
        session.commit()


# --------------------------------------------------------------------------------------------- B03


def test_b03a_a_session_whose_begin_timed_out_can_be_used_again(store: Broker, path: Path) -> None:
    engine = configure_engine(create_engine(url_of(path)), busy_timeout_ms=0)
    with Session(engine.execution_options(**IMMEDIATE)) as session:
        with write_locked(path):
            with pytest.raises(sa_exc.OperationalError, match="locked"):
                session.execute(text("SELECT 1"))
            with pytest.raises(DatabaseBusy):
                acquire(store.unit_of_work(session))
        assert session.execute(text("SELECT 1")).scalar() == 1
        acquire(store.unit_of_work(session))
        session.commit()
    assert engine.pool.status().endswith("Current Checked out connections: 0")
    assert rows(path, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_b03a_a_store_whose_begin_timed_out_can_be_used_again(
    path: Path, clock: ManualClock
) -> None:
    with open_store(path, clock, busy_timeout_ms=0) as store:
        with write_locked(path):
            for _ in range(20):
                with pytest.raises(DatabaseBusy):
                    acquire(store)
        assert acquire(store).epoch == 1


def test_b03b_a_forgotten_reader_blocks_no_writer(hooked: Engine, store: Broker) -> None:
    forgotten = Session(hooked)
    assert store.unit_of_work(forgotten).list_pending_outbox() == []
    lease = acquire(store)
    assert store.commit(commit_request(lease)).revision == 1
    assert store.unit_of_work(forgotten).get_lease({"actorId": "actor"}) is None
    forgotten.close()


def test_b03b_a_read_in_the_middle_blocks_no_writer(store: Broker, path: Path) -> None:
    def read(_transaction: Any) -> bool:
        with raw(path) as other:
            other.execute("PRAGMA busy_timeout=0")
            other.execute("UPDATE metadata SET value = value")
        return True

    assert store._read(read)


MARK_ALL = """
import json, sys
from broker import Broker
with Broker.open(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    ids = [str(number) for number in range(60)]
    print(json.dumps([each for each in ids if store.mark_outbox_delivered({"outboxId": each})]))
"""


def test_b03c_of_two_processes_that_mark_the_same_rows_each_row_has_one_that_did_it(
    store: Broker, path: Path
) -> None:
    messages = [outbox_message(str(number)) for number in range(60)]
    store.commit(commit_request(acquire(store), outbox=messages))
    processes = [start_python(MARK_ALL, url_of(path)) for _ in range(2)]
    for process in processes:
        wait_for(process, "ready")
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    marked = [each for process in processes for each in json.loads(finish(process))]

    assert sorted(marked, key=int) == [str(number) for number in range(60)]
    assert rows(path, "SELECT DISTINCT attempts, delivered_at IS NULL FROM outbox") == [(1, 0)]


def test_b03c_no_statement_counts_on_a_row_lock_that_sqlite_does_not_have() -> None:
    statements = [each for each in gc.get_objects() if type(each) is Statement]
    assert len(statements) > 20
    assert [
        sql for sql, _ in (each.compiled["sqlite"] for each in statements) if "FOR UPDATE" in sql
    ] == []


# --------------------------------------------------------------------------------------------- B06


def test_b06_a_claim_by_returning_is_judged_by_its_rows(hooked: Engine, path: Path) -> None:
    claim = (
        update(Order)
        .where(Order.name == "one", Order.state == "new")
        .values(state="claimed")
        .returning(Order.name)
    )
    with Session(hooked) as session:
        session.add(Order(name="one"))
        session.flush()
        assert session.execute(claim).scalars().all() == ["one"]
        assert session.execute(claim).scalars().all() == []
        session.commit()
    assert rows(path, "SELECT state FROM orders") == [("claimed",)]


def test_b06_a_returning_that_nobody_reads_costs_no_lock(
    hooked: Engine, path: Path, store: Broker
) -> None:
    with hooked.connect() as connection:
        connection.execute(text("INSERT INTO orders VALUES ('a', 'new'), ('b', 'new')"))
        connection.commit()
        unread = connection.exec_driver_sql("UPDATE orders SET state = 'x' RETURNING name")
        with pytest.raises(sa_exc.OperationalError, match="in progress"):
            connection.commit()
        unread.close()
    assert not is_write_locked(path)
    assert acquire(store).epoch == 1
    assert rows(path, "SELECT DISTINCT state FROM orders") == [("new",)]


def test_b06_after_every_operation_nothing_is_left_unread(
    store: Broker, path: Path, clock: ManualClock
) -> None:
    for name, request in support.operation_requests(store, clock).items():
        support.operate(store, name, request)
        with raw(path) as other:
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0), name


# --------------------------------------------------------------------------------------------- B07


def test_b07_foreign_keys_are_on_and_read_back_on_every_connection(hooked: Engine) -> None:
    with hooked.connect() as one, hooked.connect() as other:
        for connection in (one, other):
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


class WithAutocommitFalse(sqlite3.Connection):
    """What a connection of Python 3.12 says of itself when it was made with autocommit=False."""

    autocommit = False


def autocommit_false() -> dict[str, Any]:
    """Arguments for a connection in that mode; older Pythons get one that says so."""
    if sys.version_info >= (3, 12):
        return {"autocommit": False}
    return {"factory": WithAutocommitFalse}


def test_b07_autocommit_false_is_refused_by_an_engine_of_ours(store: Broker, path: Path) -> None:
    engine = configure_engine(create_engine(url_of(path), connect_args=autocommit_false()))
    with pytest.raises(ConfigurationError, match='"autocommit": False'):
        engine.connect()


def test_b07_autocommit_false_is_refused_by_a_unit_of_work(store: Broker, path: Path) -> None:
    engine = create_engine(url_of(path), connect_args=autocommit_false())
    with Session(engine) as session, pytest.raises(ConfigurationError, match='"autocommit": False'):
        acquire(store.unit_of_work(session))
    engine.dispose()


# --------------------------------------------------------------------------------------------- B08

IN_MEMORY = [
    "sqlite://",
    "sqlite:///",
    "sqlite:///:memory:",
    "sqlite+pysqlite:///:memory:",
    "sqlite+aiosqlite:///:memory:",
    "sqlite:///file::memory:?uri=true",
    "sqlite:///file::memory:?cache=shared&uri=true",
    "sqlite:///file:name?mode=memory&cache=shared&uri=true",
    "sqlite:///file:%3Amemory%3A?uri=true",
]
ELSEWHERE_THAN_IN_A_FILE = ["sqlite:///file:?uri=true", "sqlite:///file:/x?vfs=memdb&uri=true"]


@pytest.mark.parametrize("url", IN_MEMORY)
def test_b08_a_database_in_memory_is_refused_in_every_spelling(url: str) -> None:
    for migrate in (True, False):
        with pytest.raises(ConfigurationError, match="in-memory"):
            Broker.open(url, migrate=migrate)


@pytest.mark.parametrize("url", ELSEWHERE_THAN_IN_A_FILE)
def test_b08_what_turns_out_to_be_no_file_is_refused_as_well(url: str) -> None:
    with pytest.raises(BrokerError):
        Broker.open(url)


@pytest.mark.parametrize("pool", [StaticPool, NullPool])
def test_b08_a_unit_of_work_on_a_database_in_memory_is_refused(pool: Any) -> None:
    engine = create_engine("sqlite:///:memory:", poolclass=pool)
    with Session(engine) as session, pytest.raises(ConfigurationError, match="in-memory"):
        acquire(UnitOfWork(session))
    engine.dispose()


def test_b08_a_connection_that_leads_into_memory_behind_a_files_name_is_refused(path: Path) -> None:
    engine = create_engine(
        url_of(path), creator=lambda: sqlite3.connect(":memory:"), poolclass=NullPool
    )
    with Session(engine) as session, pytest.raises(ConfigurationError, match="in-memory"):
        acquire(UnitOfWork(session))


# --------------------------------------------------------------------------------------------- B09

# The child writes before and after its parent has closed the store; each says what it did.
FORK = """
import os, sys
from broker import Broker
from tests.support import acquire, commit_request

def say(word):
    print(word, flush=True)

def commit(message, revision):
    store.commit(commit_request(lease, message, expectedRevision=revision))

store = Broker.open(sys.argv[1])
lease = acquire(store)
commit("before", 0)
store.get_stream_revision({"streamId": "stream"})
from_child, to_parent = os.pipe()
from_parent, to_child = os.pipe()
pid = os.fork()
if pid == 0:
    commit("child", 1)
    os.write(to_parent, b"x")
    os.read(from_parent, 1)
    commit("child again", 3)
    store.close()
    os._exit(0)
os.read(from_child, 1)
commit("parent", 2)
store.close()
os.write(to_child, b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_b09_what_a_child_and_its_parent_commit_after_a_fork_is_all_there(path: Path) -> None:
    finish(start_python(FORK, url_of(path)))
    found = rows(path, "SELECT message_id FROM inbox ORDER BY applied_revision")
    assert found == [("before",), ("child",), ("parent",), ("child again",)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


# A thread of the parent is in the middle of a write when another thread forks.
FORK_DURING_A_WRITE = """
import os, sys, threading
from broker import Broker, Options
from tests.support import acquire

inside, go_on = threading.Event(), threading.Event()

def nonce():
    inside.set()
    go_on.wait(30)
    return "nonce"

store = Broker.open(sys.argv[1], options=Options(nonce=nonce))
slow = threading.Thread(target=acquire, args=(store, "parent", "parent"))
slow.start()
inside.wait(30)
os.register_at_fork(before=go_on.set)  # hooks run last in, first out: before the store's
pid = os.fork()
if pid == 0:
    acquire(store, "child", "child")
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
slow.join()
acquire(store, "later", "later")
store.close()
sys.exit(code)
"""


def test_b09_a_fork_while_another_thread_writes_harms_neither(path: Path) -> None:
    finish(start_python(FORK_DURING_A_WRITE, url_of(path)))
    found = rows(path, "SELECT actor_id FROM actor_leases ORDER BY actor_id")
    assert found == [("child",), ("later",), ("parent",)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_b09_before_a_fork_the_parent_lets_go_of_the_file(store: Broker, path: Path) -> None:
    acquire(store)
    store.list_pending_outbox()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, json.dumps(open_files(path)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert json.load(said) == []
    assert store.get_lease({"actorId": "actor"}) is not None


# --------------------------------------------------------------------------------------------- B10


def become_unprivileged() -> None:
    """Root may write everywhere: become somebody else, for good."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)


def refusal_in_child(url: str) -> str:
    """What a process that may not write everywhere is told when it opens a store."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "opened"
        try:
            become_unprivileged()
            Broker.open(url, migrate=False).close()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        return answer.read()


@contextmanager
def read_only_folder(store_path: Path) -> Iterator[Path]:
    """A cleanly closed database in a folder that others may read and nobody may write."""
    folder = Path(tempfile.mkdtemp(prefix="broker-"))
    copy = folder / "broker.db"
    shutil.copy(store_path, copy)
    copy.chmod(0o444)
    folder.chmod(0o555)
    try:
        yield copy
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.skipif(
    os.geteuid() == 0 and not any(each.pw_name == "nobody" for each in pwd.getpwall()),
    reason="root may write everywhere, and there is no account `nobody` to become",
)
@pytest.mark.parametrize("form", ["sqlite:///{}", "sqlite:///file:{}?mode=ro&uri=true"])
def test_b10_a_database_in_a_read_only_folder_is_refused_naming_the_log_and_the_folder(
    path: Path, clock: ManualClock, form: str
) -> None:
    open_store(path, clock).close()
    with read_only_folder(path) as copy:
        said = refusal_in_child(form.format(copy))
        left = [each.name for each in copy.parent.iterdir()]
    assert said.startswith("DatabaseUnavailable"), said
    assert "-wal and -shm" in said
    assert "folder" in said
    assert left == ["broker.db"]


def test_b10_a_connection_that_may_only_read_is_refused(path: Path, clock: ManualClock) -> None:
    open_store(path, clock).close()
    before = path.read_bytes()
    with pytest.raises(BrokerError, match="read-only; the write-ahead log"):
        Broker.open(f"sqlite:///file:{path}?mode=ro&uri=true")
    with pytest.raises(ConfigurationError, match="stays in journal mode 'delete'"):
        Broker.open(f"sqlite:///file:{path}?immutable=1&uri=true")
    assert path.read_bytes() == before


def test_b10_the_answer_to_the_wal_pragma_is_checked(path: Path) -> None:
    class Elsewhere(sqlite3.Connection):
        """A driver that opens a database which cannot have a write-ahead log."""

        def __init__(self, _file: str, **options: Any) -> None:
            super().__init__(":memory:", **options)

    engine = configure_engine(create_engine(url_of(path), connect_args={"factory": Elsewhere}))
    with pytest.raises(ConfigurationError, match="stays in journal mode 'memory'"):
        engine.connect()


# --------------------------------------------------------------------------------------------- B11


def test_b11_every_connection_of_the_pool_is_durable(store: Broker) -> None:
    connections = [store.engine.connect() for _ in range(5)]
    found = [each.exec_driver_sql("PRAGMA synchronous").scalar() for each in connections]
    for each in connections:
        each.close()
    assert found == [2] * 5


def test_b11_a_paged_scan_holds_no_snapshot_between_its_pages(store: Broker, path: Path) -> None:
    lease, after, done = acquire(store), 0, False
    events = [support.event(f"e{number}", "x" * 2_000) for number in range(40)]
    store.commit(commit_request(lease, events=events))
    while not done:
        page = store.read_authorized_events_page(page_request(lease, limit=10, afterRevision=after))
        after, done = page.next_revision, page.done
        with raw(path) as other:
            other.execute("INSERT INTO metadata VALUES (?, '')", (str(after),))
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    assert after == 40
    assert Path(f"{path}-wal").stat().st_size == 0


# --------------------------------------------------------------------------------------------- B39


def kill_at_statement(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process die before statement `number` of those that come."""
    count = [0]

    def dying(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            count[0] += 1
            if count[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments)

        return run

    for name in ("one", "all", "run", "run_each", "control"):
        monkeypatch.setattr(Channel, name, dying(getattr(Channel, name)))


def die_committing(path: Path, request: dict[str, Any], at: int) -> bool:
    """Commit in a child that dies before statement `at`; whether it died."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with pytest.MonkeyPatch.context() as patch:
                store = Broker.open(url_of(path), options=ManualClock().options())
                kill_at_statement(at, patch)
                store.commit(request)
                code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in {0, -signal.SIGKILL}
    return code != 0


def test_b39_wherever_a_commit_is_killed_its_key_is_free_and_runs_exactly_once(
    path: Path, clock: ManualClock
) -> None:
    with open_store(path, clock) as store:
        lease = acquire(store)
    request = commit_request(
        lease,
        events=[support.event("one"), support.event("two")],
        outbox=[outbox_message("outgoing", eventId="one")],
        projections=[{"projectionId": "p", "value": 1}],
    )
    before, at = contents(path), 1
    while die_committing(path, request, at):
        assert contents(path) == before, f"before statement {at}"
        at += 1
    assert at > 10  # recover, BEGIN, look, savepoint, five tables, release, COMMIT

    with open_store(path, clock) as store:
        assert store.commit(request).recovered
        assert store.commit(request).event_cursors == (1, 2)
    assert rows(path, "SELECT event_id FROM events ORDER BY rowid") == [("one",), ("two",)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_b39_after_a_kill_the_next_try_does_the_work(path: Path, clock: ManualClock) -> None:
    with open_store(path, clock) as store:
        lease = acquire(store)
    request = commit_request(lease)
    assert die_committing(path, request, 8)
    with open_store(path, clock) as store:
        first, second = store.commit(request), store.commit(request)
    assert (first.recovered, second.recovered) == (False, True)
    assert rows(path, "SELECT count(*) FROM events") == [(1,)]


# --------------------------------------------------------------------------------------------- B42

LOST = ConnectionResetError("lost on the way")


@pytest.mark.parametrize("takes_effect", [True, False])
def test_b42_a_commit_lost_on_the_way_has_an_unknown_outcome_and_its_retry_settles_it(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    lease = acquire(store)
    request = commit_request(lease)
    break_commit(monkeypatch, LOST, takes_effect=takes_effect)

    with pytest.raises(OutcomeUnknown, match="same messageId or requestId"):
        store.commit(request)

    assert not is_write_locked(path)
    assert rows(path, "SELECT count(*) FROM inbox") == [(int(takes_effect),)]
    assert store.commit(request).recovered == takes_effect
    assert rows(path, "SELECT revision FROM events") == [(1,)]


@pytest.mark.parametrize("takes_effect", [True, False])
def test_b42_a_lease_mutation_lost_on_the_way_is_settled_by_its_request_id(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    request = {"actorId": "actor", "holderId": "holder", "ttlMs": TTL_MS}
    break_commit(monkeypatch, LOST, takes_effect=takes_effect)
    with pytest.raises(OutcomeUnknown):
        store.acquire_lease(request, request_id="receipt")
    lease = store.acquire_lease(request, request_id="receipt")
    assert lease.nonce == ("nonce-1" if takes_effect else "nonce-2")
    assert rows(path, "SELECT nonce FROM actor_leases") == [(lease.nonce,)]


def test_b42_what_has_no_key_is_not_run_again(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []

    def nonce() -> str:
        drawn.append("nonce")
        return "nonce"

    with open_store(path, clock, nonce=nonce) as store:
        break_commit(monkeypatch, LOST, takes_effect=False)
        with pytest.raises(OutcomeUnknown):
            acquire(store)
    assert drawn == ["nonce"]


@pytest.mark.parametrize("takes_effect", [True, False])
def test_b42_a_refusal_whose_clock_cannot_be_kept_leaves_no_lock(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch, takes_effect: bool
) -> None:
    acquire(store)
    break_commit(monkeypatch, LOST, takes_effect=takes_effect)
    with pytest.raises(OutcomeUnknown):
        acquire(store, "second")
    assert not is_write_locked(path)
    assert rows(path, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_b42_a_commit_that_sqlite_turned_down_has_a_known_outcome(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    lease = acquire(store)
    break_commit(monkeypatch, busy, takes_effect=False)
    with pytest.raises(DatabaseBusy):
        store.commit(commit_request(lease))
    assert not is_write_locked(path)
    assert not store.commit(commit_request(lease)).recovered


# --------------------------------------------------------------------------------------------- B51


def between_the_statements(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]
) -> list[object]:
    """Do something after the first statement that comes, on any channel; the answer, once done."""
    one, answers = Channel.one, list[object]()

    def then_work(channel: Channel, *arguments: Any) -> Any:
        row = one(channel, *arguments)
        monkeypatch.setattr(Channel, "one", one)
        answers.append(work())
        return row

    monkeypatch.setattr(Channel, "one", then_work)
    return answers


def test_b51_the_statements_of_a_read_see_one_snapshot(
    store: Broker, path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    late = commit_request(lease, "late", expectedRevision=1)
    with open_store(path, clock) as other:
        answers = between_the_statements(monkeypatch, lambda: other.commit(late))
        found = store.read_authorized_events(
            {
                "streamId": "stream",
                "authorization": {"actorId": "actor", "lease": support.credential(lease)},
            }
        )
    assert len(answers) == 1
    assert [each.revision for each in found] == [1]
    assert store.get_stream_revision({"streamId": "stream"}) == 2


@pytest.mark.parametrize(
    "make", [create_engine, *HOOKED.values()], ids=["default", "ours", "configured"]
)
def test_b51_the_statements_of_a_units_read_see_one_snapshot_on_any_engine(
    store: Broker,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[str], Engine],
) -> None:
    lease = acquire(store)
    store.commit(commit_request(lease))
    late = commit_request(lease, "late", expectedRevision=1)
    engine = make(url_of(path))
    with Session(engine) as session:
        answers = between_the_statements(monkeypatch, lambda: store.commit(late))
        found = store.unit_of_work(session).read_authorized_events(
            {
                "streamId": "stream",
                "authorization": {"actorId": "actor", "lease": support.credential(lease)},
            }
        )
        assert len(answers) == 1
        assert [each.revision for each in found] == [1]
    engine.dispose()


def test_b51_a_projection_and_its_events_are_killed_or_kept_together(
    store: Broker, path: Path
) -> None:
    lease = acquire(store)
    foreign = acquire(store, "other", "other")
    projections = [{"projectionId": "p", "value": 1}]
    store.commit(commit_request(lease, projections=projections))
    before = contents(path)
    with pytest.raises(BrokerError):
        store.commit(commit_request(foreign, "foreign", projections=projections))
    assert contents(path) == before


# --------------------------------------------------------------------------------------------- B59


def with_async_session(
    path: Path, work: Callable[[AsyncSession, AsyncEngine], Any], *, configure: bool = True
) -> Any:
    """Do something with a session of an async engine; its pool must be whole afterwards."""

    async def run() -> Any:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        if configure:
            configure_engine(engine.sync_engine)
        async with AsyncSession(engine) as session:
            answer = await work(session, engine)
        async with engine.connect() as connection:
            assert (await connection.execute(text("SELECT 1"))).scalar() == 1
        assert engine.pool.status().endswith("Current Checked out connections: 0")
        await engine.dispose()
        return answer

    return asyncio.run(run())


def test_b59_an_async_session_is_refused_and_told_the_way(store: Broker, path: Path) -> None:
    async def misuse(session: AsyncSession, _engine: AsyncEngine) -> None:
        with pytest.raises(ConfigurationError, match=r"run_sync\(lambda s: UnitOfWork\(s\)"):
            UnitOfWork(session)  # type: ignore[arg-type]  # what is refused
        with pytest.raises(ConfigurationError, match="run_sync"):
            store.unit_of_work(session)  # type: ignore[arg-type]  # what is refused

    with_async_session(path, misuse)


@pytest.mark.parametrize("configure", [True, False])
def test_b59_through_run_sync_the_rows_of_both_are_committed_together(
    store: Broker, path: Path, configure: bool
) -> None:
    async def unit(session: AsyncSession, engine: AsyncEngine) -> int:
        async with engine.begin() as connection:
            await connection.run_sync(Application.metadata.create_all)
        session.add(Order(name="mine"))
        lease = await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        result = await session.run_sync(lambda sync: UnitOfWork(sync).commit(commit_request(lease)))
        await session.commit()
        return result.revision  # a plain record: nothing is expired by the commit

    assert with_async_session(path, unit, configure=configure) == 1
    assert orders(path) == ["mine"]
    assert rows(path, "SELECT revision FROM events") == [(1,)]


def test_b59_through_run_sync_a_rollback_undoes_both(store: Broker, path: Path) -> None:
    async def unit(session: AsyncSession, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.run_sync(Application.metadata.create_all)
        session.add(Order(name="mine"))
        await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        await session.rollback()

    with_async_session(path, unit)
    assert orders(path) == []
    assert rows(path, "SELECT * FROM actor_leases") == []
    assert not is_write_locked(path)


def test_b59_through_run_sync_a_refusal_leaves_the_transaction_usable(
    store: Broker, path: Path
) -> None:
    async def unit(session: AsyncSession, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.run_sync(Application.metadata.create_all)
        session.add(Order(name="mine"))
        lease = await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        wrong = commit_request(lease) | {"lease": {"epoch": 9, "nonce": "no"}}
        with pytest.raises(StaleLease):
            await session.run_sync(lambda sync: UnitOfWork(sync).commit(wrong))
        await session.run_sync(lambda sync: UnitOfWork(sync).commit(commit_request(lease)))
        await session.commit()

    with_async_session(path, unit)
    assert orders(path) == ["mine"]
    assert rows(path, "SELECT message_id FROM inbox") == [("message",)]


def test_b59_a_sync_session_on_an_async_engine_is_named_as_the_misuse(
    store: Broker, path: Path
) -> None:
    async def misuse(session: AsyncSession, _engine: AsyncEngine) -> None:
        with pytest.raises(ConfigurationError, match="run_sync"):
            acquire(UnitOfWork(session.sync_session))
        await session.rollback()
        lease = await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        assert lease.epoch == 1
        await session.commit()

    with_async_session(path, misuse)
    assert rows(path, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_b59_entities_loaded_through_run_sync_can_be_refreshed_after_a_write(
    store: Broker, path: Path
) -> None:
    async def unit(session: AsyncSession, _engine: AsyncEngine) -> int:
        await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        row = await session.get_one(ActorLease, "actor")
        shown = {"epoch": row.epoch, "nonce": row.nonce}
        released = {"actorId": "actor", "lease": shown}
        await session.run_sync(lambda sync: UnitOfWork(sync).release_lease(released))
        await session.refresh(row)
        return row.expires_at - row.heartbeat_at

    assert with_async_session(path, unit) == 0


def test_b59_many_tasks_write_through_run_sync(store: Broker, path: Path) -> None:
    async def work() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
        configure_engine(engine.sync_engine)
        writing = engine.execution_options(**IMMEDIATE)

        async def one(name: str) -> None:
            async with AsyncSession(writing) as session, session.begin():
                await session.run_sync(lambda sync: acquire(UnitOfWork(sync), name, name))

        await asyncio.gather(*(one(str(number)) for number in range(8)))
        await engine.dispose()

    asyncio.run(work())
    assert rows(path, "SELECT count(*) FROM actor_leases") == [(8,)]
