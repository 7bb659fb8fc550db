"""Processes that are suspended: past their lease's end, and in the middle of a transaction."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from broker import Broker, Options
from broker.errors import DatabaseBusy, LeaseUnavailable
from broker.messages import Lease
from tests.places import rows, url_of
from tests.proof.faults.scene import Scene, appended
from tests.support import acquire, finish, start_python, wait_for

TTL_MS = 200
BUSY_TIMEOUT_MS = 300

# Commits when it is told to; with "inside" it is suspended in the middle of that transaction.
HOLDER = """
import os, signal, sys, time
from broker import Broker, Options
from broker.clock import wall_clock
from broker.errors import BrokerError

url, ttl_ms, where = sys.argv[1], int(sys.argv[2]), sys.argv[3]
is_inside = False

def wall():
    if is_inside:
        os.kill(os.getpid(), signal.SIGSTOP)
    return wall_clock()

def request(name, revision, lease):
    event = {"eventId": name, "eventType": "note", "payload": None}
    return {"messageId": name, "actorId": "holder", "lease": lease.credential,
            "streamId": "stream", "expectedRevision": revision, "events": [event]}

with Broker.open(url, options=Options(wall_clock=wall if where == "inside" else None)) as store:
    wanted = {"actorId": "holder", "streamId": "stream", "holderId": "h", "ttlMs": ttl_ms}
    lease = store.acquire_lease(wanted)
    store.commit(request("before", 0, lease))
    print("ready", flush=True)
    is_inside = where == "inside"
    sys.stdin.readline()
    try:
        store.commit(request("after", 1, lease))
        print("committed", flush=True)
    except BrokerError as error:
        print(error.code, flush=True)
"""


def suspended_past_its_lease(scene: Scene) -> None:
    """Another takes over meanwhile; what is written by who wakes is refused."""
    with _holder(scene, TTL_MS, "outside") as process, _other(scene) as store:
        scene.met()
        os.kill(process.pid, signal.SIGSTOP)
        heir = _take_over(store)
        scene.acknowledged(appended(store, heir, "heir-1"))
        os.kill(process.pid, signal.SIGCONT)
        said = finish(process, "go\n").strip()
        scene.expect(said == "stale_lease", "stale writes", f"who woke was told {said!r}")
        scene.acknowledged(appended(store, heir, "heir-2"))
        _expect_messages(scene, ["before", "heir-1", "heir-2"])


def suspended_in_a_transaction(scene: Scene) -> None:
    """The others are told that it is busy, and go on once it ends; what it had begun is whole."""
    with _suspended_inside(scene) as (process, store, lease):
        names = ["after", "before", "other"]
        if isinstance(scene.place, Path):
            with scene.refused(DatabaseBusy, what="a commit beside one who is suspended"):
                appended(store, lease, "beside")
        else:  # only who needs the same stream has to wait
            scene.acknowledged(appended(store, lease, "beside"))
            names.insert(2, "beside")
            with scene.refused(DatabaseBusy, what="a lease on the stream of one who is suspended"):
                acquire(store, "holder", "stream")
        store.get_stream_revision({"streamId": "stream"})  # who reads does not wait
        os.kill(process.pid, signal.SIGCONT)
        while process.poll() is None:  # it is suspended at each look at the clock
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.01)
        said = finish(process).strip()
        scene.expect(said == "committed", "lost", f"who was suspended was told {said!r}")
        scene.acknowledged(appended(store, lease, "other"))
        _expect_messages(scene, names)


def killed_while_suspended(scene: Scene) -> None:
    """What one had begun that never wakes is nowhere, and its lock is free at once."""
    with _suspended_inside(scene) as (process, store, lease):
        process.kill()
        process.wait()
        scene.acknowledged(appended(store, lease, "other"))
        _expect_messages(scene, ["before", "other"])


@contextmanager
def _holder(scene: Scene, ttl_ms: int, where: str) -> Iterator[subprocess.Popen[str]]:
    process = start_python(HOLDER, url_of(scene.place), ttl_ms, where)
    try:
        wait_for(process, "ready")
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _suspended_inside(scene: Scene) -> Iterator[tuple[subprocess.Popen[str], Broker, Lease]]:
    """A process that is suspended in the middle of a commit, and another's store and lease."""
    with _holder(scene, 60_000, "inside") as process, _other(scene) as store:
        lease = acquire(store, "other", "other")
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        scene.met()
        yield process, store, lease


@contextmanager
def _other(scene: Scene) -> Iterator[Broker]:
    options = Options(busy_timeout_ms=BUSY_TIMEOUT_MS)
    with Broker.open(url_of(scene.place), options=options) as store:
        yield store


def _take_over(store: Broker) -> Lease:
    """Take over as soon as that is granted."""
    wanted = {"actorId": "heir", "streamId": "stream", "holderId": "h", "ttlMs": 60_000}
    deadline = time.monotonic() + 30
    while True:
        try:
            return store.takeover_lease(wanted)
        except LeaseUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _expect_messages(scene: Scene, names: list[str]) -> None:
    found = [name for (name,) in rows(scene.place, "SELECT message_id FROM inbox ORDER BY 1")]
    scene.expect(found == names, "lost", f"stored are {found}, not {names}")
