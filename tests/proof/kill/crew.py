"""The supervisor's side of a run: workers that write their ledgers, and are killed."""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Callable
from typing import Self

from tests.proof.kill.ledger import Book
from tests.proof.kill.nursery import Child, Nursery
from tests.proof.kill.worker import Job

PATIENCE_S = 60
KILLED = -9


class Crew:
    """The workers of a run. All have ended when the block has, whatever happens in it."""

    def __init__(self, nursery: Nursery, book: Book, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self.book = book
        self.faults: list[str] = []
        self.kills = 0
        self._nursery = nursery
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, Child] = {}  # by the ends of their books
        self._unread: dict[int, bytes] = {}
        self._victims: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for child in self._children.values():
                child.dismiss()
            if kind is not None or not self.read(lambda: False):
                self._kill_all(is_fault=kind is None)
        finally:
            self._selector.close()

    def start(self, job: Job) -> Child:
        """Let a worker start."""
        child = self._nursery.start(job)
        self._children[child.book] = child
        self._unread[child.book] = b""
        self._selector.register(child.book, selectors.EVENT_READ)
        return child

    def kill(self, child: Child) -> None:
        """Kill a worker, unless it has ended."""
        if child.book in self._children:
            self._victims.add(child.pid)
            child.kill()

    def expect_death(self, child: Child) -> None:
        """It will die by itself, or be killed."""
        self._victims.add(child.pid)

    def read(self, until: Callable[[], bool]) -> bool:
        """Read ledgers until something is so, or all have ended; whether that came in time."""
        deadline = time.monotonic() + self._patience_s
        while self._children and not until():
            if time.monotonic() > deadline:
                return False
            for key, _ in self._selector.select(deadline - time.monotonic()):
                self._read_from(self._children[key.fd])
        return True

    @property
    def are_all_gone(self) -> bool:
        """Whether nobody is left."""
        return not self._children

    def _read_from(self, child: Child) -> None:
        text = os.read(child.book, 1 << 16)
        if not text:
            self._end(child)
            return
        *lines, rest = (self._unread[child.book] + text).split(b"\n")
        self._unread[child.book] = rest  # half a line, if it dies now
        for line in lines:
            self.book.add(child.name, json.loads(line))

    def _end(self, child: Child) -> None:
        self._selector.unregister(child.book)
        del self._children[child.book]
        code = self._nursery.end_of(child)
        is_victim = child.pid in self._victims
        if code == KILLED and is_victim:
            self.kills += 1
        elif code != 0:
            crash = self.book.notes.get("crash", "")
            self.faults.append(f"{child.name} ended with {code}: {crash}")

    def _kill_all(self, *, is_fault: bool) -> None:
        for child in list(self._children.values()):
            if is_fault:
                self.faults.append(f"{child.name} hangs")
            child.kill()
            self._victims.add(child.pid)
            self._end(child)
