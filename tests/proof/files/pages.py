"""What each byte of an SQLite file is for, by its file format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

_KINDS = {2: "index interior", 5: "table interior", 10: "index leaf", 13: "table leaf"}


@dataclass
class FileMap:
    """A file's page kinds by number (1 is the first), and which bytes hold nothing but values."""

    page_size: int
    kinds: dict[int, str] = field(default_factory=dict)
    values: list[range] = field(default_factory=list)  # of rows: what is in their columns
    keys: list[range] = field(default_factory=list)  # of indexes: copies of values

    def use_of(self, offset: int) -> str:
        """What a byte is for: `value`, `key`, or structure of a kind of page."""
        if any(offset in each for each in self.values):
            return "value"
        if any(offset in each for each in self.keys):
            return "key"
        if offset < 100:
            return "file header"
        return self.kinds.get(offset // self.page_size + 1, "unused page")


def map_of(data: bytes) -> FileMap:
    """The map of a file that is whole."""
    size = int.from_bytes(data[16:18], "big")
    found = FileMap(65_536 if size == 1 else size)
    overflows: list[tuple[int, int, list[range]]] = []
    for number in range(1, len(data) // found.page_size + 1):
        start = (number - 1) * found.page_size
        at = start + (100 if number == 1 else 0)
        kind = _KINDS.get(data[at])
        if kind is not None and _looks_right(data, at, kind, found.page_size):
            found.kinds[number] = kind
            overflows += _read_cells(data, start, at, kind, found)
    for page, length, into in overflows:
        _follow(data, page, length, into, found)
    return found


def _looks_right(data: bytes, at: int, kind: str, page_size: int) -> bool:
    cells = int.from_bytes(data[at + 3 : at + 5], "big")
    return data[at + 7] <= 60 and cells * 2 < page_size and bool(kind)


def _read_cells(
    data: bytes, start: int, at: int, kind: str, found: FileMap
) -> Iterator[tuple[int, int, list[range]]]:
    header = 12 if kind.endswith("interior") else 8
    usable = found.page_size
    for number in range(int.from_bytes(data[at + 3 : at + 5], "big")):
        pointer = at + header + 2 * number
        cell = start + int.from_bytes(data[pointer : pointer + 2], "big")
        if kind == "table interior":
            continue
        if kind == "index interior":
            cell += 4
        length, cell = _varint(data, cell)
        is_table = kind == "table leaf"
        if is_table:
            _, cell = _varint(data, cell)
        local = _local(length, usable, is_table=is_table)
        record, _ = _varint(data, cell)
        into = found.values if is_table else found.keys
        into.append(range(cell + record, cell + local))
        if local < length:
            page = int.from_bytes(data[cell + local : cell + local + 4], "big")
            yield page, length - local, into


def _local(length: int, usable: int, *, is_table: bool) -> int:
    most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
    if length <= most:
        return length
    least = (usable - 12) * 32 // 255 - 23
    kept = least + (length - least) % (usable - 4)
    return kept if kept <= most else least


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(9):
        byte = data[at + place]
        if place == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    raise AssertionError


def _follow(data: bytes, page: int, length: int, into: list[range], found: FileMap) -> None:
    while page and length > 0:
        start = (page - 1) * found.page_size
        taken = min(length, found.page_size - 4)
        found.kinds[page] = "overflow"
        into.append(range(start + 4, start + 4 + taken))
        length -= taken
        page = int.from_bytes(data[start : start + 4], "big")
