"""What real stores answer is something that the protocol can do; what they do not answer is not."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from tests.conformance import answer
from tests.proof.model.histories import machine
from tests.proof.model.histories.doors import asked
from tests.proof.model.histories.world import Asked
from tests.proof.model.protocol.mutants import EpochForgotten, LineageForgotten
from tests.proof.model.protocol.rules import Protocol
from tests.proof.model.protocol.traces import KINDS, altered, first_impossible
from tests.proof.task import Task
from tests.support import ManualClock, open_store


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[list[Asked]]:
    """Real ones, in which no receipt was forgotten."""
    task = Task(8, 400, tmp_path_factory.mktemp("traces"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "CAPACITIES", (4_096,))
        worlds = [machine.made(task, seed, Counter())[0] for seed in task.seeds]
    return [[each for each in world.past if each.operation in KINDS] for world in worlds if world]


def test_what_real_stores_answered_is_possible(traces: list[list[Asked]]) -> None:
    assert [first_impossible(trace) for trace in traces] == [None] * 8
    assert sum(map(len, traces)) > 100


def test_an_altered_trace_is_not(traces: list[list[Asked]]) -> None:
    tried: Counter[str] = Counter()
    for trace in traces:
        for alteration, changed in altered(trace):
            assert first_impossible(changed) is not None, alteration
            tried[alteration] += 1
    assert set(tried) == {
        "a lower epoch",
        "a higher epoch",
        "another stream",
        "another revision",
        "another recovery",
        "a commit in spite of stale_lease",
        "a commit in spite of revision_conflict",
    }


def epochs_of_a_stream_that_was_left(path: Path) -> list[Asked]:
    """An actor gives a stream up for another, and its next holder's epoch is told."""
    clock = ManualClock()
    with open_store(path, clock) as store:
        take = partial(_asked, store, "acquire_lease")
        first = take(actorId="a", streamId="s", holderId="h", ttlMs=5)
        shown = {key: first.answer["result"][key] for key in ("epoch", "nonce")}
        released = _asked(store, "release_lease", actorId="a", lease=shown)
        moved = take(actorId="a", streamId="t", holderId="h", ttlMs=5)
        next_one = take(actorId="b", streamId="s", holderId="h", ttlMs=5)
    assert next_one.answer["result"]["epoch"] == 2
    return [first, released, moved, next_one]


def _asked(store: Broker, operation: str, **request: Any) -> Asked:
    return Asked(operation, request, None, answer(lambda: asked(store, operation, request)))


@pytest.mark.parametrize("mutant", [EpochForgotten, LineageForgotten])
def test_a_protocol_with_one_thing_wrong_cannot_have_answered_so(
    path: Path, mutant: type[Protocol]
) -> None:
    trace = epochs_of_a_stream_that_was_left(path)
    assert first_impossible(trace) is None
    assert first_impossible(trace, mutant()) == 3
