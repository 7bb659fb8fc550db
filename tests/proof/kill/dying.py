"""Where a worker dies: at a call by which SQLite reaches its files, or at a statement."""

from __future__ import annotations

import functools
import itertools
import os
import signal
from collections.abc import Callable
from typing import Any, Protocol

from sqlalchemy import Pool, event

from tests.proof.shim import Calls, Mode, Shim


class Death(Protocol):
    """Counts the places at which to die, once it is armed."""

    def arm(self) -> None:
        """Count from now on, and die at the place that was chosen."""
        ...

    def pass_by(self) -> None:
        """A place at which a call has returned, and its answer is not in the ledger."""
        ...

    def survived(self) -> int:
        """Die no more; how many places there were."""
        ...


def die() -> None:
    """Be killed, as by somebody else."""
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


class AtCall:
    """Dies at the `at`-th system call, or write if that is torn; at none if that is 0."""

    def __init__(self, at: int, mode: Mode) -> None:
        self._at, self._mode, self._shim = at, mode, Shim()

    def arm(self) -> None:
        """As of `Death`."""
        calls = Calls.WRITE if self._mode == Mode.KILL_TORN else Calls.ALL
        self._shim.arm(self._at, self._mode, calls)

    def pass_by(self) -> None:
        """No call."""

    def survived(self) -> int:
        """As of `Death`."""
        return self._shim.disarm()


class AtStatement:
    """Dies before the `at`-th statement is sent, or answered, or before an answer is passed on."""

    def __init__(self, at: int, backend: str) -> None:
        self._at = at
        self._numbers = itertools.count(1)
        self._passed = 0
        self._is_armed = False
        if backend == "sqlite":
            self._watch_files()
        else:
            self._watch_server()

    def arm(self) -> None:
        """As of `Death`."""
        self._is_armed = True

    def pass_by(self, *_statement: object) -> None:
        """As of `Death`."""
        if self._is_armed:
            self._passed = next(self._numbers)
            if self._passed == self._at:
                die()

    def survived(self) -> int:
        """As of `Death`."""
        self._is_armed = False
        return self._passed

    def _watch_files(self) -> None:
        """SQLite itself says that it begins a statement, those of triggers included."""

        def watch(connection: Any, _record: object) -> None:
            connection.set_trace_callback(self.pass_by)

        event.listen(Pool, "connect", watch)

    def _watch_server(self) -> None:
        """Around what is sent, and each time that an answer is waited for."""
        import psycopg

        from broker.postgresql.wire import Wire

        for name in ("send", "prepare", "send_prepared", "answers", "_next"):
            self._surround(Wire, name)
        self._surround(psycopg.Cursor, "execute")
        self._surround(psycopg.Cursor, "copy")
        self._surround(psycopg.Copy, "__exit__")
        self._surround(psycopg.Connection, "commit")

    def _surround(self, owner: type, name: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(function)
        def surrounded(*given: Any, **named: Any) -> Any:
            self.pass_by()
            result = function(*given, **named)
            self.pass_by()
            return result

        setattr(owner, name, surrounded)


class Never:
    """Does not die by itself."""

    def arm(self) -> None:
        """As of `Death`."""

    def pass_by(self) -> None:
        """As of `Death`."""

    def survived(self) -> int:
        """As of `Death`."""
        return 0


def death_of(how: str | None, at: int, mode: int, backend: str) -> Death:
    """`call`, `statement`, or None for nobody who dies by himself."""
    if how == "call":
        return AtCall(at, Mode(mode))
    return AtStatement(at, backend) if how == "statement" else Never()
