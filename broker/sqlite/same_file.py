"""A database file that is deleted or replaced while it is open, which SQLite does not mind.

It would go on reading and writing what nobody else can see, and what is gone once it is closed.
"""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import URL, Engine, event

from broker.errors import DatabaseUnavailable
from broker.sqlite.database_file import file_of


class SameFile:
    """Keeps the connections of an engine to the file that the first one of them has opened."""

    def __init__(self, url: URL) -> None:
        self._path = str(file_of(url).absolute())
        self._first: tuple[int, int] | None = None

    def watch(self, engine: Engine) -> None:
        """Look at each connection that is made, or taken from the pool."""
        event.listen(engine, "connect", self._after_connect)
        event.listen(engine, "checkout", self._before_use)

    def require(self) -> None:
        """Raise DatabaseUnavailable if the file is not where it was any more, or is another."""
        if self._first is not None and self._found() != self._first:
            raise DatabaseUnavailable(
                f"{self._path} was deleted or replaced while it was open; nothing was stored: put it"
                " back, or close this Broker and open another"
            )

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116  # for each write, and a Path takes longer
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _after_connect(self, *_: Any) -> None:
        if self._first is None:
            self._first = self._found()
        self.require()

    def _before_use(self, *_: Any) -> None:
        self.require()
