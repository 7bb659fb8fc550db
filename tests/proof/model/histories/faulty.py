"""Requests with something wrong in them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tests.proof.model.histories.draws import Dice


class _Other:
    """A value that is nothing that JSON knows."""

    def __repr__(self) -> str:
        return "<an object>"


def _nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


BAD_VALUES: tuple[Any, ...] = (
    None,
    "",
    "a\0b",
    "\1b",
    "\ud800",
    "é" * 513,
    "x" * 257,
    -1,
    0,
    1.0,
    1.5,
    True,
    2**53,
    10**400,
    float("nan"),
    [],
    {},
    [1],
    {"extra": 1},
    _nested(200),
    _nested(201),
    _Other(),
    b"bytes",
)


def spoilt(request: Any, dice: Dice) -> Any:
    """A copy of a request in which one thing is replaced, left out, or too many."""
    if not isinstance(request, dict) or dice.one_in(30):
        return dice.pick((None, [], "text", 5))
    changed: Any = deepcopy(request)
    target: Any = changed
    while True:
        names: list[Any] = list(target) if isinstance(target, dict) else list(range(len(target)))
        if not names or dice.one_in(8):
            _add(target)
            return changed
        name = dice.pick(names)
        below = target[name]
        if isinstance(below, (dict, list)) and not dice.one_in(4):
            target = below
            continue
        if isinstance(target, dict) and dice.one_in(4):
            del target[name]
        else:
            target[name] = dice.pick(BAD_VALUES)
        return changed


def _add(target: Any) -> None:
    if isinstance(target, dict):
        target["extra"] = 1
    else:
        target.append(5)
