"""Every interleaving of the protocol keeps its promises, and one that is wrong is found out."""

from __future__ import annotations

import pytest

from tests.proof.model.protocol.mutants import MUTANTS, LineageForgotten
from tests.proof.model.protocol.rules import Protocol
from tests.proof.model.protocol.scenes import CRASHES, SMALL, TWO_STREAMS
from tests.proof.model.protocol.search import Scene, search


@pytest.mark.parametrize("scene", SMALL)
def test_no_interleaving_breaks_the_protocol(scene: Scene) -> None:
    found = search(Protocol(), scene)
    assert (found.violation, found.way) == ("", [])
    assert found.transitions > found.states > 10_000


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_protocol_with_one_thing_wrong_is_found_out(mutant: type[Protocol]) -> None:
    scene, violation = MUTANTS[mutant]
    found = search(mutant(), scene)
    assert found.violation == violation
    assert found.way != []


def test_the_way_to_a_violation_is_the_shortest_and_can_be_read() -> None:
    found = search(LineageForgotten(), TWO_STREAMS)
    assert found.way[-1] == "1 transacts acquire 1.2 of b on s: lease s 1"
    assert len(found.way) == 7


def test_a_scene_that_is_too_large_is_not_searched_to_its_end() -> None:
    with pytest.raises(ValueError, match="more than 100 states"):
        search(Protocol(), CRASHES, most_states=100)
