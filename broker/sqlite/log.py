"""The write-ahead log, which would grow without end while somebody always reads.

SQLite copies the log into the file every 1,000 pages, but begins it anew only when nobody reads from
it at that moment: where many read one after another, that moment never comes. So whoever has written
looks at it now and then, and cuts a large one, for which it waits a little for those who read. They
are done soon, and who comes meanwhile reads the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from broker.statements import Channel

MOST_BYTES = 16 * 1024 * 1024
LOOK_EVERY = 32  # commits
LOOK_AGAIN_AFTER = 512  # commits, where somebody who reads for long was in the way
PATIENCE_MS = 50

_CUT = "PRAGMA wal_checkpoint(TRUNCATE)"


class Log:
    """The log of one file, looked after by one who writes there."""

    def __init__(self, file: Path) -> None:
        self._path = file.with_name(f"{file.name}-wal")
        self._commits_until_look = LOOK_EVERY

    def look_after(self, channel: Channel) -> None:
        """To be called after a commit: cut the log if it is large; an error there is nobody's.

        The channel must not be in a transaction, and waits for nobody, before and afterwards.
        """
        self._commits_until_look -= 1
        if self._commits_until_look > 0:
            return
        self._commits_until_look = LOOK_EVERY
        with suppress(OSError, sqlite3.Error):
            if self._path.stat().st_size > MOST_BYTES and not _cut(channel):
                self._commits_until_look = LOOK_AGAIN_AFTER


def _cut(channel: Channel) -> bool:
    """Copy the log into the file and make it empty; False if somebody was in the way."""
    channel.control(f"PRAGMA busy_timeout={PATIENCE_MS}")
    try:
        (is_busy, *_) = channel.connection.execute(_CUT).fetchone()
    finally:
        channel.control("PRAGMA busy_timeout=0")
    return not is_busy
