"""Cases about the file: in memory, across a fork, read-only, and its log."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    NullPool,
    StaticPool,
    create_engine,
)
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork, configure_engine
from broker.errors import (
    BrokerError,
    ConfigurationError,
)
from tests import support
from tests.places import raw, rows, url_of
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    finish,
    open_files,
    open_store,
    page_request,
    start_python,
)

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


def test_b11_every_connection_of_the_pool_is_durable(path: Path, store: Broker) -> None:
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
