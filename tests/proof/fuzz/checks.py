"""What is judged of each input. Each check takes a `Bench` and one input, and raises what is wrong.

A check answers whether the store accepted the input. `tests.proof.fuzz.inputs` has them by name,
Hypothesis and, where it is installed, atheris make up inputs for the same checks.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from broker.canonical import NotJson, canonical, decode, encode, parse
from broker.cli.apply import _encode, _lines, answer
from broker.errors import BrokerError, InvalidRequest
from broker.messages import Request, validate
from tests.proof.fuzz import independent
from tests.proof.fuzz.bench import Bench
from tests.proof.fuzz.requests import Asked
from tests.proof.fuzz.values import Odd
from tests.test_canonical import same


class Broken(AssertionError):
    """A promise was broken by an input."""


def require(is_kept: bool, what: str) -> None:
    """Raise Broken unless a promise was kept."""
    if not is_kept:
        raise Broken(what)


# ---------------------------------------------------------------------------------------- requests


def validation(_bench: Bench, asked: Asked) -> bool:
    """A request by itself: accepted, or InvalidRequest with the path of a field."""
    try:
        request = validate(asked.operation.kind, asked.request)
    except InvalidRequest as error:
        require_error(error)
        return False
    form = request.to_json()
    again = validate(asked.operation.kind, form)
    require(again.to_json() == form, "the wire form is another request")
    return True


def models(_bench: Bench, asked: Asked) -> bool:
    """As Pydantic's own ways in, which raise Pydantic's own error: the model, and its JSON text."""
    kind = asked.operation.kind
    made: list[Request] = []
    with suppress(ValidationError):
        made.append(kind.model_validate(asked.request))
    with suppress(TypeError, ValueError, RecursionError, ArithmeticError, Odd):
        text = json.dumps(asked.request)
        made.append(_made_from(kind, text))
    for request in made:
        validate(kind, request)
    return bool(made)


def _made_from(kind: type[Request], text: str) -> Request:
    try:
        return kind.model_validate_json(text)
    except ValidationError:
        raise
    except Exception as error:
        raise Broken(f"model_validate_json raised {type(error).__name__}: {error}") from error


def operation(bench: Bench, asked: Asked) -> bool:
    """An operation of `Broker`."""
    return _is_accepted(bench.broker, asked)


def unit_of_work(bench: Bench, asked: Asked) -> bool:
    """The same operation of `UnitOfWork`."""
    with bench.unit() as unit:
        return _is_accepted(unit, asked)


def _is_accepted(store: Any, asked: Asked) -> bool:
    more = {"request_id": asked.request_id} if asked.operation.takes_request_id else {}
    try:
        getattr(store, asked.operation.name)(asked.request, **more)
    except BrokerError as error:
        require_error(error)
        return False
    return True


def require_error(error: BrokerError) -> None:
    """An error can be sent to anybody, and an invalid request says where its fault is."""
    text = encode(error.to_json()).stored
    require(json.loads(text)["code"] == error.code, "the error's wire form is another error")
    if type(error) is InvalidRequest:
        details = error.details
        is_named = isinstance(details.get("field"), str) and details["field"] != ""
        is_exception = "limit" in details or "streamId" in details or not details
        require(is_named or is_exception, f"an invalid request without a field: {details}")


# -------------------------------------------------------------------------------------------- JSON


def encoding(_bench: Bench, value: Any) -> bool:
    """Both forms of a value, against an implementation of our own, and back again."""
    try:
        wanted = independent.stored_text(value), independent.canonical_text(value).encode()
    except independent.NotAllowed:
        wanted = None
    try:
        encoded = encode(value)
        found = encoded.stored, canonical(value)
    except NotJson:
        found = None
    require(found == wanted, f"the forms are {_short(found)} instead of {_short(wanted)}")
    if found is None:
        return False
    for read in (decode(found[0]), parse(found[0])):
        require(same(read, _joined(value)), f"read back as {_short(read)}")
        require(encode(read).stored == found[0], "read back it has another stored form")
        require(canonical(read) == found[1], "read back it has another canonical form")
    return True


def _joined(value: Any) -> Any:
    """As any JSON reader has it: no pairs of surrogates."""
    if type(value) is str:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if type(value) is list:
        return [_joined(each) for each in value]
    if type(value) is dict:
        return {_joined(key): _joined(each) for key, each in value.items()}
    return value


def reading(_bench: Bench, text: bytes) -> bool:
    """Text, against the standard library's reader told to be strict."""
    wanted = _read_strictly(text)
    try:
        found: tuple[Any] | None = (parse(text),)
    except NotJson:
        found = None
    require((found is None) == (wanted is None), f"{_short(found)} instead of {_short(wanted)}")
    with suppress(NotJson):
        read = decode(text)
        require(found is None or same(read, found[0]), "decode and parse differ")
    if found is None or wanted is None:
        return False
    require(same(found[0], wanted[0]), f"{_short(found)} instead of {_short(wanted)}")
    return True


def _read_strictly(text: bytes) -> tuple[Any] | None:
    if _levels(text) > independent.MOST_LEVELS:
        return None
    try:
        value = json.loads(
            text.decode("utf-8"),
            parse_constant=_refuse,
            object_pairs_hook=_once,
            parse_int=_integer,
        )
        independent.stored_text(value)
    except (ValueError, independent.NotAllowed):
        return None
    return (value,)


def _levels(text: bytes) -> int:
    """How deep it goes, whether or not it is JSON otherwise."""
    level = deepest = 0
    in_string = is_escaped = False
    for byte in text:
        if in_string:
            in_string = is_escaped or byte != ord('"')
            is_escaped = byte == ord("\\") and not is_escaped
        elif byte == ord('"'):
            in_string, is_escaped = True, False
        elif byte in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif byte in b"]}":
            level -= 1
    return deepest


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key twice")
    return members


def _integer(digits: str) -> int:
    if len(digits) > 400:
        raise ValueError("longer than any double")
    return int(digits)


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) < 200 else f"{text[:200]}…"


# ------------------------------------------------------------------------------------ broker apply


def line(bench: Bench, text: bytes) -> bool:
    """A line: one answer, which is JSON in one line, whatever the line is."""
    said = answer(bench.broker, text)
    written = _encode(said)
    require(b"\n" not in written, "an answer of two lines")
    require(json.loads(written) == json.loads(json.dumps(said)), "the answer is written as another")
    require_answer(said)
    return bool(said["ok"])


def stream(bench: Bench, text: bytes) -> bool:
    """Lines as they come: one answer for each that is not blank."""
    given = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    wanted = [each for each in given if each.strip(b" \t\r\x0b\x0c")]
    taken = [each for each in _lines(io.BytesIO(text)) if each is not None]
    require([each.rstrip(b"\n") for each in taken] == wanted, "other lines than there are")
    answered = [line(bench, each) for each in taken]
    return any(answered)


def require_answer(said: Mapping[str, Any]) -> None:
    """An answer has a result, or an error with its code and message."""
    if said["ok"]:
        require(set(said) == {"ok", "result"}, "an answer with more than a result")
        return
    error = said["error"]
    require(set(said) == {"ok", "error"}, "an answer with more than an error")
    require(error.keys() <= {"code", "message", "details"}, f"an error with {sorted(error)}")
    require(bool(error["code"] and error["message"]), "an error without a code or message")


#: What every check is.
Check = Callable[[Bench, Any], bool]
