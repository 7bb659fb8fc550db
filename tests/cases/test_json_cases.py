"""Cases B26, B28 to B31 and B33, as far as they are about JSON text; each test names its case."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.canonical import NotJson, canonical, canonical_of, decode, digest, encode, parse
from broker.runtime_events import workspace_of


@pytest.mark.parametrize("raw", [b"ab\xffc", b'"ab\xffc"', b'{"a":', b'{"a":NaN}'])
def test_b26_stored_text_that_is_malformed_or_not_utf8_is_one_kind_of_error(raw: bytes) -> None:
    with pytest.raises(NotJson):
        decode(raw)


def both_forms(value: object) -> tuple[str, bytes]:
    """The stored and the canonical text of a value."""
    return encode(value).stored, canonical(value)


def test_b28_keys_are_in_utf16_order_not_in_code_point_order() -> None:
    value = {"\ufffd": 1, "\U0001f600": 2}
    assert sorted(value) == ["\ufffd", "\U0001f600"]
    assert canonical(value) == '{"\U0001f600":2,"\ufffd":1}'.encode()
    assert encode(value).stored == '{"\ufffd":1,"\U0001f600":2}'


def test_b28_a_key_named_proto_is_a_key_like_any_other() -> None:
    value = {"__proto__": {"x": 1}, "b": 1}
    assert canonical(value) == b'{"__proto__":{"x":1},"b":1}'
    assert decode(encode(value).stored) == value


def test_b28_keys_that_look_like_integers_stay_where_they_are() -> None:
    value = {"b": 1, "10": 2, "2": 3}
    assert both_forms(value) == ('{"b":1,"10":2,"2":3}', b'{"10":2,"2":3,"b":1}')


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-0.0, "0"),
        (1.0, "1"),
        (1e16, "10000000000000000"),
        (9007199254740993, "9007199254740993"),
        (-(10**25), "-10000000000000000000000000"),
    ],
)
def test_b29_numbers_have_ecmascript_text_and_integers_keep_their_digits(
    number: float, text: str
) -> None:
    assert both_forms({"n": number}) == (f'{{"n":{text}}}', f'{{"n":{text}}}'.encode())
    assert decode(text) == number
    assert parse(text) == number


def test_b29_one_and_one_point_nought_have_one_digest() -> None:
    assert digest(canonical({"n": 1.0})) == digest(canonical({"n": 1}))
    assert digest(canonical([-0.0])) == digest(canonical([0]))


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', "NaN", "[Infinity]", "-1e400"])
def test_b30_ambiguous_or_non_finite_text_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        parse(text)


@pytest.mark.parametrize(
    "value", [{1: "a", "1": "b"}, {None: 1}, float("nan"), [float("-inf")], {"a": {True: 1}}]
)
def test_b30_values_that_json_dumps_would_bend_are_refused(value: Any) -> None:
    with pytest.raises(NotJson):
        encode(value)


def test_b30_a_lone_surrogate_is_kept_in_a_payload_as_its_escape() -> None:
    assert both_forms({"a": "\ud83d"}) == (r'{"a":"\ud83d"}', rb'{"a":"\ud83d"}')
    assert decode(r'{"a":"\ud83d"}') == parse(r'{"a":"\uD83D"}') == {"a": "\ud83d"}


@pytest.mark.parametrize(("workspace_id", "owner"), [("ws", "ws"), ("ws\ud83d", None)])
def test_b30_a_lone_surrogate_in_an_id_makes_no_owner(workspace_id: str, owner: str | None) -> None:
    actor = {"version": 2, "workspaceId": workspace_id, "actorId": "a", "actorKind": "root"}
    event = {
        "version": 2,
        "streamId": "s",
        "sequence": 1,
        "actor": {**actor, "generation": 1},
        "occurredAt": 1,
        "kind": "domain.event",
        "eventType": "t",
        "eventId": "e",
    }
    assert workspace_of(event, "s") == owner


DEEP_TEXTS = {
    f"{depth} {name}": opening * depth + closing * depth
    for depth in (1_100, 100_000)
    for name, opening, closing in (
        ("arrays", "[", "]"),
        ("objects", '{"a":', "}"),
        ("unclosed", "[", ""),
        ("surrogates", '["\\ud800",', "]"),
        ("long numbers", "[18446744073709551616,", "]"),
    )
}


@pytest.mark.parametrize("text", DEEP_TEXTS.values(), ids=DEEP_TEXTS)
def test_b31_text_too_deep_to_read_is_refused_without_a_recursion_error(text: str) -> None:
    for read in (decode, parse):
        with pytest.raises(NotJson):
            read(text)
    with pytest.raises(NotJson):
        parse(text, max_depth=1_000_000)


def test_b31_foreign_text_somewhat_deeper_than_a_payload_is_still_read() -> None:
    text = "[" * 300 + "]" * 300
    assert decode(text) == json.loads(text)
    with pytest.raises(NotJson, match="more than 200 levels"):
        parse(text)


@pytest.mark.parametrize("depth", [201, 1_000, 100_000])
def test_b31_a_value_too_deep_to_keep_is_refused(depth: int) -> None:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    with pytest.raises(NotJson, match="more than 200 levels"):
        encode(value)


def test_b31_an_integer_of_5000_digits_is_refused() -> None:
    for read in (decode, parse):
        with pytest.raises(NotJson, match="not finite"):
            read("[" + "7" * 5_000 + "]")
    with pytest.raises(NotJson, match="not finite"):
        encode([10**5_000])


def test_b33_the_digest_survives_a_store_that_reorders_and_reformats() -> None:
    encoded = encode({"b": 1.0, "a": 1e2})
    assert (encoded.stored, canonical_of(encoded.embeddable)) == (
        '{"b":1,"a":100}',
        b'{"a":100,"b":1}',
    )
    assert canonical(decode(encoded.stored)) == canonical_of(encoded.embeddable)
    assert canonical(decode('{"a": 100, "b": 1.0}')) == canonical_of(encoded.embeddable)


def test_b33_a_number_that_a_store_spelled_out_beyond_a_double_is_refused() -> None:
    with pytest.raises(NotJson, match="not finite"):
        decode("1" + "0" * 400)
