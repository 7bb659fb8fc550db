"""JSON Schema: of every message, and no stricter or laxer than the messages are."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from broker import json_schemas
from broker.messages import REQUESTS, RESULTS, Request, Result, validate
from tests.messages.examples import (
    COMMIT,
    COMPLETE,
    FIELDS_IN_ORDER,
    INTEGER_PATHS,
    OPTIONAL,
    FieldPath,
    changed,
    each_result,
    name_of,
)

SCHEMAS = json_schemas()
TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
CHECKED = {
    "$ref",
    "anyOf",
    "type",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "items",
    "properties",
    "required",
    "additionalProperties",
}
SAYING_NOTHING = {"$defs", "title", "description", "default"}


def accepts(schema: Any, value: Any, whole: dict[str, Any]) -> bool:
    """Whether a schema accepts a value, for as much of JSON Schema as ours are written in."""
    assert schema.keys() <= CHECKED | SAYING_NOTHING, schema
    if "$ref" in schema:
        return accepts(whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, whole)
    if "anyOf" in schema:
        return any(accepts(one, value, whole) for one in schema["anyOf"])
    if "type" in schema and not TYPES[schema["type"]](value):
        return False
    if isinstance(value, str):
        low, high = schema.get("minLength", 0), schema.get("maxLength", math.inf)
        return bool(low <= len(value) <= high and re.search(schema.get("pattern", ""), value))
    if type(value) is int:
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        return bool(low <= value <= high)
    if isinstance(value, list):
        return all(accepts(schema.get("items", {}), item, whole) for item in value)
    return not isinstance(value, dict) or accepts_object(schema, value, whole)


def accepts_object(schema: Any, value: dict[str, Any], whole: dict[str, Any]) -> bool:
    properties = schema.get("properties", {})
    known = schema.get("additionalProperties", True) or value.keys() <= properties.keys()
    return (
        known
        and set(schema.get("required", ())) <= value.keys()
        and all(
            accepts(properties[name], item, whole)
            for name, item in value.items()
            if name in properties
        )
    )


def test_there_is_a_schema_of_every_message_and_it_is_json() -> None:
    assert SCHEMAS.keys() == {kind.__name__ for kind in (*REQUESTS, *RESULTS)}
    assert json.loads(json.dumps(SCHEMAS)) == SCHEMAS


def test_a_schema_describes_the_wire_form_and_tells_what_it_is() -> None:
    for schema in SCHEMAS.values():
        assert schema["type"] == "object"
        assert schema["description"]
        assert not any("_" in name for name in schema["properties"])


@pytest.mark.parametrize("kind", COMPLETE)
def test_a_schema_accepts_a_request_complete_or_with_nothing_optional(kind: type[Request]) -> None:
    schema = SCHEMAS[kind.__name__]
    least = {name: value for name, value in COMPLETE[kind].items() if name not in OPTIONAL[kind]}
    for form in (COMPLETE[kind], least):
        wire = json.loads(json.dumps(validate(kind, form).to_json()))
        assert accepts(schema, wire, schema)


@pytest.mark.parametrize("path", FIELDS_IN_ORDER, ids=name_of)
def test_a_schema_of_commits_refuses_a_field_of_another_type(path: FieldPath) -> None:
    schema = SCHEMAS["CommitRequest"]
    accepts_anything = path[-1] in {"payload", "value", "inboxResult"}
    assert accepts(schema, changed(COMMIT, path, [False]), schema) == accepts_anything


@pytest.mark.parametrize(("kind", "path"), INTEGER_PATHS, ids=str)
def test_a_schema_knows_the_bounds_of_an_integer(kind: type[Request], path: FieldPath) -> None:
    schema = SCHEMAS[kind.__name__]
    for value in (-1, 2**53):
        assert not accepts(schema, changed(COMPLETE[kind], path, value), schema)


def test_a_schema_refuses_unknown_fields() -> None:
    schema = SCHEMAS["CommitRequest"]
    assert not accepts(schema, COMMIT | {"surprise": 1}, schema)
    assert not accepts(schema, changed(COMMIT, ("events", 0, "surprise"), 1), schema)


@each_result
def test_a_schema_accepts_a_result(result: Result, form: dict[str, Any]) -> None:
    schema = SCHEMAS[type(result).__name__]
    assert accepts(schema, form, schema)
    for name in schema["required"]:
        assert not accepts(schema, {key: form[key] for key in form if key != name}, schema)
