"""The types of the fields of requests: ids, integers, arrays, JSON values."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError
from pydantic_core import core_schema as cs

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


# ------------------------------------------------------------------------- ids, integers, arrays
#
# These three make up most of a request. They are put together from Pydantic's own pieces, so that
# what is usual is judged without a call into Python: such calls took a third of the time of a
# commit's validation.


class _Text:
    """Text of `least` to `MAX_ID_BYTES` bytes in UTF-8 that matches `pattern`: `rule` in words."""

    def __init__(self, least: int, pattern: str, rule: str) -> None:
        self._schema = cs.str_schema(
            strict=True, min_length=least, max_length=MAX_ID_BYTES, pattern=pattern
        )
        self._message = f"must be text of {least} to {MAX_ID_BYTES} bytes in UTF-8, {rule}"

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> cs.CoreSchema:
        return cs.union_schema(
            [_USUAL_TEXT, cs.no_info_after_validator_function(_bounded, self._schema)],
            mode="left_to_right",
            custom_error_type="text",
            custom_error_message=self._message,
        )

    def __get_pydantic_json_schema__(
        self, _schema: cs.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(self._schema)


# A pattern for any text, which has to know all of UTF-8, is a larger program, and each field has its
# own: it took a tenth of the time of a commit's validation after a disk flush.
_USUAL_TEXT = cs.str_schema(strict=True, max_length=MAX_ID_BYTES, pattern=r"^[ -~]+$")


def _bounded(value: str) -> str:
    if len(value.encode()) > MAX_ID_BYTES:
        raise ValueError
    return value


class _Integer:
    """A safe integer of at least `least`; 1.0 is the integer 1, for JSON has one kind of number."""

    def __init__(self, least: int) -> None:
        self._schema = cs.int_schema(strict=True, ge=least, le=MAX_SAFE_INTEGER)
        self._message = f"must be an integer from {least} to {MAX_SAFE_INTEGER}"

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> cs.CoreSchema:
        return cs.union_schema(
            [self._schema, cs.no_info_before_validator_function(_integral, self._schema)],
            mode="left_to_right",
            custom_error_type="safe_integer",
            custom_error_message=self._message,
        )

    def __get_pydantic_json_schema__(
        self, _schema: cs.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(self._schema)


def _integral(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


class Array:
    """A list or tuple, and no other iterable, kept as a tuple."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> cs.CoreSchema:
        items = handler(source)
        is_array = cs.custom_error_schema(
            cs.is_instance_schema((list, tuple)), "array", custom_error_message="must be an array"
        )
        return cs.json_or_python_schema(items, cs.chain_schema([is_array, items]))

    def __get_pydantic_json_schema__(
        self, schema: cs.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema["json_schema"])


class Default:
    """What null means for a field with a default, as that is optional like any other."""

    def __init__(self, default: int) -> None:
        self._default = default

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> cs.CoreSchema:
        return cs.no_info_before_validator_function(self._unless_null, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: cs.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "null"}]}

    def _unless_null(self, value: Any) -> Any:
        return self._default if value is None else value


Id = Annotated[str, _Text(1, r"^[^\x00\x01][^\x00]*$", "without NUL and not beginning with U+0001")]
Position = Annotated[str, _Text(0, r"^[^\x00]*$", "without NUL")]
Natural = Annotated[int, _Integer(0)]
Positive = Annotated[int, _Integer(1)]
PageLimit = Annotated[int, Field(strict=True, ge=1, le=MAX_PAGE_EVENTS), BeforeValidator(_integral)]
ListLimit = Annotated[int, Field(strict=True, ge=1, le=MAX_LIST_ITEMS), BeforeValidator(_integral)]


# ------------------------------------------------------------------------------------ JSON values


def _json(value: Any, info: ValidationInfo) -> Any:
    """Check a JSON value, or hand it to whoever collects them by the context and checks them."""
    values = info.context
    if values is not None:
        values.append(value)
        return value
    try:
        encode(value)
    except NotJson as error:
        raise PydanticCustomError("json", "{reason}", {"reason": str(error)}) from None
    return value


def optional_json(value: Any, info: ValidationInfo) -> Any:
    """As for `JsonValue`, where `ABSENT` may stand for it."""
    return value if value is ABSENT else _json(value, info)


JsonValue = Annotated[Any, AfterValidator(_json)]


# ---------------------------------------------------------------- what is left out of the wire form


def absent() -> Absent:
    """The default of an optional JSON value."""
    return ABSENT


def is_absent(value: Any) -> bool:
    """Whether an optional JSON value was not given."""
    return value is ABSENT


def is_none(value: Any) -> bool:
    """Whether an optional field was not given."""
    return value is None
