"""The types of the fields of requests: ids, integers, arrays, JSON values."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from broker.canonical import NotJson, encode
from broker.clock import MAX_SAFE_INTEGER

MAX_ID_BYTES = 1_024
MAX_PAGE_EVENTS = 128
MAX_LIST_ITEMS = 512


class Absent(enum.Enum):
    """The type of `ABSENT`, which stands for a JSON value that was not given; null is a value."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent.ABSENT


def _identifier(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("identifier", "must not contain NUL")
    if value.startswith("\1"):
        raise PydanticCustomError("identifier", "must not start with U+0001, which is reserved")
    return _bounded(value)


def _bounded(value: str) -> str:
    if not value.isascii() and len(value.encode()) > MAX_ID_BYTES:
        raise PydanticCustomError("identifier", "must have at most 1024 bytes in UTF-8")
    return value


def _position(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("identifier", "must not contain NUL")
    return _bounded(value)


def _integral(value: Any) -> Any:
    """JSON has one kind of number: 1.0 is the integer 1."""
    return int(value) if type(value) is float and value.is_integer() else value


def array(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise PydanticCustomError("array", "must be an array")
    return value


def _json(value: Any, info: ValidationInfo) -> Any:
    """Check a JSON value, and hand its encoded form to whoever asked for it by the context."""
    try:
        encoded = encode(value)
    except NotJson as error:
        raise PydanticCustomError("json", "{reason}", {"reason": str(error)}) from None
    if info.context is not None:
        info.context.append(encoded)
    return value


def optional_json(value: Any, info: ValidationInfo) -> Any:
    return value if value is ABSENT else _json(value, info)


def absent() -> Absent:
    return ABSENT


def is_none(value: Any) -> bool:
    return value is None


def is_absent(value: Any) -> bool:
    return value is ABSENT


Id = Annotated[
    str, Field(strict=True, min_length=1, max_length=MAX_ID_BYTES), AfterValidator(_identifier)
]
Position = Annotated[str, Field(strict=True, max_length=MAX_ID_BYTES), AfterValidator(_position)]
Natural = Annotated[int, BeforeValidator(_integral), Field(strict=True, ge=0, le=MAX_SAFE_INTEGER)]
Positive = Annotated[int, BeforeValidator(_integral), Field(strict=True, ge=1, le=MAX_SAFE_INTEGER)]
PageLimit = Annotated[int, BeforeValidator(_integral), Field(strict=True, ge=1, le=MAX_PAGE_EVENTS)]
ListLimit = Annotated[int, BeforeValidator(_integral), Field(strict=True, ge=1, le=MAX_LIST_ITEMS)]
JsonValue = Annotated[Any, AfterValidator(_json)]
