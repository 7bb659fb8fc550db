"""JSON text: the canonical and the stored form of a value, and how text is read back.

Canonical JSON is RFC 8785 with one widening: a lone surrogate, which RFC 8785 refuses, is written
as its lower-case `\\udxxx` escape. Integers of any size are written as their digits. Stored JSON
has the same numbers and strings but keeps the caller's key order. Neither holds spaces.

`orjson` reads and writes nearly all JSON exactly so. Where it does not, a plain Python writer and
the standard library's reader take over: slower, and exact for everything.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, NamedTuple, NoReturn, TypeAlias, TypeVar

import orjson

T = TypeVar("T")

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

MAX_DEPTH = 200  # levels of a payload: a scalar is level 0, `[]` is level 1


class NotJson(ValueError):
    """A value or a text is not JSON that can be kept; the message continues "the payload …"."""


class Encoded(NamedTuple):
    """A value in its stored form, and as what `canonical_of` takes for the canonical one.

    `embeddable` is the value itself wherever orjson's sorted output is canonical, so that a whole
    request is written at once; elsewhere it holds the exact text of some part or of all of it.
    """

    stored: str
    embeddable: Any


def encode(value: object) -> Encoded:
    """The stored and, once asked for, the canonical form of a finite JSON value.

    The value is left untouched, and must not be changed before `canonical_of` has seen it.

    Accepts exactly `dict` with `str` keys, `list`, `str`, `int`, `float`, `bool` and `None`: at
    most `MAX_DEPTH` levels, and only numbers that are finite as a double. Raises `NotJson` for
    everything else, such as tuples, enums and other subclasses, NaN, a list that holds itself.
    """
    exact = value
    try:
        # orjson goes before any walk over levels: it goes down first, so a cycle stops it at once.
        stored = orjson.dumps(exact, option=_STORED)
        if not _are_plain([value]):
            exact = _with_room(_with_exact_floats, value, 0)
            stored = orjson.dumps(exact, option=_STORED)
    except orjson.JSONEncodeError:  # a lone surrogate, an integer beyond 64 bits, or not JSON
        return Encoded(_write(value, by_utf16=False), _exactly(value))
    if not stored.isascii() and _has_astral_key(stored):
        exact = _exactly(value)
    return Encoded(stored.decode(), exact)


def encode_all(values: list[Any]) -> tuple[list[str], list[Any]]:
    """`encode` for all the values: their stored texts, and what is embeddable for each.

    Most of the time the values can be looked over all at once.
    """
    try:
        texts = [orjson.dumps(value, option=_STORED).decode() for value in values]
        are_exact = _are_plain(values) and all(map(str.isascii, texts))
    except orjson.JSONEncodeError:
        are_exact = False
    if are_exact:
        return texts, values
    encoded = [encode(value) for value in values]
    return [each.stored for each in encoded], [each.embeddable for each in encoded]


def canonical_of(form: object) -> bytes:
    """The canonical bytes of JSON that is made of `Encoded.embeddable` parts.

    What is around them has ASCII keys, safe integers and strings without lone surrogates.
    """
    return orjson.dumps(form, option=_CANONICAL)


def canonical(value: object) -> bytes:
    """The canonical bytes of a value; accepts and refuses what `encode` does."""
    return canonical_of(encode(value).embeddable)


def digest(canonical: bytes) -> str:
    """The SHA-256 of canonical bytes, in lower-case hex."""
    hashed = _SHA_256.copy()  # less work than to have OpenSSL look the algorithm up
    hashed.update(canonical)
    return hashed.hexdigest()


_SHA_256 = hashlib.sha256()


def decode(text: str | bytes) -> Json:
    """The value of stored text, whoever wrote it.

    Integers keep their digits, lone surrogate escapes are kept, the last of duplicate keys wins.
    Text deeper than `MAX_DEPTH` is read as far as the readers go. Raises `NotJson`, and nothing
    else, for text that cannot be read: malformed, not UTF-8, too deep, a number beyond a double.
    """
    if _may_hold_long_integer(text if isinstance(text, str) else text.decode("latin-1")):
        return _read(_utf8(text), _READER)
    try:
        value: Json = orjson.loads(text)
    except orjson.JSONDecodeError:  # a lone surrogate, or not JSON: the reader knows which
        value = _read(_utf8(text), _READER)
    return value


def decode_all(texts: list[str]) -> list[Json]:
    """`decode` for each of the texts; most of the time they can be looked over all at once."""
    if not _may_hold_long_integer("\n".join(texts)):
        with suppress(orjson.JSONDecodeError):
            return list(map(orjson.loads, texts))
    return list(map(decode, texts))


def parse(text: str | bytes, *, max_depth: int = MAX_DEPTH) -> Json:
    """The value of text from outside: as `decode`, and refuses what is ambiguous or too deep.

    Raises `NotJson` also for a key that an object has twice and for more than `max_depth` levels;
    the levels are counted on the text, before any parser sees it.
    """
    raw = _utf8(text)
    if _is_deeper(raw, max_depth):
        raise NotJson(f"is nested more than {max_depth} levels deep")
    with suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
        value: Json = orjson.loads(raw)
        if orjson.dumps(value) == raw:  # so no key came twice, and no number was changed
            return value
    return _read(raw, _STRICT_READER)


# --- Writing with orjson, and where that is exact ---------------------------------------------

_STORED = (
    orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
)
_CANONICAL = _STORED | orjson.OPT_SORT_KEYS

_LEAVES = frozenset({str, int, bool, type(None)})
_LEAST, _MOST = 1e-5, 1e15  # orjson writes the floats between, save whole ones, as ECMAScript does

# The last character beyond U+FFFF of a string (F0 to F4 begin it in UTF-8), the string's end and
# a colon: the string is a key. Linear: possessive, and each attempt ends at the next such one.
_BELOW_ASTRAL = bytes(range(0xF0))
_ASTRAL_KEY = re.compile(rb'[\xf0-\xf4](?:[^"\\\xf0-\xf4]|\\.)*+":')


def _are_plain(values: list[Any]) -> bool:
    """Whether the values are JSON that orjson, having written it, has written as RFC 8785."""
    level = values
    depth = 0
    while level:
        if depth == MAX_DEPTH:  # anything but leaves would be too deep; whoever is exact will know
            return False
        deeper: list[Any] = []
        for item in level:
            kind = type(item)
            if kind in _LEAVES:
                continue
            if kind is dict:
                deeper += item.values()
            elif kind is list:
                deeper += item
            elif kind is not float or not _LEAST <= abs(item) < _MOST or item.is_integer():
                return False
        level = deeper
        depth += 1
    return True


def _has_astral_key(written: bytes) -> bool:
    """Whether the order of keys may differ: orjson's is by code point, RFC 8785's by UTF-16."""
    any_astral = written.translate(None, _BELOW_ASTRAL)  # many times as fast as the search
    return bool(any_astral) and _ASTRAL_KEY.search(written) is not None


def _exactly(value: object) -> orjson.Fragment:
    return orjson.Fragment(_write(value, by_utf16=True).encode())


def _with_exact_floats(value: Any, depth: int) -> Any:
    """A copy, for orjson, that leaves it no float which it would write in another way."""
    kind = type(value)
    if kind in _LEAVES:
        return value
    if kind is float:
        if _LEAST <= abs(value) < _MOST:
            return int(value) if value.is_integer() else value
        return orjson.Fragment(_float_text(value))
    if kind is list:
        below = _below(depth)
        return [_with_exact_floats(item, below) for item in value]
    if kind is dict:
        below = _below(depth)
        return {key: _with_exact_floats(item, below) for key, item in value.items()}
    raise _not_json(value)


def _below(depth: int) -> int:
    """The depth of a container's items, where `depth` is the container's own."""
    if depth == MAX_DEPTH:
        raise NotJson(f"is nested more than {MAX_DEPTH} levels deep, or holds itself")
    return depth + 1


def _not_json(value: object) -> NotJson:
    kind = type(value)
    if kind is tuple:
        return NotJson("holds a tuple, which is not JSON; make it a list")
    for base in (dict, list, str, int, float):
        if isinstance(value, base):
            return NotJson(f"holds a {kind.__name__}; make it a plain {base.__name__}")
    return NotJson(f"holds a {kind.__name__}, which is not JSON")


# --- Writing exactly --------------------------------------------------------------------------

_BEYOND_DOUBLE = 2**1024 - 2**970  # the least integer that rounds to an infinite double
_NOT_FINITE = "holds a number that is not finite as a double"
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def _write(value: object, *, by_utf16: bool) -> str:
    """The text of any JSON value, keys in UTF-16 order (RFC 8785) or in their own."""

    def written() -> str:
        parts: list[str] = []
        _put(value, 0, parts.append, by_utf16)
        return "".join(parts)

    return _with_room(written)


def _with_room(work: Callable[..., T], *arguments: Any) -> T:
    """Do work that goes as deep as a value, wherever the caller's own stack has got to.

    A thread of its own has a stack of its own; it is used only where the caller's was too full.
    """
    try:
        return work(*arguments)
    except RecursionError:
        with ThreadPoolExecutor(max_workers=1) as elsewhere:
            return elsewhere.submit(work, *arguments).result()


def _put(value: Any, depth: int, put: Callable[[str], None], by_utf16: bool) -> None:
    scalar_text = _SCALAR_TEXTS.get(type(value))
    if scalar_text is not None:
        put(scalar_text(value))
    elif type(value) is list:
        _put_list(value, _below(depth), put, by_utf16)
    elif type(value) is dict:
        _put_dict(value, _below(depth), put, by_utf16)
    else:
        raise _not_json(value)


def _put_list(items: list[Any], below: int, put: Callable[[str], None], by_utf16: bool) -> None:
    put("[")
    for index, item in enumerate(items):
        if index:
            put(",")
        _put(item, below, put, by_utf16)
    put("]")


def _put_dict(
    members: dict[Any, Any], below: int, put: Callable[[str], None], by_utf16: bool
) -> None:
    put("{")
    for index, (key, item) in enumerate(_members(members, by_utf16)):
        if index:
            put(",")
        put(_string_text(key) + ":")
        _put(item, below, put, by_utf16)
    put("}")


def _members(members: dict[Any, Any], by_utf16: bool) -> Iterable[tuple[str, Any]]:
    joined: dict[str, Any] = {}
    for key, item in members.items():
        if type(key) is not str:
            raise NotJson(f"has a key that is not a string but a {type(key).__name__}")
        joined[_joined(key)] = item
    if len(joined) != len(members):
        raise NotJson("has two keys that are one in JSON: a character and its surrogate pair")
    if by_utf16:
        return sorted(joined.items(), key=lambda member: _utf16(member[0]))
    return joined.items()


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _joined(text: str) -> str:
    """The text with each pair of surrogates made the character that any reader would make it."""
    return text if text.isascii() else _utf16(text).decode("utf-16-be", "surrogatepass")


def _string_text(text: str) -> str:
    if text.isascii():
        return encode_basestring(text)
    quoted = encode_basestring(_joined(text))
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _integer_text(number: int) -> str:
    if abs(number) >= _BEYOND_DOUBLE:
        raise NotJson(_NOT_FINITE)
    return str(number)


def _float_text(number: float) -> str:
    """ECMAScript Number::toString (ECMA-262, 6.1.6.1.20) of a finite float.

    `repr` gives the shortest digits that read back as the same float, as ECMAScript asks; only
    the layout differs. The number is 0.digits times ten to the power of `point`.
    """
    if not isfinite(number):
        raise NotJson(_NOT_FINITE)
    if number == 0:
        return "0"
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)
    return ("-" if number < 0 else "") + _laid_out(digits.rstrip("0"), point)


def _laid_out(digits: str, point: int) -> str:
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{mantissa}e{point - 1:+d}"


_SCALAR_TEXTS: dict[type, Callable[[Any], str]] = {
    str: _string_text,
    int: _integer_text,
    float: _float_text,
    bool: {True: "true", False: "false"}.__getitem__,
    type(None): {None: "null"}.__getitem__,
}


# --- Reading exactly --------------------------------------------------------------------------

# orjson reads an integer beyond 64 bits as a float; every such integer has 19 digits at least, and
# so 6 in a row of every third character. A fraction's digits are read as well as by anybody.
_LONG_INTEGER = re.compile(r"(?<![.0-9])[0-9]{19}")
_SAMPLE_OF_LONG_INTEGER = b"0" * 6
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_READABLE_DEPTH = 1_024
_LONGEST_INTEGER = len(str(-_BEYOND_DOUBLE))

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # an unclosed one takes all: linear
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _utf8(text: str | bytes) -> bytes:
    if isinstance(text, bytes):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotJson("is not text that UTF-8 can hold") from None


def _may_hold_long_integer(text: str) -> bool:
    """Whether there are digits, in a string perhaps, that would be an integer beyond 64 bits.

    To search all of the text takes half as long as to read it, so that a sample goes first; where
    that hits, the text around it settles the hits of 6 places. (`find` would take twice as long.)
    """
    sample = text[::3].encode("latin-1", "replace").translate(_DIGITS_TO_ZEROS)
    hit = sample.rfind(_SAMPLE_OF_LONG_INTEGER)
    while hit >= 0:
        if _LONG_INTEGER.search(text, max(0, 3 * hit - 17), 3 * hit + 19):
            return True
        hit = sample.rfind(_SAMPLE_OF_LONG_INTEGER, 0, hit)
    return False


def _is_deeper(raw: bytes, max_depth: int) -> bool:
    """Whether brackets outside strings are open more than `max_depth` deep somewhere."""
    if raw.count(b"[") + raw.count(b"{") <= max_depth:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", raw).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > max_depth:
            return True
    return False


def _read(raw: bytes, reader: json.JSONDecoder) -> Json:
    # orjson's own limit, for every Python has another: some would go on until the stack is full.
    if _is_deeper(raw, _READABLE_DEPTH):
        raise NotJson("is nested too deep to be read")
    try:
        value: Json = _with_room(reader.decode, raw.decode())
    except NotJson:
        raise
    except RecursionError:
        raise NotJson("is nested too deep to be read") from None
    except ValueError as error:  # malformed, or not UTF-8
        raise NotJson(f"is not JSON: {error}") from None
    return value


def _integer(digits: str) -> int:
    # Python itself refuses to read thousands of digits, with another error.
    if len(digits) > _LONGEST_INTEGER or abs(number := int(digits)) >= _BEYOND_DOUBLE:
        raise NotJson(_NOT_FINITE)
    return number


def _float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise NotJson(_NOT_FINITE)
    return number


def _constant(name: str) -> NoReturn:
    raise NotJson(f"holds {name}, which is not JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, item in pairs:
        if key in members:
            raise NotJson(f"has the key {key[:64]!r} twice in one object")
        members[key] = item
    return members


_READER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)
_STRICT_READER = json.JSONDecoder(
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_constant,
    object_pairs_hook=_without_duplicates,
)
