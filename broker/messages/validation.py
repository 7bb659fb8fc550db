"""How an operation takes its request: checked, with the path of the first fault in the refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from broker.canonical import Encoded
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import InvalidRequest
from broker.messages.fields import MAX_LIST_ITEMS, Id
from broker.messages.requests import Request

MAX_REQUEST_ID_BYTES = 256

Message = TypeVar("Message", bound=Request)

#: What an operation takes: its request, or a mapping with the same content.
Given: TypeAlias = Message | Mapping[str, Any]


def validate(
    kind: type[Message], given: Given[Message], encoded: list[Encoded] | None = None
) -> Message:
    """The request in `given`, checked; raises InvalidRequest with the path of the first fault.

    First means in the order of the request's fields, unknown fields last. `encoded` receives the
    encoded form of every JSON value of the request, in the same order.
    """
    if isinstance(given, Mapping) and not isinstance(given, dict):
        given = dict(given)
    try:
        return cast(Message, kind.__pydantic_validator__.validate_python(given, context=encoded))
    except ValidationError as error:
        raise _refusal(error) from None  # Pydantic's text would show nonces and payloads


def validate_request_id(request_id: object) -> str | None:
    """The id under which a lease mutation is remembered, checked; None means not at all."""
    if request_id is None:
        return None
    try:
        checked = _ID.validate_python(request_id)
        if len(checked.encode()) <= MAX_REQUEST_ID_BYTES:
            return checked
        reason = f"must have at most {MAX_REQUEST_ID_BYTES} bytes in UTF-8"
    except ValidationError as error:
        reason = error.errors(include_input=False)[0]["msg"]
    raise InvalidRequest(f"requestId: {reason}", field="requestId")


_ID: TypeAdapter[str] = TypeAdapter(Id)


def _refusal(error: ValidationError) -> InvalidRequest:
    faults = error.errors(include_url=False)
    fault = next((one for one in faults if one["type"] != "extra_forbidden"), faults[0])
    path = _path(fault)
    return InvalidRequest(f"{path}: {fault['msg']}", **_details(path, fault))


def _path(fault: ErrorDetails) -> str:
    if fault["type"] == "order":
        return str(fault["ctx"]["field"])
    path = ""
    for step in fault["loc"]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "request"


def _details(path: str, fault: ErrorDetails) -> dict[str, Any]:
    """Usually the path; three fields are reported otherwise, as clients of the protocol expect."""
    if path == "afterStreamId":
        return {}
    if path == "asOf":
        return {"field": "now"}
    limit = fault.get("ctx", {}).get("le")
    if path == "limit" and limit == MAX_LIST_ITEMS and fault["input"] <= MAX_SAFE_INTEGER:
        return {"limit": fault["input"]}
    return {"field": path}
