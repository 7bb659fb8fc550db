"""Who may read and write a store's file: its owner alone, or whoever opens it is told.

Who can read the file has the nonces of all leases, and who can write to it, or put another in its
place, can do what the store can.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from pathlib import Path

from sqlalchemy import URL

from broker.sqlite.database_file import file_of

_PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700

_log = logging.getLogger("broker")
_log.addHandler(logging.NullHandler())  # whether and where it is to be seen is the application's
_told: set[str] = set()


def make_file(url: URL) -> None:
    """Make the file of a URL, if it is missing, for its owner alone, whatever the umask permits.

    So its log and its shared memory are too, which take its mode. SQLite alone would make it for
    everybody to read, and a mode that is changed afterwards comes too late for who has it open. A
    file that is there keeps its mode. Where none can be made, SQLite will say why.
    """
    if url.query.get("mode") in {"ro", "rw"}:  # it must be there
        return
    path = os.path.realpath(file_of(url))  # of a link that leads nowhere yet, as SQLite does
    with suppress(OSError):
        _make(path)


def _make(path: str) -> None:
    try:
        # Opens nothing: to close a file gives up every lock that this process has on it.
        os.mknod(path, stat.S_IFREG | _PRIVATE_FILE)
    except FileExistsError:
        raise
    except OSError:  # some systems let only root make a node
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _PRIVATE_FILE))


def make_folder(path: Path) -> None:
    """Make the folder of a file, and those it is in, for their owner alone, unless they are there."""
    missing = [folder for folder in path.parent.parents if not folder.exists()]
    for folder in (*reversed(missing), path.parent):
        folder.mkdir(_PRIVATE_FOLDER, exist_ok=True)


def warn_of_others(url: URL) -> None:
    """Log a warning, once in this process, of a file that is not its owner's alone.

    Rights of the group are nobody's oversight, and not looked at. Nor are the folders further up.
    """
    path = file_of(url).absolute()
    try:
        faults = "; ".join(_faults(path))
    except OSError:  # SQLite will say what is wrong
        return
    warning = f"the store {str(path)!r} is not its owner's alone: {faults}"
    if faults and warning not in _told:
        _told.add(warning)
        _log.warning("%s", warning)


def _faults(path: Path) -> list[str]:
    folders = dict.fromkeys((path.parent, path.resolve().parent))  # that of a link, and of the file
    faults, others_may_enter = [], True
    for folder in folders:
        mode = folder.stat().st_mode
        others_may_enter = others_may_enter and bool(mode & stat.S_IXOTH)
        if mode & stat.S_IWOTH:
            # The sticky bit keeps others from removing the file, not from making one beside it.
            means = "make its log before SQLite does" if mode & stat.S_ISVTX else "replace it"
            faults.append(f"everybody may write to {str(folder)!r}, and so {means}")
    if others_may_enter:
        mode = path.stat().st_mode
        verbs = [verb for verb, bit in _VERBS.items() if mode & bit]
        if verbs:
            faults.append(
                f"everybody may {' and '.join(verbs)} it: chmod 600, its -wal and -shm too"
            )
    return faults


_VERBS = {"read": stat.S_IROTH, "write to": stat.S_IWOTH}
