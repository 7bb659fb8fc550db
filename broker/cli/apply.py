"""`broker apply`: the store for a program in any language, a line of JSON to ask and one to answer."""

from __future__ import annotations

import json
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from typing import Annotated, Any, BinaryIO, NamedTuple

import typer
from pydantic import Field

from broker.canonical import MAX_DEPTH, NotJson, encode, parse
from broker.cli.console import DEFAULT_URL, Schema, Url, errors_exit
from broker.errors import BrokerError, CorruptRow, InvalidRequest
from broker.messages import Request, Result, validate
from broker.options import Options
from broker.store import Broker

#: A line may be this long; a longer one is skipped, and answered with invalid_request.
MAX_LINE_BYTES = 64 * 1024 * 1024

# A payload of a commit begins four levels down. There is room to spare, so that a payload which is
# a little too deep is refused by its own path.
_MAX_LINE_DEPTH = MAX_DEPTH + 50


def apply(
    file: Annotated[
        typer.FileBinaryRead, typer.Argument(help="JSON lines, or - for standard input.")
    ],
    url: Url = DEFAULT_URL,
    namespace: Schema = None,
) -> None:
    """Carry out JSON lines {"method", "params", "requestId"?}, and answer each with a line.

    An answer is {"ok": true, "result"} or {"ok": false, "error": {code, message, details?}}, and is
    sent off before the next line is read. A bad line is answered like any refusal; blank lines are
    skipped. The database is opened as by `broker upgrade`: made if missing, migrated if old. Exit
    code 0 when all lines were answered.
    """
    with errors_exit():
        broker = Broker.open(url, options=Options(schema=namespace))
    with broker:
        for line in _lines(file):
            sys.stdout.buffer.write(_encode(answer(broker, line)) + b"\n")
            sys.stdout.buffer.flush()


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Each line that is not blank, or None for one that is too long to be kept.

    A byte order mark, which editors put before the first, is no part of it.
    """
    is_first = True
    while line := file.readline(MAX_LINE_BYTES + 1):
        if is_first:
            line, is_first = line.removeprefix(BOM_UTF8), False
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
            yield None
        elif not line.isspace():
            yield line


# ---------------------------------------------------------------------------------------- answering


class Line(Request):
    """A line: the operation to call, its request, and for lease mutations the id of the receipt."""

    method: Annotated[str, Field(strict=True)]
    params: dict[str, Any]
    request_id: Any = None  # judged by the operation


class Method(NamedTuple):
    call: Callable[..., Any]
    takes_request_id: bool = False


def _stream_events(broker: Broker, params: dict[str, Any]) -> object:
    if params.get("authorization") is not None:
        return broker.read_authorized_events(params)
    return broker.read_events({name: params[name] for name in params if name != "authorization"})


METHODS: dict[str, Method] = {
    "commit": Method(Broker.commit),
    "lease.acquire": Method(Broker.acquire_lease, takes_request_id=True),
    "lease.heartbeat": Method(Broker.heartbeat_lease, takes_request_id=True),
    "lease.compare-and-swap": Method(Broker.compare_and_swap_lease, takes_request_id=True),
    "lease.takeover": Method(Broker.takeover_lease, takes_request_id=True),
    "lease.release": Method(Broker.release_lease, takes_request_id=True),
    "lease.get": Method(Broker.get_lease),
    "stream.revision": Method(Broker.get_stream_revision),
    "stream.events": Method(_stream_events),
    "stream.events.page": Method(Broker.read_authorized_events_page),
    "stream.list": Method(Broker.list_streams),
    "journal.events": Method(Broker.read_journal),
    "read-model.events": Method(Broker.read_model_events),
    "read-model.sources": Method(Broker.read_model_sources),
    "projection.read": Method(Broker.read_projection),
    "outbox.pending": Method(Broker.list_pending_outbox),
    "outbox.delivered": Method(Broker.mark_outbox_delivered),
}


def answer(broker: Broker, line: bytes | None) -> dict[str, Any]:
    """What there is to say to a line; whatever the store refuses or cannot do is an answer too."""
    try:
        return {"ok": True, "result": _wire(_call(broker, _read(line)))}
    except BrokerError as error:
        return {"ok": False, "error": error.to_json()}


def _read(line: bytes | None) -> Line:
    if line is None:
        raise _bad_line(f"is longer than {MAX_LINE_BYTES:,} bytes")
    try:
        given = parse(line, max_depth=_MAX_LINE_DEPTH)
    except NotJson as error:
        raise _bad_line(str(error)) from error
    if not isinstance(given, dict):
        raise _bad_line("is not an object with method and params")
    return validate(Line, given)


def _bad_line(fault: str) -> InvalidRequest:
    return InvalidRequest(f"the line {fault}", field="request")


def _call(broker: Broker, line: Line) -> object:
    method = METHODS.get(line.method)
    if method is None:
        raise InvalidRequest(
            f"there is no method {line.method[:64]!r}; there are {', '.join(METHODS)}",
            field="method",
        )
    if method.takes_request_id:
        return method.call(broker, line.params, request_id=line.request_id)
    if line.request_id is not None:
        raise InvalidRequest(f"{line.method} takes no requestId", field="requestId")
    return method.call(broker, line.params)


def _wire(result: object) -> object:
    if isinstance(result, Result):
        return result.to_json()
    return [_wire(each) for each in result] if isinstance(result, list) else result


def _encode(form: dict[str, Any]) -> bytes:
    try:
        return encode(form).stored.encode()
    except NotJson:  # it holds a payload that is deeper than ours, or nearly as deep
        return _encode_deep(form)


def _encode_deep(form: dict[str, Any]) -> bytes:
    """The same value as deep as Python goes: only the spelling of numbers may be another."""
    try:
        return json.dumps(form, separators=(",", ":")).encode()
    except RecursionError:
        error = CorruptRow("what was read is nested too deep to be written")
        return _encode({"ok": False, "error": error.to_json()})
