"""The search by itself: of histories of a register, known to be linearizable or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proof.linearizability.search import (
    Operation,
    TooLarge,
    failing_answer,
    history_until,
    is_linearizable,
)


class Call(NamedTuple):
    """Of a register: a write of `value`, or a read that found it."""

    verb: str
    value: int


History = Sequence[Operation[Call]]


def step(state: int, operation: Operation[Call]) -> Iterator[int]:
    verb, value = operation.call
    if verb == "write":
        yield value
    elif state == value or operation.answered is None:
        yield state


def write(value: int, called: int, answered: int | None) -> Operation[Call]:
    return Operation(called, answered, Call("write", value))


def read(value: int, called: int, answered: int | None) -> Operation[Call]:
    return Operation(called, answered, Call("read", value))


LINEARIZABLE: dict[str, History] = {
    "nothing": [],
    "one after another": [write(1, 0, 1), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7)],
    "a read beside a write sees what was before": [write(1, 0, 9), read(0, 1, 2)],
    "a read beside a write sees it": [write(1, 0, 9), read(1, 1, 2)],
    "two writes at once, in either order": [write(1, 0, 9), write(2, 0, 9), read(1, 10, 11)],
    "reads that see a write before it is answered": [
        write(1, 0, 9),
        read(0, 1, 2),
        read(1, 3, 4),
    ],
    "a call at the very moment of an answer is beside it": [write(1, 0, 1), read(0, 1, 2)],
    "a write without an answer that happened": [write(1, 0, None), read(1, 5, 6)],
    "a write without an answer that did not": [write(1, 0, None), read(0, 5, 6)],
    "one that happened late": [write(1, 0, None), read(0, 5, 6), read(1, 7, 8)],
}
NOT_LINEARIZABLE: dict[str, History] = {
    "a read of what was never written": [read(1, 0, 1)],
    "a write that is lost": [write(1, 0, 1), read(0, 2, 3)],
    "a read of the future": [read(1, 0, 1), write(1, 2, 3)],
    "reads that go back": [write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)],
    "two readers that see two writes in different orders": [
        write(1, 0, 1),
        write(2, 0, 1),
        read(1, 2, 3),
        read(2, 4, 5),
        read(1, 6, 7),
    ],
    "a write without an answer that was undone": [
        write(1, 0, None),
        read(1, 5, 6),
        read(0, 7, 8),
    ],
    "one that happened before it was called": [read(1, 0, 1), write(1, 2, None)],
}


@pytest.mark.parametrize("name", LINEARIZABLE)
def test_a_history_with_an_order_that_explains_it_is_linearizable(name: str) -> None:
    assert is_linearizable(LINEARIZABLE[name], 0, step)


@pytest.mark.parametrize("name", NOT_LINEARIZABLE)
def test_a_history_without_one_is_not(name: str) -> None:
    assert not is_linearizable(NOT_LINEARIZABLE[name], 0, step)


def test_a_search_that_takes_too_long_is_given_up() -> None:
    history = [write(value, 0, 9) for value in range(12)] + [read(99, 10, 11)]
    with pytest.raises(TooLarge):
        is_linearizable(history, 0, step, most=1_000)


def test_never_going_twice_from_the_same_place_makes_the_search_short() -> None:
    writes = [write(value, 0, 9) for value in range(10)]  # 3,628,800 orders
    assert not is_linearizable([*writes, read(99, 10, 11)], 0, step, most=10 * 2**10)


def test_the_answer_is_found_with_which_it_went_wrong() -> None:
    wrong = read(0, 3, 4)
    history = [write(1, 0, 9), read(1, 1, 2), wrong, read(1, 10, 11), read(1, 12, 13)]
    assert failing_answer(history, 0, step) == wrong
    with pytest.raises(ValueError, match="is linearizable"):
        failing_answer(history[:2], 0, step)


def test_what_was_known_at_a_time_has_no_later_calls_and_answers() -> None:
    history = [write(1, 0, 9), read(0, 1, 2), read(1, 3, 4)]
    assert history_until(history, 2) == [write(1, 0, None), read(0, 1, 2)]


# ------------------------------------------------------------------------------ every order there is


def by_every_order(history: History) -> bool:
    """The definition itself: some order of the answered and some of the others explains it."""
    answered = [each for each in history if each.answered is not None]
    others = [each for each in history if each.answered is None]
    return any(
        _explains(order)
        for count in range(len(others) + 1)
        for happened in combinations(others, count)
        for order in permutations([*answered, *happened])
    )


def _explains(order: History) -> bool:
    state = 0
    for place, each in enumerate(order):
        if any(
            later.answered is not None and later.answered < each.called
            for later in order[place + 1 :]
        ):
            return False
        states = list(step(state, each))
        if not states:
            return False
        (state,) = states
    return True


def _histories() -> st.SearchStrategy[list[Operation[Call]]]:
    times = st.tuples(st.integers(0, 8), st.integers(0, 4) | st.none())
    calls = st.builds(Call, st.sampled_from(["write", "read", "read"]), st.integers(0, 2))
    made = st.builds(
        lambda call, when: Operation(when[0], None if when[1] is None else when[0] + when[1], call),
        calls,
        times,
    )
    return st.lists(made, max_size=5)


@given(_histories())
def test_the_search_answers_as_trying_every_order_does(history: list[Operation[Call]]) -> None:
    assert is_linearizable(history, 0, step) == by_every_order(history)
