"""Values that nobody should send: what JSON has at its edges, and what is no JSON at all."""

from __future__ import annotations

import datetime
import decimal
import enum
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st


class Odd(Exception):
    """What an object raises that cannot be used."""


class Raises:
    """Whatever one asks it, it raises; it can be shown, though, or no failure could be."""

    def _raise(self, *_: object) -> Any:
        raise Odd

    __eq__ = __ne__ = __lt__ = __bool__ = __len__ = __iter__ = __str__ = _raise
    __int__ = __float__ = __index__ = __getitem__ = __contains__ = _raise
    __hash__ = object.__hash__


class RaisesInRepr(Raises):
    """As `Raises`, and it cannot even be shown."""

    def __repr__(self) -> str:
        raise Odd


class Text(str):
    """Text that is equal to nothing and hashes as nothing."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise Odd

    def __str__(self) -> str:
        raise Odd

    __hash__ = str.__hash__


class Integer(int):
    """An integer that claims to be another one."""

    def __eq__(self, other: object) -> bool:
        return True

    def __index__(self) -> int:
        return -1

    def __str__(self) -> str:
        return "1;DROP TABLE events"

    __hash__ = int.__hash__


class Mapped(dict[Any, Any]):
    """A dictionary that shows other items than it has."""

    def items(self) -> Any:
        raise Odd

    def __getitem__(self, key: object) -> Any:
        return "changed"


class Listed(list[Any]):
    """A list that cannot be gone through."""

    def __iter__(self) -> Iterator[Any]:
        raise Odd


class Indexed:
    """As numpy's integers: none of Python's, and usable as an index."""

    def __index__(self) -> int:
        return 1


class Chosen(enum.StrEnum):
    """A member is text as well."""

    ONE = "one"


def nested(depth: int, innermost: Any = 1, *, in_objects: bool = False) -> Any:
    """A value so many levels deep."""
    for _ in range(depth):
        innermost = {"a": innermost} if in_objects else [innermost]
    return innermost


def _cycle() -> Any:
    cycle: list[Any] = [1]
    cycle.append({"again": cycle})
    return cycle


def _generator() -> Iterator[int]:
    yield from range(3)


#: What is no JSON, or at its very edge. They are made anew each time, for some of them change.
MAKERS: tuple[Callable[[], Any], ...] = (
    lambda: float("nan"),
    lambda: float("inf"),
    lambda: -0.0,
    lambda: 5e-324,
    lambda: 1.7976931348623157e308,
    lambda: 2**53,
    lambda: 2**53 - 1,
    lambda: -(2**53),
    lambda: float(2**53),
    lambda: 2**63,
    lambda: -(2**63) - 1,
    lambda: 2**64,
    lambda: 2**1024 - 2**970,
    lambda: 2**1024 - 2**970 - 1,
    lambda: 10**5_000,
    lambda: True,
    lambda: 0,
    lambda: -1,
    lambda: 1.5,
    lambda: "",
    lambda: "\0",
    lambda: "a\0b",
    lambda: "\x01",
    lambda: "a\ud800",
    lambda: "\udc00\ud800",
    lambda: "\ud83d\ude00",
    lambda: {"\ud83d\ude00": 1, "\U0001f600": 2},
    lambda: "é" * 513,
    lambda: "x" * 1_024,
    lambda: "x" * 1_025,
    lambda: "x" * 100_000,
    lambda: "\ufeff",
    lambda: "\u2028%s{}$1'\";--\\",
    lambda: nested(200),
    lambda: nested(201),
    lambda: nested(100_000),
    lambda: nested(100_000, in_objects=True),
    lambda: {1: 2},
    lambda: {None: 1},
    lambda: {Text("a"): 1},
    lambda: {b"a": 1},
    _cycle,
    _generator,
    lambda: Raises(),
    lambda: RaisesInRepr(),
    lambda: [Raises()],
    lambda: Text("text"),
    lambda: Integer(1),
    lambda: Mapped(a=1),
    lambda: Listed([1]),
    lambda: Indexed(),
    lambda: Chosen.ONE,
    lambda: b"bytes",
    lambda: bytearray(b"bytes"),
    lambda: memoryview(b"bytes"),
    lambda: (1, 2),
    lambda: {1, 2},
    lambda: range(3),
    lambda: deque([1]),
    lambda: UserDict(a=1),
    lambda: OrderedDict(a=1),
    lambda: MappingProxyType({"a": 1}),
    lambda: decimal.Decimal("1.5"),
    lambda: decimal.Decimal("sNaN"),
    lambda: datetime.datetime(2026, 1, 1),  # noqa: DTZ001  # without a zone on purpose
    lambda: datetime.date(2026, 1, 1),
    lambda: 1j,
    lambda: object,
    lambda: ...,
    lambda: len,
)

hostile: st.SearchStrategy[Any] = st.sampled_from(MAKERS).map(lambda make: make())

_odd_characters = st.sampled_from(
    '\ud800\udbff\udc00\udfff\U0001f600\ufb33\uffff\x7f\u2028\0\1"\\:'
)
texts = st.text(st.characters(exclude_categories=()) | _odd_characters, max_size=20)
ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_odd_floats = st.sampled_from(
    [0.0, -0.0, 1.0, 1e15, 1e16, 1e20, 1e21, 1e22, 1e-5, 1e-6, 1e-7, 2.0**53, 123456789.125]
)
_integers = (
    st.integers(-(2**70), 2**70)
    | st.integers(-(10**308), 10**308)
    | st.sampled_from([2**53, 2**64])
)
_scalars = st.none() | st.booleans() | _integers | st.floats() | _odd_floats | texts

#: JSON, or nearly: some numbers are not finite, and some keys are one key in JSON.
json_values: st.SearchStrategy[Any] = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)

#: JSON values with something hostile in one of them now and then.
values: st.SearchStrategy[Any] = st.one_of(
    json_values,
    json_values,
    hostile,
    st.lists(json_values | hostile, min_size=1, max_size=3),
    st.dictionaries(texts, json_values | hostile, min_size=1, max_size=3),
)
