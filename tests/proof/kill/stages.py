"""Where runs are: a file for each on SQLite, a database for a few on PostgreSQL, as deeds need them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from broker import Broker
from broker.cli.demo import legacy
from tests.places import TABLES, Client, Place, backend_of, url_of
from tests.proof.kill.evidence import Evidence
from tests.proof.task import Task
from tests.support import acquire, commit_request, outbox_message

RUNS_IN_A_DATABASE = 8  # so that receipts stay below their capacity, and reading all is quick

HEAD = 3  # the version of the schema
NOTHING = Evidence({}, {}, {}, {}, {}, {}, {}, {})


class Stages:
    """Makes places; each holds what its deed begins with."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._shared = ExitStack()
        self._left = 0
        self._place: Place | None = None
        self._templates: dict[str, tuple[Path, Evidence]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shared.close()

    @contextmanager
    def one(self, deed: str | None) -> Iterator[tuple[Place, Evidence]]:
        """A place for a deed, and what is in it; a new one, or one on a server with other runs."""
        if self._task.databases is None:
            with self._file(deed) as (path, evidence):
                yield path, evidence
        elif deed == "open nothing":
            with self._task.databases.one_empty() as place:
                yield place, NOTHING
        else:
            shared = self._database()
            yield shared, Evidence.of(shared)

    def _database(self) -> Place:
        if not self._left or self._place is None:
            self._shared.close()
            self._place = self._shared.enter_context(self._task.place())
            self._left = RUNS_IN_A_DATABASE
        self._left -= 1
        return self._place

    @contextmanager
    def _file(self, deed: str | None) -> Iterator[tuple[Path, Evidence]]:
        with self._task.place() as place:
            assert isinstance(place, Path)
            path, evidence = Path(place), NOTHING  # of which nothing is known
            if deed == "open nothing":
                path.unlink()
            elif deed in _MADE:
                template, evidence = self._template(deed)
                for part in template.iterdir():
                    shutil.copy(part, path.parent)
            yield path, evidence

    def _template(self, deed: str) -> tuple[Path, Evidence]:
        """A folder with the files for a deed, and what is in them for who has opened them."""
        if deed not in self._templates:
            folder = self._task.folder / f"before {deed}"
            folder.mkdir()
            _MADE[deed](folder / "broker.db")
            opened = Path(shutil.copytree(folder, f"{folder}, opened")) / "broker.db"
            Broker.open(url_of(opened)).close()
            self._templates[deed] = folder, Evidence.of(opened)
            shutil.rmtree(opened.parent)
        return self._templates[deed]


def _leave_a_log(path: Path) -> None:
    """Make a store whose last commits are in the log alone, as when its writer was killed."""
    with (
        TemporaryDirectory(dir=path.parent.parent) as folder,
        Broker.open(f"sqlite:///{folder}/broker.db") as store,
    ):
        lease = acquire(store, "before", "before/stream")
        for revision in range(3):
            outbox = [outbox_message(f"before/o{revision}")]
            message = f"before/m{revision}"
            store.commit(commit_request(lease, message, expectedRevision=revision, outbox=outbox))
        for ending in ("", "-wal"):
            shutil.copy(f"{folder}/broker.db{ending}", f"{path}{ending}")


_MADE: dict[str, Callable[[Path], None]] = {"migrate": legacy.make, "open a log": _leave_a_log}


# What a deed that opens may leave: what was there before, or a store at head.
_MAY_LEAVE: dict[str | None, set[int | None]] = {
    "open nothing": {None, HEAD},
    "migrate": {1, HEAD},
}


def half_made(version: int | None, deed: str | None) -> list[str]:
    """That a store of this version is neither what was there before the deed, nor one at head."""
    is_whole = version in _MAY_LEAVE.get(deed, {HEAD})
    return [] if is_whole else [f"{deed} left a store of version {version}"]


def version_of(other: Client, place: Place) -> int | None:
    """The version of a store's schema as a plain client reads it; None if there is nothing at all."""
    if not other.execute(TABLES[backend_of(place)]).fetchall():
        return None
    version = "SELECT value FROM metadata WHERE key = 'schema_version'"
    return int(other.execute(version).fetchall()[0][0])
