"""What a fork needs: nothing under way, and no connection open.

SQLite keeps book of a process's locks in memory, which a fork copies, while the locks themselves
stay with the parent. A child would believe that it holds them, and the parent, closing its last
connection, would remove the log under the child's feet: acknowledged commits would be lost.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """A user of connections that a fork must not find in use."""

    def pause(self) -> bool:
        """Wait for what is under way, let nothing start, close all; whether that succeeded."""
        ...

    def resume(self) -> None:
        """In the parent: go on, whether or not `pause` was called or succeeded."""
        ...

    def start_afresh(self, *, was_paused: bool) -> None:
        """In the child: forget the parent's connections and locks, without touching them."""
        ...


def watch(user: Forkable) -> None:
    """Pause `user` at every fork of this process, for as long as it lives."""
    with _forking:
        _watched.add(user)


def abandon(*connections: object) -> None:
    """In the child: never close these of the parent's, which would harm the parent."""
    _abandoned.extend(each for each in connections if each is not None)


_abandoned: list[object] = []
_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
_paused: weakref.WeakSet[Forkable] = weakref.WeakSet()  # while a fork is under way
_forking = threading.RLock()


def _before() -> None:
    # An interrupt ends this function, and not the fork: who is not in `_paused` then counts as in use.
    _forking.acquire()
    for user in list(_watched):
        if user.pause():
            _paused.add(user)


def _after_in_parent() -> None:
    for user in list(_watched):
        user.resume()
    _paused.clear()
    _forking.release()


def _after_in_child() -> None:
    global _forking
    for user in list(_watched):
        user.start_afresh(was_paused=user in _paused)
    _paused.clear()
    _forking = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
