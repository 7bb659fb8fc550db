"""Threads that say what it means when they take nothing more."""

from __future__ import annotations

import threading

import pytest

from broker.errors import StoreClosed
from broker.threads import Threads, without_stop_iteration


def test_a_thread_does_it_and_its_future_has_the_result() -> None:
    threads = Threads(1, thread_name_prefix="broker-test")
    name = threads.submit(lambda: threading.current_thread().name).result()
    assert name.startswith("broker-test")
    threads.shutdown()


def test_arguments_are_handed_on_and_errors_are_kept() -> None:
    threads = Threads(1)
    assert threads.submit(divmod, 7, 2).result() == (3, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 7, 0).result()
    threads.shutdown()


def test_after_the_shutdown_the_store_is_closed() -> None:
    threads = Threads(1)
    threads.shutdown()
    with pytest.raises(StoreClosed, match="was closed") as caught:
        threads.submit(int)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_stop_iteration_becomes_an_error_that_a_future_takes() -> None:
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        without_stop_iteration(lambda: next(iter(())))
    assert isinstance(caught.value.__cause__, StopIteration)


def test_any_other_result_or_error_is_left_as_it_is() -> None:
    assert without_stop_iteration(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        without_stop_iteration(lambda: divmod(7, 0))
