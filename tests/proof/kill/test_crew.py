"""Workers that are killed, that crash and that hang, and what their supervisor knows of each."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.places import Place, url_of
from tests.proof.kill.crew import Crew
from tests.proof.kill.ledger import Book
from tests.proof.kill.nursery import Nursery
from tests.proof.kill.worker import Job


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Without the shim."""
    with Nursery() as made:
        yield made


@pytest.fixture
def job(place: Place, path: object) -> Job:
    """A load on a store."""
    streams = ["one", "two"]
    return Job(url_of(place), "sqlite", "worker", 1, looks=False, hands=2, streams=streams)


def test_what_a_worker_has_written_survives_it(nursery: Nursery, job: Job) -> None:
    with Crew(nursery, Book()) as crew:
        child = crew.start(job)
        assert crew.read(lambda: crew.book.answers > 5)
        crew.kill(child)
    assert (crew.kills, crew.faults) == (1, [])
    assert crew.book.answers > 5


def test_a_worker_that_is_dismissed_comes_to_its_end(nursery: Nursery, job: Job) -> None:
    with Crew(nursery, Book()) as crew:
        crew.start(job)
        assert crew.read(lambda: "opened" in crew.book.notes)
    assert (crew.kills, crew.faults) == (0, [])
    assert all(ask.answer is not None for ask in crew.book.asks)


def test_a_worker_that_crashes_is_a_fault_with_its_traceback(nursery: Nursery, job: Job) -> None:
    with Crew(nursery, Book()) as crew:
        crew.start(replace(job, deed="what nobody knows"))
    (fault,) = crew.faults
    assert fault.startswith("worker ended with 1: Traceback")
    assert "KeyError: 'what nobody knows'" in fault


def test_a_worker_that_hangs_is_a_fault_and_ended(nursery: Nursery, job: Job) -> None:
    with Crew(nursery, Book(), patience_s=0.3) as crew:
        child = crew.start(job)
        os.kill(child.pid, signal.SIGSTOP)
    assert (crew.kills, crew.faults) == (1, ["worker hangs"])


def test_nobody_is_left_when_the_supervisor_fails(nursery: Nursery, job: Job) -> None:
    crew = Crew(nursery, Book())

    def fail() -> None:
        with crew:
            crew.start(job)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert crew.are_all_gone
    assert crew.faults == []
