"""For an application that keeps its tables in the same database, and migrates them itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.schema.versions import TABLE_NAMES

#: Alembic's hooks of these names; see `EnvironmentContext.configure`.
IncludeName = Callable[[str | None, str, Mapping[str, str | None]], bool]
IncludeObject = Callable[[Any, str | None, str, bool, Any], bool]


def autogenerate_options(
    *,
    schema: str | None = None,
    include_name: IncludeName | None = None,
    include_object: IncludeObject | None = None,
) -> dict[str, Any]:
    """Options for `context.configure` in the application's env.py, to be passed as `**options`.

    With them the application's autogenerate neither drops nor alters the broker's tables, nor
    reads them; it may have filters of its own, which see everything else. Its version table needs
    no care: the broker's has another name.

    `schema` is the PostgreSQL schema that holds the broker's tables, for an env.py that compares
    several of them (`include_schemas=True`); None for the one that a connection begins with.
    """

    def name(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
        if kind == "table" and parents.get("schema_name") == schema and _is_ours(name):
            return False
        return include_name is None or include_name(name, kind, parents)

    def object_(item: Any, name: str | None, kind: str, reflected: bool, other: Any) -> bool:
        if kind == "table" and getattr(item, "schema", None) == schema and _is_ours(name):
            return False
        return include_object is None or include_object(item, name, kind, reflected, other)

    return {"include_name": name, "include_object": object_}


def _is_ours(name: str | None) -> bool:
    return name is not None and name.lower() in TABLE_NAMES
