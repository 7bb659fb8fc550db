"""Finds in source code whatever is put together into SQL, or handed to a database as SQL."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent

#: Calls whose first argument is SQL.
SINKS = {
    "DDL",
    "control",
    "exec_driver_sql",
    "execute",
    "executemany",
    "executescript",
    "literal_column",
    "run",
    "text",
}

_BEGINS_LIKE_SQL = re.compile(
    r"\s*\(?(ALTER|ANALYZE|ATTACH|BEGIN|CREATE|COPY|DELETE|DROP|EXPLAIN|INSERT|LOCK|PRAGMA|RELEASE"
    r"|ROLLBACK|SAVEPOINT|SELECT|SET|UPDATE|VACUUM|WITH)\b"
)
_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")


class Found(NamedTuple):
    """An expression that ends up in SQL: where, and its source."""

    module: str
    expression: str
    line: int


def modules() -> list[Path]:
    """All of the store's code."""
    return [*sorted((ROOT / "broker").rglob("*.py")), *sorted((ROOT / "alembic").rglob("*.py"))]


def interpolated(module: str, tree: ast.AST) -> Iterator[Found]:
    """What is put into a text that is SQL, unless it is an integer or a constant."""
    messages = _in_errors(tree)
    for node in ast.walk(tree):
        if node in messages:
            continue
        if isinstance(node, ast.JoinedStr) and _is_sql(node.values):
            parts: list[ast.expr] = [
                each.value
                for each in node.values
                if isinstance(each, ast.FormattedValue) and not _is_number(each)
            ]
        elif isinstance(node, ast.BinOp) and _is_sql([node.left]):
            parts = [node.right]
        elif _is_format(node):
            assert isinstance(node, ast.Call)
            parts = [*node.args, *[each.value for each in node.keywords]]
        else:
            continue
        for part in parts:
            if not is_constant(part):
                yield Found(module, ast.unparse(part), part.lineno)


def handed_over(module: str, tree: ast.AST) -> Iterator[Found]:
    """What is handed to a database as SQL, unless it is a literal or a constant."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _name_of(node.func) not in SINKS or not node.args:
            continue
        sql = node.args[0]
        if not is_constant(sql) and not isinstance(sql, ast.JoinedStr):
            yield Found(module, ast.unparse(sql), sql.lineno)


def is_constant(node: ast.expr) -> bool:
    """A literal, a name that is a constant's, or literals and constants put together."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Name | ast.Attribute):
        return _CONSTANT.fullmatch(_name_of(node)) is not None
    return isinstance(node, ast.BinOp) and is_constant(node.left) and is_constant(node.right)


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_sql(parts: list[ast.expr]) -> bool:
    first = parts[0] if parts else None
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return False
    return _BEGINS_LIKE_SQL.match(first.value) is not None


def _is_number(part: ast.FormattedValue) -> bool:
    return part.format_spec is not None and ast.unparse(part.format_spec) in {"f'd'", "f'''d'''"}


def _is_format(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"format", "format_map"}
    )


def _in_errors(tree: ast.AST) -> set[ast.AST]:
    """All that is in calls whose name is an error's: there texts are for people."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        or (isinstance(node, ast.Call) and _name_of(node.func).endswith(("Error", "Busy")))
        for inner in ast.walk(node)
    }
