"""What a proof is asked for: how much to try, and where."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import uuid4

from broker import schema
from tests.places import Databases, Place, url_of

Backend: TypeAlias = Literal["sqlite", "postgresql"]


@dataclass(frozen=True)
class Task:
    """How much to try, and where.

    `runs` counts what the proof's `unit` names. Run i draws everything random from `seed + i`, so
    that `--runs 1 --seed S` repeats the one run that failed. `folder` is for files; its owner removes
    it. `databases` are of a PostgreSQL server that the proof may use as it likes, None on SQLite.
    """

    runs: int
    seed: int
    folder: Path
    databases: Databases | None = None

    @property
    def backend(self) -> Backend:
        """Which backend it is about."""
        return "sqlite" if self.databases is None else "postgresql"

    @property
    def seeds(self) -> range:
        """One seed a run."""
        return range(self.seed, self.seed + self.runs)

    @contextmanager
    def place(self) -> Iterator[Place]:
        """An empty store at head, in a file or database of its own."""
        if self.databases is not None:
            with self.databases.one() as database:
                yield database
        else:
            folder = self.folder / uuid4().hex
            folder.mkdir()
            path = folder / "broker.db"
            shutil.copy(self._new_store(), path)  # with its mode
            yield path
            shutil.rmtree(folder)

    def _new_store(self) -> Path:
        """Copied for each place, as making the tables takes several times as long."""
        path = self.folder / "new-store.db"
        if not path.exists():
            schema.upgrade(url_of(path))  # opening it would set its clock going
        return path
