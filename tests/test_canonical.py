"""Canonical and stored JSON: recorded vectors, RFC 8785's numbers, and properties."""

from __future__ import annotations

import copy
import json
import re
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from enum import IntEnum, StrEnum
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.canonical import (
    MAX_DEPTH,
    Json,
    NotJson,
    _write,
    canonical,
    canonical_of,
    decode,
    decode_all,
    digest,
    encode,
    encode_all,
    parse,
)

VECTOR_FILE = Path(__file__).parent / "vectors" / "canonical_json.jsonl"
VECTORS = [json.loads(line) for line in VECTOR_FILE.read_text(encoding="ascii").splitlines()]

# RFC 8785, appendix B: the bits of a double and its text.
RFC_8785_NUMBERS = {
    "0000000000000000": "0",
    "8000000000000000": "0",
    "0000000000000001": "5e-324",
    "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308",
    "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992",
    "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22",
    "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000",
    "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7",
    "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332",
    "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333",
    "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
    "43143ff3c1cb0959": "1424953923781206.2",
}


def joined(text: str) -> str:
    """The text as a JSON reader would have it: no surrogate pair, lone surrogates only."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


ODD_CHARACTERS = st.sampled_from('\ud800\udbff\udc00\udfff\U0001f600\ufb33\uffff\x7f\u2028\0"\\:')
TEXTS = st.text(st.characters(exclude_categories=()) | ODD_CHARACTERS).map(joined)
ODD_FLOATS = st.sampled_from([0.0, -0.0, 1.0, 1e15, 1e16, 1e20, 1e21, 1e-5, 1e-6, 1e-7, 2.0**53])
FLOATS = ODD_FLOATS | st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers() | st.integers(-(2**70), 2**70) | st.integers(-(10**308), 10**308)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=25,
)
without_deadline = settings(deadline=None)


def nested(depth: int, innermost: Any = 1) -> Any:
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


def same(read: Any, given: Any) -> bool:
    """Whether text read back is the value given, as JSON has it: numbers by value, order kept."""
    if isinstance(given, bool) or given is None or isinstance(given, str):
        return type(read) is type(given) and bool(read == given)
    if isinstance(given, float):
        # A float's digits are the shortest that mean it, so they may be another big integer's.
        return type(read) in (int, float) and float(read) == given
    if isinstance(given, int):
        return type(read) is int and read == given
    if isinstance(given, list):
        return type(read) is list and len(read) == len(given) and all(map(same, read, given))
    return (
        type(read) is dict
        and list(read) == list(given)
        and all(map(same, read.values(), given.values()))
    )


def both_forms(value: object) -> tuple[str, bytes]:
    """The stored and the canonical text of a value."""
    return encode(value).stored, canonical(value)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["sha256"][:8])
def test_a_recorded_value_has_the_recorded_forms_and_digest(vector: dict[str, Any]) -> None:
    encoded = encode(vector["value"])
    assert canonical_of(encoded.embeddable).decode() == vector["canonical"]
    assert digest(canonical_of(encoded.embeddable)) == vector["sha256"]
    assert encoded.stored == vector.get("stored", encoded.stored)
    assert canonical(decode(encoded.stored)) == canonical_of(encoded.embeddable)


@pytest.mark.parametrize(("bits", "text"), RFC_8785_NUMBERS.items())
def test_the_numbers_of_rfc_8785_are_written_as_it_says(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert both_forms(number) == (text, text.encode())
    assert encode([number, "\ud800"]).stored == f'[{text},"\\ud800"]'


@pytest.mark.parametrize(
    ("value", "stored", "canonical_text"),
    [
        ({"b": "\ud83d", "a": 1.0}, r'{"b":"\ud83d","a":1}', r'{"a":1,"b":"\ud83d"}'),
        ({"\udead": [], "\t": {}}, r'{"\udead":[],"\t":{}}', r'{"\t":{},"\udead":[]}'),
        ([2**64, -(2**70), 0.5], f"[{2**64},{-(2**70)},0.5]", f"[{2**64},{-(2**70)},0.5]"),
        (["\ud83d\ude00"], '["\U0001f600"]', '["\U0001f600"]'),
        ({"\ud83d\ude00": "\ud800"}, '{"\U0001f600":"\\ud800"}', '{"\U0001f600":"\\ud800"}'),
        (True, "true", "true"),
        ("", '""', '""'),
    ],
)
def test_what_orjson_cannot_write_is_written_all_the_same(
    value: object, stored: str, canonical_text: str
) -> None:
    assert both_forms(value) == (stored, canonical_text.encode())


@without_deadline
@given(VALUES)
def test_stored_text_reads_back_as_the_value_with_its_key_order(value: Any) -> None:
    stored = encode(value).stored
    assert same(decode(stored), value)
    assert same(parse(stored.encode()), value)


@without_deadline
@given(VALUES)
def test_what_is_read_back_has_the_forms_of_what_was_stored(value: Any) -> None:
    stored, canonical_text = both_forms(value)
    assert both_forms(decode(stored)) == (stored, canonical_text)
    assert canonical(decode(canonical_text)) == canonical_text


@without_deadline
@given(st.lists(VALUES, max_size=4))
@example([1.0, {"a": "\ud83d"}, {"b": 1}])
@example([{"\U0001f600": 1, "\ufb33": 2}, 10**25])
def test_values_encoded_together_are_as_encoded_one_by_one(values: list[Any]) -> None:
    texts, embeddable = encode_all(values)

    assert texts == [encode(value).stored for value in values]
    assert canonical_of(embeddable) == canonical(values)


@without_deadline
@given(VALUES)
@example({"\U0001f600": 1, "\ufb33": 2})
@example({"\U0001f600": 1, 'a\\":': "\U0001f600"})
@example({'\U0001f600\\":"': 1, "\ufb33": 2})
@example({'\U0001f600"a': 1, "\ufb33": 2})
@example({"a": '\U0001f600\\":', "b": 1.0})
@example({"a\U0001f600\U0001f600b": 1, "a\ufb33": 2})
def test_the_fast_forms_are_those_of_the_plain_writer(value: Any) -> None:
    stored = _write(value, by_utf16=False)
    assert both_forms(value) == (stored, _write(value, by_utf16=True).encode())


@without_deadline
@given(st.dictionaries(TEXTS, VALUES, max_size=8), st.randoms())
def test_the_order_of_keys_does_not_touch_the_canonical_form(
    value: dict[str, Any], random: Any
) -> None:
    members = list(value.items())
    random.shuffle(members)
    assert canonical(dict(members)) == canonical(value)


@without_deadline
@given(st.dictionaries(TEXTS, st.none()))
def test_canonical_keys_are_in_utf16_order(value: dict[str, None]) -> None:
    keys = list(json.loads(canonical(value)))
    assert keys == sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))


@without_deadline
@given(VALUES)
def test_encoding_leaves_the_value_as_it_was(value: Any) -> None:
    before = copy.deepcopy(value)
    encode(value)
    assert repr(value) == repr(before)


@without_deadline
@given(FLOATS)
def test_a_float_is_written_by_the_rules_of_ecmascript(number: float) -> None:
    """The five layouts of Number::toString, and that no shorter digits mean the same number."""
    text = encode(number).stored
    assert canonical([number]) == f"[{text}]".encode()
    assert float(text) == number
    assert re.fullmatch(r"-?(0|[1-9]\d*)(\.\d*[1-9])?(e[+-][1-9]\d*)?", text)
    if number == 0:
        assert text == "0"
        return
    _, padded, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, padded)).rstrip("0")
    point = len(padded) + exponent
    assert ("e" in text) == (not -6 < point <= 21)
    assert "e" not in text or re.match(r"-?[1-9](\.|e)", text)
    assert len(digits) == 1 or float(f"{number:.{len(digits) - 2}e}") != number


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    BIG = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1,), "holds a tuple, which is not JSON; make it a list"),
        (Colour.RED, "holds a Colour; make it a plain str"),
        (Size.BIG, "holds a Size; make it a plain int"),
        ({1}, "holds a set, which is not JSON"),
        (b"", "holds a bytes, which is not JSON"),
        (Decimal(1), "holds a Decimal, which is not JSON"),
        ({1: 2}, "has a key that is not a string but a int"),
        ({Colour.RED: 2}, "has a key that is not a string but a Colour"),
        ({"\U0001f600": 1, "\ud83d\ude00": 2}, "has two keys that are one in JSON"),
        (float("nan"), "holds a number that is not finite"),
        (float("inf"), "holds a number that is not finite"),
        (2**1024, "holds a number that is not finite"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_value_that_is_not_json_is_refused_by_name(
    value: Any, message: str, wrapped: bool
) -> None:
    with pytest.raises(NotJson, match=re.escape(message)):
        encode({"a": [1.0, value]} if wrapped else value)


def test_the_largest_integer_that_rounds_to_a_finite_double_is_kept() -> None:
    largest = 2**1024 - 2**970 - 1
    assert encode(largest).stored == str(largest)
    assert decode(str(-largest)) == -largest
    with pytest.raises(NotJson, match="not finite"):
        encode(largest + 1)
    with pytest.raises(NotJson, match="not finite"):
        decode(str(largest + 1))


@pytest.mark.parametrize("innermost", [1, 1.0, "\ud800", {}, []], ids=ascii)
def test_the_deepest_level_is_the_two_hundredth(innermost: Any) -> None:
    own = 1 if innermost in ({}, []) else 0
    encode(nested(MAX_DEPTH - own, innermost))
    with pytest.raises(NotJson, match="more than 200 levels"):
        encode(nested(MAX_DEPTH - own + 1, innermost))


def deep_down(frames: int, work: Callable[[], Any]) -> Any:
    return work() if frames == 0 else deep_down(frames - 1, work)


@pytest.mark.parametrize("innermost", [1e-7, "\ud800"], ids=ascii)
@pytest.mark.parametrize("frames", [600, 700, 800, 900])
def test_a_deep_value_is_encoded_and_decoded_however_deep_the_caller_is(
    innermost: Any, frames: int
) -> None:
    value = nested(MAX_DEPTH - 1, innermost)
    stored = encode(value).stored
    text = canonical(value)

    def do_all() -> tuple[Any, ...]:
        return encode(value).stored, canonical(value), decode(stored), parse(stored)

    with ThreadPoolExecutor(1) as fresh_stack:
        answers = fresh_stack.submit(deep_down, frames, do_all).result()
    assert answers == (stored, text, value, value)


def test_a_value_that_holds_itself_is_refused_at_once() -> None:
    wide: list[Any] = []
    wide.extend([wide] * 10)
    named: dict[str, Any] = {"a": 1.0}
    named["b"] = [named, named]
    for cycle in (wide, named, [wide, "\ud800"]):
        with pytest.raises(NotJson, match="holds itself"):
            encode(cycle)


def test_a_value_used_twice_is_no_cycle() -> None:
    part = {"a": [1.0]}
    assert encode([part, part]).stored == '[{"a":[1]},{"a":[1]}]'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18446744073709551616", 18446744073709551616),
        (
            "[0.1234567890123456789,12345678901234567890]",
            [0.1234567890123456789, 12345678901234567890],
        ),
        ("-9223372036854775809", -9223372036854775809),
        ('["1234567890123456789", 0.1]', ["1234567890123456789", 0.1]),
        (r'{"a":"\ud83d","b":"\ud83d\ude00"}', {"a": "\ud83d", "b": "\U0001f600"}),
        (b' [1.0, -0.0, "\xc3\xa9"]\n', [1.0, -0.0, "é"]),
        ("12345678901234567890.0", 12345678901234567890.0),
    ],
)
def test_text_is_read_exactly_by_both_readers(text: str | bytes, value: Json) -> None:
    for read in (decode(text), parse(text)):
        assert repr(read) == repr(value)


DIGITS = st.text("0123456789", min_size=1, max_size=40)
NUMBERS = st.builds(
    lambda sign, whole, rest: sign + (whole.lstrip("0") or "0") + rest,
    st.sampled_from(["", "-"]),
    DIGITS,
    st.just("")
    | DIGITS.map(".{}".format)
    | st.builds(".{}e-{}".format, DIGITS, st.integers(0, 99)),
)
TOKENS = NUMBERS | st.text("0123456789. é\U0001f600", max_size=40).map(
    lambda text: json.dumps(text, ensure_ascii=False)
)


@given(st.lists(TOKENS, max_size=8), st.text(" ", max_size=3))
@example(["1234567.1", "12345678901234567890"], "")
@example([f"0.{'1' * 40}", "1" * 20], "  ")
def test_numbers_are_read_digit_by_digit_wherever_they_stand(tokens: list[str], space: str) -> None:
    text = f"{space}[{','.join(tokens)}]"
    assert repr(decode(text)) == repr(json.loads(text))
    assert repr(decode(text.encode())) == repr(json.loads(text))
    assert repr(decode_all(tokens)) == repr([json.loads(token) for token in tokens])


def test_a_long_integer_is_seen_whatever_digits_come_before_it() -> None:
    longest = "18446744073709551616"
    for spaces, digits, apart in product(range(3), range(1, 40), range(4)):
        for before in ("1" * digits, f"0.{'1' * digits}"):
            text = f"{' ' * spaces}[{before},{' ' * apart}{longest}]"
            assert decode(text) == json.loads(text)
            assert f"{decode(text)}".endswith(f"{longest}]")


def test_digits_of_two_texts_are_not_taken_together() -> None:
    texts = ["0.5", "12345678901234567890123", "1"]
    assert decode_all(texts) == [0.5, 12345678901234567890123, 1]


@pytest.mark.parametrize("bad", ["", "1,2", "\ud800", "1" * 400])
def test_one_text_that_is_not_json_is_refused_among_many(bad: str) -> None:
    with pytest.raises(NotJson):
        decode_all(["[1", "2]"])
    with pytest.raises(NotJson):
        decode_all(["1", bad, "2"])


def test_stored_text_with_a_key_twice_means_the_last() -> None:
    assert decode('{"a":1,"b":2,"a":3}') == {"a": 3, "b": 2}
    assert decode('{"a":1,"a":18446744073709551616}') == {"a": 18446744073709551616}


NOT_JSON_TEXTS: list[str | bytes] = [
    "",
    " ",
    "nul",
    "[1,]",
    "{'a':1}",
    "[1] 2",
    "01",
    "NaN",
    "[-Infinity]",
    "1e400",
    "[-1e400, 1]",
    "9" * 310,
    "9" * 5000,
    '"a\nb"',
    '"\ud800"',
    "\ufeff1",
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b"\xff\xfe1\x00",
]


@pytest.mark.parametrize("text", NOT_JSON_TEXTS, ids=lambda text: ascii(text)[:24])
def test_text_that_is_not_json_is_refused_by_both_readers(text: str | bytes) -> None:
    for read in (decode, parse):
        with pytest.raises(NotJson):
            read(text)


@without_deadline
@given(st.text(st.sampled_from('[]{}",:\\0123456789.eE+-truefalsn\ud800 '), max_size=40))
@example('{"a":1e999}')
def test_any_text_is_read_or_refused_and_parse_is_the_stricter(text: str) -> None:
    try:
        read = decode(text)
    except NotJson:
        with pytest.raises(NotJson):
            parse(text)
        return
    try:
        assert repr(parse(text)) == repr(read)
    except NotJson as refusal:
        assert "twice" in str(refusal)  # noqa: PT017 - which of the two happens is the text's choice


@without_deadline
@given(st.binary(max_size=20))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for read in (decode, parse):
        try:
            value = read(raw)
        except NotJson:
            continue
        assert both_forms(value)  # what was read can be written


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":1}', '[{"b":{"a":1,"\\u0061":2}}]', '{"\\ud800":1,"\\ud800":1}']
)
def test_parse_refuses_a_key_that_comes_twice(text: str) -> None:
    with pytest.raises(NotJson, match="twice in one object"):
        parse(text)


def test_parse_counts_levels_outside_strings_only() -> None:
    assert parse('["[[[[", "\\"[[[["]', max_depth=1) == ["[[[[", '"[[[[']
    assert parse("[[],[],[],[]]", max_depth=2) == [[], [], [], []]
    assert parse('{"a":[{}]}', max_depth=3) == {"a": [{}]}
    with pytest.raises(NotJson, match="more than 2 levels"):
        parse('{"a":[{}]}', max_depth=2)
    with pytest.raises(NotJson, match="more than 200 levels"):
        parse("[" * 201 + "]" * 201)


def test_parse_takes_a_larger_depth_for_payloads_inside_a_request() -> None:
    text = encode(nested(MAX_DEPTH)).stored
    assert parse(f'{{"params":[{text}]}}', max_depth=MAX_DEPTH + 2) == {"params": [decode(text)]}


@pytest.mark.parametrize("text", ['"' * 100_001, '"' + '\\"' * 100_000, "[" * 300 + '"\\'])
def test_a_string_that_never_ends_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        parse("[" * 150 + text)
