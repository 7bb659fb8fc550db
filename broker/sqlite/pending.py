"""A write on its way: it waits for its turn, is started, and has an outcome."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Generic, TypeVar, cast

from broker.errors import Refusal
from broker.transaction import Spoilt, Transaction, Write

T = TypeVar("T")


class Pending(Generic[T]):
    """One write, and the thread that asked for it and waits.

    `make` makes it, of what the caller gave: `write`, once it `is_prepared`. `deadline` (of
    `time.monotonic`) is until when it may wait to be started. `is_settled` says that it has its
    outcome, `is_abandoned` that nobody waits for that any more.
    """

    __slots__ = (
        "_gate",
        "_make",
        "_result",
        "deadline",
        "error",
        "is_abandoned",
        "is_prepared",
        "is_settled",
        "write",
    )

    def __init__(self, make: Callable[[], Write[T]], deadline: float) -> None:
        self._make = make
        self.write: Write[T]
        self.deadline = deadline
        self.is_abandoned = self.is_prepared = self.is_settled = False
        self.error: BaseException | None = None
        self._result: T | None = None
        self._gate: threading.Lock | None = None

    def prepare(self) -> bool:
        """Make the write, if that was not done; whether there is one, for else that is the outcome.

        It may be on the thread of another caller, who must not get what `make` raises, not even
        SystemExit. An interrupt is that thread's own and is raised.
        """
        if not self.is_prepared and not self.is_settled:
            try:
                self.write = self._make()
                self.is_prepared = True
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self.fail(error, error.__cause__)
        return not self.is_settled

    @property
    def is_wanted(self) -> bool:
        """Whether it is still to be done."""
        return True

    # ------------------------------------------------------------------------------- the outcome

    def apply(self, transaction: Transaction) -> None:
        """Do the write, and keep its result or its error.

        Raises Spoilt where only another try, with savepoints, can tell which error it is. What is
        caught here has no other write in its traceback, which callers may keep for long.
        """
        try:
            self._result = self.write.apply(transaction)
            self.error = None
        except Spoilt as spoilt:
            if isinstance(spoilt.__cause__, sqlite3.IntegrityError):
                raise
            self.error = spoilt.__cause__
        except Exception as error:
            self.error = error

    def keep(self, outcome: T | Refusal) -> None:
        """Keep what the write has come to, done together with others."""
        if isinstance(outcome, Refusal):
            self.error = outcome
        else:
            self._result, self.error = outcome, None

    def recover(self, transaction: Transaction) -> bool:
        """Look for the answer to an earlier call, a refusal included; whether that settles it."""
        try:
            found = self.write.recover(transaction)
        except Refusal as refusal:
            self.fail(refusal, refusal)
        else:
            self.is_settled = found is not None
            self._result = found and found[0]
        return self.is_settled

    def fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """Let this be the outcome, because of `cause`."""
        if cause is not error:
            error.__cause__ = cause
        self.error = error
        self.is_settled = True

    def outcome(self) -> T:
        """The result, or the error, raised; to be called once.

        Nothing is left of it here: the frames that an error's traceback hangs on know all of its
        group, and callers may keep an error for long.
        """
        result, error = self._result, self.error
        self._result = self.error = None
        del self._make
        if self.is_prepared:
            del self.write
        if error is None:
            return cast(T, result)
        try:
            raise error
        finally:
            del error  # which its own traceback would keep alive

    # ------------------------------------------------------------------------------- the waiting

    def expect_to_wait(self) -> None:
        """Get ready to be woken, before any other thread sees it."""
        self._gate = threading.Lock()
        self._gate.acquire()

    def wait(self, *, patiently: bool = False) -> bool:
        """Wait to be woken, until the deadline or, `patiently`, without one; whether it was."""
        timeout = -1 if patiently else max(0.0, self.deadline - monotonic())
        return cast(threading.Lock, self._gate).acquire(timeout=timeout)

    def wake(self) -> None:
        """Let the thread that waits go on, to lead or with the outcome; once more does no harm."""
        if self._gate is not None:
            with suppress(RuntimeError):  # it was woken already, perhaps at this moment
                self._gate.release()
