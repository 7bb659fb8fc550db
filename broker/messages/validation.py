"""How an operation takes its request: checked, with the path of the first fault in the refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from broker.canonical import NotJson, encode_all
from broker.clock import MAX_SAFE_INTEGER
from broker.errors import InvalidRequest
from broker.messages.fields import MAX_LIST_ITEMS, Id
from broker.messages.requests import Request

MAX_REQUEST_ID_BYTES = 256

Message = TypeVar("Message", bound=Request)

#: What an operation takes: its request, or a mapping with the same content.
Given: TypeAlias = Message | Mapping[str, Any]


def validate(kind: type[Message], given: Given[Message]) -> Message:
    """The request in `given`, checked; raises InvalidRequest with the path of the first fault.

    First means in the order of the request's fields, unknown fields last.
    """
    return _validate(kind, _plain(given), None)


def validate_and_encode(
    kind: type[Message], given: Given[Message]
) -> tuple[Message, list[str], list[Any]]:
    """As `validate`, with the JSON values of the request, in the order of the fields.

    Of these the stored texts, and what `canonical_of` takes for each.
    """
    given = _plain(given)
    values: list[Any] = []
    try:
        request = _validate(kind, given, values)
        return request, *encode_all(values)
    except (InvalidRequest, NotJson) as error:
        # A faulty JSON value may come before what was found; alone it would not have a path.
        _validate(kind, given, None)
        raise InvalidRequest(f"request: {error}", field="request") from error


def _plain(given: Given[Message]) -> Any:
    is_other_mapping = type(given) is not dict and isinstance(given, Mapping)
    return dict(given) if is_other_mapping else given


def _validate(kind: type[Message], given: Any, values: list[Any] | None) -> Message:
    try:
        request: Message = kind.__pydantic_validator__.validate_python(given, context=values)
    except ValidationError as error:
        raise _refusal(error) from None  # Pydantic's text would show nonces and payloads
    return request


def validate_request_id(request_id: object) -> str | None:
    """The id under which a lease mutation is remembered, checked; None means not at all."""
    if request_id is None:
        return None
    try:
        checked: str = _ID.validate_python(request_id)
        if len(checked.encode()) <= MAX_REQUEST_ID_BYTES:
            return checked
        reason = f"must have at most {MAX_REQUEST_ID_BYTES} bytes in UTF-8"
    except ValidationError as error:
        reason = error.errors(include_input=False)[0]["msg"]
    raise InvalidRequest(f"requestId: {reason}", field="requestId")


def is_id(value: object) -> bool:
    """Whether a value can be an id in a request."""
    try:
        _ID.validate_python(value)
    except ValidationError:
        return False
    return True


_ID = TypeAdapter(Id).validator


def _refusal(error: ValidationError) -> InvalidRequest:
    faults = error.errors(include_url=False)
    fault = next((one for one in faults if one["type"] != "extra_forbidden"), faults[0])
    path = _path(fault)
    return InvalidRequest(f"{path}: {fault['msg']}", **_details(path, fault))


def _path(fault: ErrorDetails) -> str:
    steps = [to_camel(step) if isinstance(step, str) else step for step in fault["loc"]]
    if fault["type"] == "extra_forbidden":
        steps[-1] = fault["loc"][-1]  # it is no field of ours: as it was sent
    path = ""
    for step in steps:
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
