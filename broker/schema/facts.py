"""What a schema fact is, the same for either backend."""

from __future__ import annotations

from typing import NamedTuple


class Thing(NamedTuple):
    """What a fact is about: `table` or `table.column`, and the kind and name of the thing."""

    subject: str
    kind: str


Aspects = dict[str, str]
Facts = dict[Thing, Aspects]

TABLE = "table"
ORDER = "order of columns"


def yes(flag: object) -> str:
    """A flag, for people."""
    return "yes" if flag else "no"
