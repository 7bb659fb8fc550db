"""Threads for the calls of an event loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from broker.errors import StoreClosed

T = TypeVar("T")
P = ParamSpec("P")


class Threads(ThreadPoolExecutor):
    """Threads that say what it means when they take nothing more."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Let a thread do it; StoreClosed after `shutdown`, which the interpreter's end is too."""
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise StoreClosed("this AsyncBroker was closed, or the process is ending") from error


def without_stop_iteration(call: Callable[[], T]) -> T:
    """What a call comes to; no future takes StopIteration, and its task would wait for ever."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("a clock raised StopIteration") from error
