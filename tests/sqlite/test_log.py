"""The write-ahead log does not grow without end while somebody always reads."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from broker import Broker
from broker.messages import Lease
from broker.sqlite import log
from tests.group_support import control_statements
from tests.places import raw
from tests.support import acquire, commit_request, event

MIB = 1024 * 1024
MOST = MIB


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is large sooner, so that less has to be written, and those who read may take longer."""
    monkeypatch.setattr(log, "MOST_BYTES", MOST)
    monkeypatch.setattr(log, "LOOK_EVERY", 4)
    monkeypatch.setattr(log, "LOOK_AGAIN_AFTER", 16)
    monkeypatch.setattr(log, "PATIENCE_MS", 5_000)


def _size(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


def _commits(store: Broker, lease: Lease, path: Path, count: int) -> int:
    """Commit so many times 100 KB; how large the log was at the most."""
    most = 0
    first = store.get_stream_revision({"streamId": lease.stream_id})
    for number in range(first, first + count):
        events = [event(f"e-{number}", "x" * 100_000)]
        store.commit(commit_request(lease, f"m-{number}", expectedRevision=number, events=events))
        most = max(most, _size(path))
    return most


def _read(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM streams").fetchall()


@contextmanager
def _somebody_always_reads(path: Path) -> Iterator[None]:
    """Two readers, of which each begins before the other ends."""
    over = threading.Event()

    def read() -> None:
        with raw(path) as one, raw(path) as other:
            _read(one)
            while not over.is_set():
                _read(other)
                one.execute("COMMIT")
                one, other = other, one

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_log_stays_small_though_somebody_always_reads(store: Broker, path: Path) -> None:
    lease = acquire(store)
    with _somebody_always_reads(path):
        most = _commits(store, lease, path, 120)  # 12 MB
    assert most < 4 * MOST


def test_who_reads_for_long_holds_up_no_writer_and_the_log_is_cut_when_he_is_gone(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "PATIENCE_MS", 1)
    lease = acquire(store)
    with raw(path) as reader, control_statements() as statements:
        _read(reader)
        assert _commits(store, lease, path, 40) > 4 * MOST
    times = statements.count("PRAGMA busy_timeout=1")
    assert 1 < times < 4  # not after each commit
    _commits(store, lease, path, 40)
    assert _size(path) < 2 * MOST


def test_a_log_that_cannot_be_cut_is_nobodys_error(
    store: Broker, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_CUT", "SELECT no_such_column")
    lease = acquire(store)
    with ExitStack() as reading:
        reading.enter_context(_somebody_always_reads(path))
        _commits(store, lease, path, 30)
    assert store.get_stream_revision({"streamId": lease.stream_id}) == 30
