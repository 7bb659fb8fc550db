"""Finding the row whose text is not UTF-8, for a driver that only says that there is one."""

from __future__ import annotations

from sqlalchemy import LargeBinary, Text, cast, select

from broker.errors import CorruptRow, DatabaseError
from broker.models import Base
from broker.statements import Channel, Statement


def find_undecodable(channel: Channel) -> CorruptRow | DatabaseError:
    """The error that names the first such row of the store's tables.

    Reads all of them, since nothing less can tell; it is called only when a read has failed.
    """
    for table in Base.metadata.sorted_tables:
        (key,) = table.primary_key.columns
        for column in table.columns:
            if not isinstance(column.type, Text):
                continue
            statement = Statement(select(cast(key, LargeBinary), cast(column, LargeBinary)))
            for row_key, value in channel.each(statement):
                if value is not None and not _is_utf8(value):
                    row = row_key.decode(errors="backslashreplace")
                    return CorruptRow(
                        f"{table.name}.{column.name} of {row!r} is not UTF-8",
                        table=table.name,
                        row=row,
                        column=column.name,
                    )
    return DatabaseError("a text in a table that is not the store's own is not UTF-8")


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
