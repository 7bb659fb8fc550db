"""How memory and time grow with an input: in proportion, and by a stated multiple.

Texts of some size are put to everything that reads or writes JSON. Peaks are those of Python's
allocator (tracemalloc), which orjson uses too: for every value, if only of two bytes, it takes
256 bytes while it reads. Time is only looked at here, never in the suite: an input of four times
the size must not take sixteen times as long, nor nearly.
"""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from broker.canonical import NotJson, canonical, decode, encode, parse
from broker.cli.apply import _encode, answer
from broker.errors import BrokerError
from broker.messages import CommitRequest, validate_and_encode
from tests.proof.fuzz.bench import Bench
from tests.proof.report import Report

MOST_MEMORY = 160  # bytes for a byte of input, and some for whatever its size
_MEMORY_IN_ANY_CASE = 2**20
_SIZE = 2**18
_SIZE_TO_TIME = 2**17
_MOST_GROWTH = 10  # of time, for four times the input; 4 is linear, 16 is quadratic
_REQUEST: dict[str, Any] = {
    "messageId": "m",
    "actorId": "a",
    "lease": {"epoch": 1, "nonce": "n"},
    "streamId": "s",
    "expectedRevision": 0,
}
_LEAST_SECONDS = 0.02  # what takes less cannot be told from noise

#: Makes a text of about so many bytes.
Pattern = Callable[[int], bytes]

PATTERNS: Mapping[str, Pattern] = {
    "long string": lambda size: b'"' + b"x" * size + b'"',
    "backslashes": lambda size: b'"' + b"\\\\" * (size // 2) + b'"',
    "unclosed string of backslashes": lambda size: b'"' + b"\\" * size,
    "quotes": lambda size: b'"' * size,
    "control escapes": lambda size: b'"' + b"\\u0001" * (size // 6) + b'"',
    "lone surrogates": lambda size: b'"' + b"\\ud800" * (size // 6) + b'"',
    "astral characters": lambda size: b'"' + "\U0001f600".encode() * (size // 4) + b'"',
    "arrays": lambda size: b"[" + b"[]," * (size // 3) + b"0]",
    "objects": lambda size: b"[" + b"{}," * (size // 3) + b"0]",
    "integers": lambda size: b"[" + b"1," * (size // 2) + b"0]",
    "long integers": lambda size: b"[" + b"18446744073709551616," * (size // 21) + b"0]",
    "digits": lambda size: b"9" * size,
    "digits of a fraction": lambda size: b"0." + b"1" * size,
    "floats": lambda size: b"[" + b"1e-7," * (size // 5) + b"0]",
    "keys": lambda size: _object(b'"%06x":0' % at for at in range(size // 11)),
    "keys backwards": lambda size: _object(b'"%06x":0' % at for at in range(size // 11, 0, -1)),
    "astral keys": lambda size: _object(
        b'"' + chr(0x10000 + at).encode() + b'":0' for at in range(size // 9)
    ),
    "one key over and over": lambda size: _object(b'"a":0' for _ in range(size // 6)),
    "open brackets": lambda size: b"[" * size,
    "closed brackets": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "open objects": lambda size: b'{"a":' * (size // 5),
    "deep in places": lambda size: b"[" + (b"[" * 150 + b"]" * 150 + b",") * (size // 301) + b"0]",
    "spaces": lambda size: b" " * size + b"1",
}


def _object(members: Any) -> bytes:
    return b"{" + b",".join(members) + b"}"


#: Does something with a text.
Reader = Callable[[bytes], object]


def readers(bench: Bench) -> dict[str, Reader]:
    """Whatever meets a text, or the value in it, from outside."""

    def line_with(text: bytes) -> object:
        return _encode(answer(bench.broker, b'{"method":"lease.get","params":' + text + b"}"))

    return {
        "parse": parse,
        "decode": decode,
        "encode": lambda text: encode(_value(text)),
        "canonical": lambda text: canonical(_value(text)),
        "a commit": lambda text: _commit(_value(text)),
        "a line": line_with,
        "a line by itself": lambda text: _encode(answer(bench.broker, text)),
    }


def _value(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.decode(errors="replace")


def _commit(value: Any) -> object:
    events = [{"eventId": "e", "eventType": "t", "payload": value}]
    return validate_and_encode(CommitRequest, _REQUEST | {"events": events})


def memory(reader: Reader, text: bytes) -> float:
    """How many bytes at the most are allocated at a time, for a byte of the text."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with suppress(BrokerError, NotJson):
            reader(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return max(0, peak - before - _MEMORY_IN_ANY_CASE) / len(text)


def seconds(reader: Reader, text: bytes) -> float:
    """The shortest time of three, without what Python's collector takes of it now and then."""
    times = []
    for _ in range(3):
        gc.collect()
        gc.disable()
        began = time.process_time()
        with suppress(BrokerError, NotJson):
            reader(text)
        times.append(time.process_time() - began)
        gc.enable()
    return min(times)


def try_memory(bench: Bench, seed: int) -> Report:
    """Everything that reads, with each pattern."""
    report = Report()
    report.counts.update({"inputs": 0, "beyond the memory allowed": 0})
    most = 0.0
    for what, reader in readers(bench).items():
        for name, make in PATTERNS.items():
            used = memory(reader, make(_SIZE))
            most = max(most, used)
            report.counts["inputs"] += 1
            if used > MOST_MEMORY:
                report.counts["beyond the memory allowed"] += 1
                report.broken(seed, f"{what} takes {used:.0f} times the memory of {name}")
    report.counts["times its size the most memory for an input"] = round(most)
    return report


def try_time(
    bench: Bench,
    seed: int,
    measure: Callable[[Reader, bytes], float] = seconds,
    size: int = _SIZE_TO_TIME,
) -> Report:
    """Everything that reads, with each pattern in two sizes; what seems too slow, twice more."""
    report = Report()
    report.counts.update({"inputs timed": 0, "slower than in proportion": 0})
    for what, reader in readers(bench).items():
        for name, make in PATTERNS.items():
            small, large = make(size), make(4 * size)
            report.counts["inputs timed"] += 1
            if all(_grows_too_much(measure, reader, small, large) for _ in range(3)):
                report.counts["slower than in proportion"] += 1
                report.broken(
                    seed, f"{what} of {name}: four times the size takes far more than that"
                )
    return report


def _grows_too_much(
    measure: Callable[[Reader, bytes], float], reader: Reader, small: bytes, large: bytes
) -> bool:
    longer = measure(reader, large)
    return longer > _LEAST_SECONDS and longer > _MOST_GROWTH * measure(reader, small)
