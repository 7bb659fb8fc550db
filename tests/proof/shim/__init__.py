"""Dying, and failing, at a chosen call by which SQLite reaches its files.

`shim.c` is built here with the machine's C compiler and preloaded into processes of the tests' own.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from enum import IntEnum, IntFlag
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")


class Calls(IntFlag):
    """Which calls count."""

    WRITE = 1
    SYNC = 2
    TRUNCATE = 4
    LOCK = 8
    READ = 16
    OPEN = 32
    REMOVE = 64
    CHANGES = WRITE | SYNC | TRUNCATE | REMOVE
    ALL = 127


class Mode(IntEnum):
    """What happens at the call; a short write is one that stores half, a torn one half and dies."""

    KILL_BEFORE = 0
    KILL_AFTER = 1
    KILL_TORN = 2
    FAIL_EIO = 3
    FAIL_ENOSPC = 4
    SHORT_WRITE = 5
    FAIL_EAGAIN = 6
    FAIL_EACCES = 7


FOREVER = 64


def build(folder: Path, source: Path = SOURCE) -> Path | None:
    """The shim, or another such source, as a library in `folder`; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library = folder / f"{source.stem}.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"],
        check=True,
    )
    return library


def environment(library: Path, path_part: str) -> dict[str, str]:
    """The environment for a process with the shim; files count if their path has `path_part`."""
    return os.environ | {"LD_PRELOAD": str(library), "SHIM_PATH": path_part}


class Shim:
    """The shim of this very process, which was started in that environment."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.shim_arm.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_int)
        self._library.shim_count.restype = ctypes.c_long

    def arm(self, at: int, mode: Mode, calls: Calls = Calls.ALL, *, forever: bool = False) -> None:
        """Let the `at`-th of `calls` from now on go as `mode` says; `forever`: all later ones too."""
        self._library.shim_arm(at, mode + (FOREVER if forever else 0), calls)

    def count(self, calls: Calls = Calls.ALL) -> None:
        """Only count from now on."""
        self._library.shim_arm(0, Mode.KILL_BEFORE, calls)

    def disarm(self) -> int:
        """Let all go on as it should; how many calls were counted."""
        counted = int(self._library.shim_count())
        self._library.shim_arm(0, Mode.KILL_BEFORE, Calls(0))
        return counted
