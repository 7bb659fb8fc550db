"""Whether what was read is what its columns hold.

SQLite keeps text apart from numbers, and numbers in their range, as long as nobody has written to the
file behind its back. What a damaged file, or one that was made to deceive, has in a column is found
out here, where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Column, Text, inspect

from broker.clock import MAX_SAFE_INTEGER
from broker.errors import CorruptRow
from broker.statements import Row

_FROM_ONE = {"epoch", "producer_epoch", "events.revision", "rowid"}


class _Kind(NamedTuple):
    """What a column holds: text, long perhaps, or integers from `least` on."""

    name: str
    is_text: bool
    is_long: bool
    is_nullable: bool
    least: int

    def fits_one(self, value: Any) -> bool:
        """Whether a value belongs into the column."""
        if type(value) is int:
            return not self.is_text and self.least <= value <= MAX_SAFE_INTEGER
        return self.is_text if type(value) is str else value is None and self.is_nullable

    def fits(self, values: Sequence[Any]) -> bool:
        """Whether all of them belong into the column; in the ways that take the least time."""
        if self.is_nullable:
            if values.count(None) == len(values):
                return True
            values = [value for value in values if value is not None]
        try:
            if self.is_text:
                if self.is_long:
                    return set(map(type, values)) == {str}
                "".join(values)  # refuses what is no text
                return True
            is_whole = type(sum(values)) is int
            return is_whole and self.least <= min(values) and max(values) <= MAX_SAFE_INTEGER
        except TypeError:
            return False


class Shape:
    """The kinds of some columns of a table, in their order."""

    def __init__(self, *attributes: Any) -> None:
        columns = [_column(each) for each in attributes]
        self._table: str = columns[0].table.name
        self._kinds = [_kind_of(column) for column in columns]

    def require(self, rows: Sequence[Row], keys: Sequence[Any] | None = None) -> None:
        """Raise CorruptRow for the first column, and in it the first row, with another value.

        A row may be longer than the shape. `keys` name the rows; without them the first column does.
        """
        if not rows or (len(rows) == 1 and all(map(_Kind.fits_one, self._kinds, rows[0]))):
            return
        for kind, values in zip(self._kinds, zip(*rows, strict=False), strict=False):
            if not kind.fits(values):
                at = next(at for at, value in enumerate(values) if not kind.fits_one(value))
                raise self._corrupt(kind.name, rows[at][0] if keys is None else keys[at])

    def _corrupt(self, column: str, key: Any) -> CorruptRow:
        row = key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)
        return CorruptRow(
            f"{self._table}.{column} of {row!r} holds what does not belong there",
            table=self._table,
            row=row,
            column=column,
        )


def _column(attribute: Any) -> Column[Any]:
    column: Column[Any] = inspect(attribute).property.columns[0]
    return column


def _kind_of(column: Column[Any]) -> _Kind:
    from_one = {column.name, f"{column.table.name}.{column.name}"} & _FROM_ONE
    is_text = isinstance(column.type, Text)
    is_long = column.name.endswith("_json")
    return _Kind(column.name, is_text, is_long, bool(column.nullable), 1 if from_one else 0)
