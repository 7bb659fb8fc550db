"""JSON text that is nearly right, as bytes: spelled in odd ways, and with bytes changed."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from broker.cli.apply import METHODS
from tests.proof.fuzz.requests import OPERATIONS
from tests.proof.fuzz.values import json_values, texts

_EXAMPLES = {each.name: each.example for each in OPERATIONS}
_METHODS = {
    name: _EXAMPLES.get(method.call.__name__, _EXAMPLES["read_events"])
    for name, method in METHODS.items()
}

#: Spellings of values that are odd, or of none.
FRAGMENTS = (
    b"NaN",
    b"-Infinity",
    b"1e400",
    b"1e-400",
    b"-0",
    b"-0.0",
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"0x10",
    b"1e5",
    b"1E+2",
    b"18446744073709551616",
    b"9" * 5_000,
    b"0." + b"1" * 5_000,
    b'"\\ud800"',
    b'"\\uD83D\\uDE00"',
    b'"\\u0000"',
    b'"\x00"',
    b'"\t"',
    b'"\\x41"',
    b'"\xc0\x80"',
    b'"\xed\xa0\x80"',
    b'"\xf4\x90\x80\x80"',
    b'"\xff"',
    b'{"a":1,"a":2}',
    b'{"a":1,"\\u0061":2}',
    b"[1,]",
    b"[,1]",
    b"{'a':1}",
    b"{a:1}",
    b"/* comment */ 1",
    b"1 // comment",
    b"\xef\xbb\xbf1",
    b"[" * 199 + b"]" * 199,
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'["' + b"\\" * 10_001,
    b'"' + b"\\\\" * 10_000 + b'"',
    b"null",
    b"nul",
    b"",
    b"\x0b1",
    b"\xc2\xa01",
)

_ODD_BYTES = b'\x00\x01\x1f"\\{}[],:/ \t\r\x0b\xef\xbb\xbf\xc0\x80\xed\xa0\xff0123eE.-+nuNI'


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """Text that is JSON, or was before it was changed; without line ends, as in a line."""
    text = draw(st.sampled_from([_dumped, _spliced, _spliced]))(draw)
    return draw(_changed(text)).replace(b"\n", b" ")


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line for `broker apply`, or what was one."""
    method = draw(st.sampled_from(sorted(_METHODS)))
    line: dict[str, Any] = {"method": method, "params": _METHODS[method]}
    if draw(st.integers(0, 3)) == 0:
        line["requestId"] = draw(texts | st.just("r"))
    text = _with_fragment(draw, json.dumps(line).encode())
    return draw(_changed(text)).replace(b"\n", b" ")


#: Standard input of `broker apply`: lines, blank ones and garbage, with and without an end.
streams = st.lists(lines() | st.binary(max_size=40) | st.sampled_from([b"", b" ", b"\r"])).map(
    b"\n".join
)


def _dumped(draw: st.DrawFn) -> bytes:
    spaces = draw(st.sampled_from([None, 1, "\t"]))
    separators = draw(st.sampled_from([None, (",", ":"), (" , ", " : ")]))
    as_ascii = draw(st.booleans())
    value = draw(json_values)
    text = json.dumps(value, ensure_ascii=as_ascii, indent=spaces, separators=separators)
    return text.encode(errors="surrogatepass")


def _spliced(draw: st.DrawFn) -> bytes:
    return _with_fragment(draw, _dumped(draw))


def _with_fragment(draw: st.DrawFn, text: bytes) -> bytes:
    """With one of its values, most of the time, in an odd spelling."""
    if draw(st.integers(0, 3)) == 0:
        return text
    places = [at for at, byte in enumerate(text) if byte in b":,[" and at + 1 < len(text)]
    if not places:
        return draw(st.sampled_from(FRAGMENTS))
    at = draw(st.sampled_from(places)) + 1
    ends = [text.find(mark, at) for mark in (b",", b"}", b"]")]
    end = min([each for each in ends if each >= 0], default=len(text))
    return text[:at] + draw(st.sampled_from(FRAGMENTS)) + text[end:]


@st.composite
def _changed(draw: st.DrawFn, text: bytes) -> bytes:
    changed = bytearray(text)
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 5]))):
        at = draw(st.integers(0, len(changed)))
        match draw(st.integers(0, 5)):
            case 0:
                changed[at:at] = bytes([draw(st.sampled_from(_ODD_BYTES))])
            case 1:
                del changed[at : at + draw(st.integers(1, 8))]
            case 2:
                changed[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 3:
                del changed[at:]
            case 4:
                changed[at:at] = draw(st.sampled_from([b"\xef\xbb\xbf", b"\xc0\xaf", b"{}", b"\0"]))
            case _:
                changed += draw(st.binary(max_size=4))
    return bytes(changed)
