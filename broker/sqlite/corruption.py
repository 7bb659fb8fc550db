"""What to raise for a failed operation, down to the row whose text is not UTF-8.

The driver only says that there is such a text; which one it is must be found out.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy import LargeBinary, Text, cast, select
from sqlalchemy.exc import SQLAlchemyError

from broker.errors import CorruptRow, DatabaseError
from broker.models import Base
from broker.sqlite.engine import translate
from broker.statements import Channel, Statement, Undecodable


def as_ours(error: Exception, channel: Channel | None) -> Exception:
    """The error to raise, `from error`, for what an operation on `channel` raised.

    As `translate`; for text that is not UTF-8 it is the CorruptRow that names the row, which is
    searched in all of the store's tables, since nothing less can tell.
    """
    if channel is None or not isinstance(error, Undecodable):
        return translate(error)
    try:
        return _find_undecodable(channel)
    except (sqlite3.Error, SQLAlchemyError) as another:
        return translate(another)


def _find_undecodable(channel: Channel) -> CorruptRow | DatabaseError:
    for table in Base.metadata.sorted_tables:
        (key,) = table.primary_key.columns
        for column in table.columns:
            if not isinstance(column.type, Text):
                continue
            statement = Statement(select(cast(key, LargeBinary), cast(column, LargeBinary)))
            with channel.each(statement) as rows:
                bad = next((key for key, value in rows if not _is_utf8(value or b"")), None)
            if bad is not None:
                row = bad.decode(errors="backslashreplace")
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
