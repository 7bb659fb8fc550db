"""Canonical and stored JSON once more, from the text of RFC 8785 and none of the store's code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

MOST_LEVELS = 200
_LEVELS_ABOVE = 3  # of a payload in a commit request
LARGEST = 2**1024 - 2**970  # the least integer that a double would make infinite

_SHORT = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}


class NotAllowed(Exception):
    """The value is not JSON that the store keeps."""


def stored_text(value: Any) -> str:
    """The stored form; raises NotAllowed."""
    return _text(value, MOST_LEVELS, in_order=False)


def canonical_text(value: Any) -> str:
    """The canonical form; raises NotAllowed."""
    return _text(value, MOST_LEVELS, in_order=True)


def request_hash(request: Mapping[str, Any]) -> str:
    """The hash of a commit request in its wire form, whose nulls that mean absent are left out."""
    hashed = {
        name: value for name, value in request.items() if name not in ("lease", "committedAt")
    }
    text = _text(hashed, MOST_LEVELS + _LEVELS_ABOVE, in_order=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _text(value: Any, levels_left: int, *, in_order: bool) -> str:
    if value is None or type(value) is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if type(value) is int:
        if not -LARGEST < value < LARGEST:
            raise NotAllowed("an integer beyond a double")
        return str(value)
    if type(value) is float:
        return _float(value)
    if type(value) is str:
        return _string(_characters(value))
    if levels_left == 0:
        raise NotAllowed("too deep, unless it is none at all")
    if type(value) is list:
        return (
            "[" + ",".join(_text(each, levels_left - 1, in_order=in_order) for each in value) + "]"
        )
    if type(value) is dict:
        return _object(value, levels_left - 1, in_order=in_order)
    raise NotAllowed(f"a {type(value).__name__}")


def _object(value: dict[Any, Any], levels_left: int, *, in_order: bool) -> str:
    if not all(type(key) is str for key in value):
        raise NotAllowed("a key that is not text")
    members = [(_characters(key), each) for key, each in value.items()]
    if len({key for key, _ in members}) < len(members):
        raise NotAllowed("one key twice")
    if in_order:
        members.sort(key=lambda member: _code_units(member[0]))
    return (
        "{"
        + ",".join(
            f"{_string(key)}:{_text(each, levels_left, in_order=in_order)}" for key, each in members
        )
        + "}"
    )


def _code_units(text: str) -> list[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]


def _characters(text: str) -> str:
    """With each pair of surrogates as the character that it means."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _string(text: str) -> str:
    def written(character: str) -> str:
        code = ord(character)
        if character in _SHORT:
            return "\\" + _SHORT[character]
        if code < 0x20 or 0xD800 <= code <= 0xDFFF:
            return f"\\u{code:04x}"
        return character

    return '"' + "".join(map(written, text)) + '"'


def _float(value: float) -> str:
    """ECMA-262, Number::toString: `k` digits `s` and `n` such that the value is s * 10^(n - k)."""
    if value - value != 0:
        raise NotAllowed("not finite")
    if value == 0:
        return "0"
    if value < 0:
        return "-" + _float(-value)
    _, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    s, k = "".join(map(str, digits)), len(digits)
    n = exponent + k
    if k <= n <= 21:
        return s + "0" * (n - k)
    if 0 < n <= 21:
        return f"{s[:n]}.{s[n:]}"
    if -6 < n <= 0:
        return "0." + "0" * -n + s
    power = f"{'+' if n > 0 else '-'}{abs(n - 1)}"
    return f"{s}e{power}" if k == 1 else f"{s[0]}.{s[1:]}e{power}"
