"""JSON text, canonical and stored: RFC 8785's numbers and strings, lone surrogates escaped."""

from __future__ import annotations

import hashlib
import json
import re
from decimal import Decimal
from typing import Any

MOST_LEVELS = 200


def canonical(value: Any) -> str:
    """Keys in the order of their UTF-16 code units."""
    return _written(value, by_key=True)


def stored(value: Any) -> str:
    """Keys in the caller's order."""
    return _written(value, by_key=False)


def sha256(value: Any) -> str:
    """The hash of a value's canonical form, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def size(value: Any) -> int:
    """How many bytes the stored form takes."""
    return len(stored(value).encode())


def is_json(value: Any, levels: int = MOST_LEVELS) -> bool:
    """Whether a value is finite JSON of at most so many levels below this one."""
    if type(value) in (dict, list):
        if levels == 0:
            return False
        if type(value) is dict and not all(type(key) is str for key in value):
            return False
        below = value.values() if type(value) is dict else value
        return all(is_json(each, levels - 1) for each in below)
    if type(value) in (int, float):
        return _is_finite(value)
    return value is None or type(value) in (str, bool)


def _is_finite(number: int | float) -> bool:
    try:
        return abs(float(number)) < float("inf")
    except OverflowError:
        return False


def _written(value: Any, *, by_key: bool) -> str:
    if type(value) is dict:
        names = sorted(value, key=_utf16) if by_key else value
        members = [f"{_string(name)}:{_written(value[name], by_key=by_key)}" for name in names]
        return "{" + ",".join(members) + "}"
    if type(value) is list:
        return "[" + ",".join(_written(each, by_key=by_key) for each in value) + "]"
    if type(value) is str:
        return _string(value)
    return _number(value) if type(value) is float else json.dumps(value)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _string(text: str) -> str:
    joined = _utf16(text).decode("utf-16-be", "surrogatepass")
    quoted = json.dumps(joined, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _number(number: float) -> str:
    """As ECMAScript writes it: the shortest digits, 0.digits times ten to the power of `point`."""
    if number == 0:
        return "0"
    sign, places, exponent = Decimal(repr(number)).normalize().as_tuple()
    digits = "".join(map(str, places))
    point = len(digits) + int(exponent)
    if len(digits) <= point <= 21:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{digits[0]}{fraction}e{point - 1:+d}"
    return "-" * sign + text
