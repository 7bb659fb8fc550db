"""Whether a history is linearizable: a search for an order in which all of it makes sense.

After Wing and Gong ("Testing and verifying concurrent objects", 1993): place the operations one after
another, each time one that nobody's answer forbids to be next, and go back where the answers do not
fit. After Lowe ("Testing for linearizability", 2017): never go twice from the same set of operations
placed and the same state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")
S = TypeVar("S", bound=Hashable)

#: How many pairs of a set of operations placed and a state are looked at before giving up.
MOST = 200_000


@dataclass(frozen=True)
class Operation(Generic[R]):
    """One call: when it was made and when it was answered, by one clock for all.

    Without an answer `answered` is None: it may have happened at any time after the call, or never.
    What was asked and answered is in `call`, which is the model's business.
    """

    called: int
    answered: int | None
    call: R


class TooLarge(Exception):
    """The search was given up: nothing is known of this history."""


#: The states to which an operation may lead from a state with the answer it got; none if that
#: answer is impossible there. Of one that was not answered: those to which it may lead by any.
Step = Callable[[S, Operation[R]], Iterable[S]]


def is_linearizable(
    history: Sequence[Operation[R]], initial: S, step: Step[S, R], most: int = MOST
) -> bool:
    """Whether some order explains every answer of a history; raises TooLarge.

    In that order an operation comes before all that were called after its answer.
    """
    # Those answered first are tried first: they are likely to have happened first.
    operations = sorted(history, key=_end)
    ends = [_end(each) for each in operations]
    answered = sum(1 << place for place, end in enumerate(ends) if end < math.inf)

    stack = [(0, initial)]
    seen = set(stack)
    while stack:
        placed, state = stack.pop()
        if placed & answered == answered:
            return True
        for place in reversed(_next(operations, ends, placed)):
            for reached in step(state, operations[place]):
                key = (placed | 1 << place, reached)
                if key in seen:
                    continue
                if len(seen) >= most:
                    raise TooLarge(f"more than {most} configurations")
                seen.add(key)
                stack.append(key)
    return False


def failing_answer(
    history: Sequence[Operation[R]], initial: S, step: Step[S, R], most: int = MOST
) -> Operation[R]:
    """The operation with whose answer a history stopped being linearizable.

    The history as it was before that answer, in which later ones are not given yet, still is. Raises
    TooLarge, ValueError where all of it is linearizable.
    """
    for last in sorted(history, key=_end):
        if last.answered is not None:
            known = history_until(history, last.answered)
            if not is_linearizable(known, initial, step, most):
                return last
    raise ValueError("this history is linearizable")


def history_until(history: Sequence[Operation[R]], when: int) -> list[Operation[R]]:
    """What was known of a history at a time: calls until then, without later answers."""
    return [
        each
        if each.answered is not None and each.answered <= when
        else Operation(each.called, None, each.call)
        for each in history
        if each.called <= when
    ]


def _next(operations: Sequence[Operation[R]], ends: Sequence[float], placed: int) -> list[int]:
    """The places of those that may be next: called before any that is not placed was answered."""
    found: list[int] = []
    first = math.inf
    for place, end in enumerate(ends):
        if placed >> place & 1:
            continue
        first = min(first, end)  # the first that is met, as they are in the order of their ends
        if operations[place].called <= first:
            found.append(place)
    return found


def _end(operation: Operation[R]) -> float:
    return math.inf if operation.answered is None else operation.answered
