"""The peers are as durable as the store, do what is said of them, and are never silently left out."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.fidelity import Inconsistent
from benchmarks.peers import PEERS, Peer
from benchmarks.scale import TINY
from benchmarks.workload import payload

DATABASES = {"eventsourcing": peers.eventsourcing, "dbos": peers.dbos}


def need(package: str) -> None:
    """Skip the test, and say so, unless the package is there."""
    pytest.importorskip(
        package, reason=f"{package} is not installed: uv run --group benchmarks pytest"
    )


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.package)
def test_every_figure_is_positive_and_says_what_differs(peer: Peer, tmp_path: Path) -> None:
    need(peer.package)
    figures = list(peer.figures(TINY, tmp_path, random.Random(1)))
    assert [figure.name for figure in figures] == list(peer.differences)
    for figure in figures:
        assert figure.ratio is not None
        assert figure.ratio > 0
        assert figure.bound is None
        assert any(f"{figure.name}: {peer.differences[figure.name]}" in n for n in peers.notes())


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.package)
def test_beside_a_peer_the_store_commits_events_alone(peer: Peer, tmp_path: Path) -> None:
    need(peer.package)
    list(peer.figures(TINY, tmp_path, random.Random(1)))
    with closing(sqlite3.connect(tmp_path / f"beside-{peer.package}.db")) as connection:
        counts = connection.execute(
            "SELECT (SELECT count(*) FROM outbox), (SELECT max(revision) FROM projections),"
            " (SELECT count(*) > 1 FROM events)"
        )
        assert counts.fetchone() == (1, 1, True)  # of the commit that every database starts with


@pytest.mark.parametrize("package", DATABASES)
def test_a_peer_that_is_less_durable_is_not_measured(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(package)
    monkeypatch.setattr(peers, "DURABLE", peers.DURABLE | {"synchronous": 3})
    refused = pytest.raises(Inconsistent, match=f"{package} runs with .*'synchronous': 2")
    with refused, DATABASES[package](tmp_path / "peer.db"):
        pass


def test_a_peer_that_is_not_installed_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "version_of", lambda _package: None)
    assert list(peers.figures(TINY, tmp_path, random.Random(1))) == []
    command = "uv run --group benchmarks python -m benchmarks"
    assert peers.notes() == [
        f"{peer.package}: not installed; `{command}` brings it" for peer in PEERS
    ]


def test_eventsourcing_keeps_every_payload_in_order(tmp_path: Path) -> None:
    need("eventsourcing")
    with peers.eventsourcing(tmp_path / "peer.db") as peer:
        assert len(peer.appends(2)) == 2
        assert len(peer.appends(1, events=3)) == 1
        assert peer.read(4) == [payload(revision) for revision in range(2, 6)]
        assert peer.recorder.max_notification_id() == 6


def test_dbos_records_each_result_once_and_with_it_the_event(tmp_path: Path) -> None:
    need("dbos")
    path = tmp_path / "peer.db"
    with peers.dbos(path) as peer:
        assert len(peer.runs(peer.append, 2)) == 2
        assert len(peer.repeats(peer.append, 2)) == 2
        assert peer.run(peer.append, 2, payload(2)) == {"revision": 2}
        assert len(peer.runs(peer.record, 1)) == 1
        assert peer.run(peer.record, 3, payload(4)) == {"revision": 3}
    with closing(sqlite3.connect(path)) as connection:
        ids = connection.execute("SELECT event_id FROM journal ORDER BY event_id").fetchall()
        statuses = connection.execute("SELECT status FROM workflow_status").fetchall()
    assert ids == [("e-0",), ("e-1",), ("e-2",)]
    assert statuses == [("SUCCESS",)] * 4
