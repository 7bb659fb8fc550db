"""A file that others lock, that may not be written, that may not grow, or that is gone."""

from __future__ import annotations

import os
import resource
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from broker import Broker, Options
from broker.errors import DatabaseBusy, DatabaseUnavailable, OutcomeUnknown
from broker.messages import Lease
from tests.places import rows, url_of
from tests.proof.faults.scene import Scene, appended
from tests.support import HOLD_THE_LOCK, acquire, locked_by_a_process

BUSY_TIMEOUT_MS = 200
NOBODY = 65534
_THROUGH = stat.S_IXGRP | stat.S_IXOTH

# Holds the file by a lock that is none of SQLite's.
FOREIGN_LOCK = """
import fcntl, sys
with open(sys.argv[1] + "-shm", "r+b") as shared:
    fcntl.lockf(shared, fcntl.LOCK_EX, 1, 120)
    print("locked", flush=True)
    sys.stdin.readline()
"""


def locked_by_a_transaction(scene: Scene) -> None:
    """Who writes is told that it is busy, in time; who reads does not wait."""
    _locked(scene, HOLD_THE_LOCK)


def locked_by_a_stranger(scene: Scene) -> None:
    """The same for a lock on the log's index that no transaction holds."""
    _locked(scene, FOREIGN_LOCK)


def _locked(scene: Scene, script: str) -> None:
    with _opened(scene) as store:
        lease = acquire(store)
        scene.acknowledged(appended(store, lease, "before"))
        scene.met()
        with locked_by_a_process(_path(scene), script):
            for number in range(2):
                with scene.refused(DatabaseBusy, what="a commit while it is locked"):
                    appended(store, lease, f"refused-{number}")
            with scene.refused(DatabaseBusy, what="an opening while it is locked"):
                _open(scene).close()
            store.read_events({"streamId": "stream"})
        scene.acknowledged(appended(store, lease, "after"))
    _expect_messages(scene, ["after", "before"])


def not_to_be_written(scene: Scene) -> None:
    """A file and its folder whose rights are taken away, while it is open and while it is not."""
    path, names = _path(scene), ["after", "before"]
    with _unprivileged(path):
        with _opened(scene) as store:
            lease = acquire(store)
            scene.acknowledged(appended(store, lease, "before"))
            with _read_only(path):
                scene.met()
                try:  # what is open may be written to
                    scene.acknowledged(appended(store, lease, "open"))
                    names.append("open")
                except DatabaseUnavailable:
                    scene.report.counts["refused"] += 1
            scene.acknowledged(appended(store, lease, "after"))
        with _read_only(path):
            scene.met()
            with scene.refused(DatabaseUnavailable, what="an opening of a read-only file"):
                _open(scene).close()
        with _opened(scene) as store:
            scene.acknowledged(appended(store, lease, "last"))
    _expect_messages(scene, sorted([*names, "last"]))


@contextmanager
def _read_only(path: Path) -> Iterator[None]:
    with _rights(path, stat.S_IRUSR), _rights(path.parent, stat.S_IRUSR | stat.S_IXUSR):
        yield


def not_to_grow(scene: Scene) -> None:
    """The system lets no file of this process grow; and then it does again."""
    path = _path(scene)
    with _opened(scene) as store:
        lease = acquire(store)
        scene.acknowledged(appended(store, lease, "before"))
        size = path.with_name(f"{path.name}-wal").stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        scene.met()
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5_000, before[1]))
        try:
            unknown = (DatabaseUnavailable, OutcomeUnknown)
            with scene.refused(*unknown, what="a commit for which there is no room"):
                appended(store, lease, "refused")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        scene.acknowledged(appended(store, lease, "after"))
    _expect_messages(scene, ["after", "before"])


def deleted(scene: Scene) -> None:
    """A file that is deleted while it is open."""
    _gone(scene, Path.unlink)


def replaced(scene: Scene) -> None:
    """A file in whose place a copy is put while it is open."""

    def replace(path: Path) -> None:
        shutil.copyfile(path, path.with_name("copy.db"))
        path.with_name("copy.db").rename(path)

    _gone(scene, replace)


def _gone(scene: Scene, lose: Callable[[Path], None]) -> None:
    """Nothing is acknowledged into it any more; back in its place it is as it was."""
    path = _path(scene)
    with _opened(scene) as store:
        lease = acquire(store)
        scene.acknowledged(appended(store, lease, "before"))
        kept = path.with_name("kept.db")
        os.link(path, kept)
        lose(path)
        scene.met()
        for number in range(2):
            with scene.refused(DatabaseUnavailable, what="a commit to a file that is gone"):
                _commit_at_1(store, lease, f"refused-{number}")
        kept.replace(path)
        scene.acknowledged(appended(store, lease, "after"))
    _expect_messages(scene, ["after", "before"])


def _commit_at_1(store: Broker, lease: Lease, name: str) -> None:
    request = {"messageId": name, "actorId": lease.actor_id, "lease": lease.credential}
    store.commit({**request, "streamId": lease.stream_id, "expectedRevision": 1, "events": []})


# --------------------------------------------------------------------------------------- its means


def _path(scene: Scene) -> Path:
    assert isinstance(scene.place, Path)
    return scene.place


def _open(scene: Scene) -> Broker:
    options = Options(busy_timeout_ms=BUSY_TIMEOUT_MS)
    return Broker.open(url_of(scene.place), options=options)


@contextmanager
def _opened(scene: Scene) -> Iterator[Broker]:
    with _open(scene) as store:
        yield store


@contextmanager
def _rights(path: Path, mode: int) -> Iterator[None]:
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(stat.S_IMODE(before))


@contextmanager
def _unprivileged(path: Path) -> Iterator[None]:
    """Work as a user for whom rights count, which they do not for root; the file is that user's."""
    if os.geteuid() != 0:
        yield
        return
    with ExitStack() as undo:
        for each in (path, path.parent):
            os.chown(each, NOBODY, -1)
        undo.enter_context(_entered(path.parent.parent))
        os.seteuid(NOBODY)
        undo.callback(os.seteuid, 0)
        yield


@contextmanager
def _entered(folder: Path) -> Iterator[None]:
    """Let everybody pass through the folders up to this one."""
    with ExitStack() as undo:
        for each in (folder, *folder.parents):
            if each.stat().st_mode & _THROUGH != _THROUGH:
                undo.enter_context(_rights(each, stat.S_IMODE(each.stat().st_mode) | _THROUGH))
        yield


def _expect_messages(scene: Scene, names: list[str]) -> None:
    found = [name for (name,) in rows(scene.place, "SELECT message_id FROM inbox ORDER BY 1")]
    scene.expect(found == names, "lost", f"stored are {found}, not {names}")
