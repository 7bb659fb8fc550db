"""A channel on a connection of the test's own, in a database with a table for trying."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import make_url, text

from broker.postgresql.channel import PipelineChannel
from broker.statements import Statement
from tests.places import PostgresPlace

TABLE = "CREATE TABLE tried (id text PRIMARY KEY, number bigint)"
ADD = Statement(text("INSERT INTO tried VALUES (:id, :number)"), "id", "number")
ALL = Statement(text("SELECT id, number FROM tried ORDER BY id"))
COUNT = Statement(text("SELECT count(*) FROM tried"))
ECHO = Statement(text("SELECT CAST(:given AS text)"), "given")
COPY = Statement(text("COPY tried (id, number) FROM STDIN"))
REMOVE = Statement(text("DELETE FROM tried WHERE number >= :least"), "least")


@contextmanager
def connected(place: PostgresPlace, **settings: Any) -> Iterator[psycopg.Connection[Any]]:
    """A connection like those of a store."""
    url = make_url(place.url).set(drivername="postgresql")
    conninfo = url.render_as_string(hide_password=False)
    connection = psycopg.connect(conninfo, autocommit=True, client_encoding="utf8", **settings)
    with connection:
        connection.execute(TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
        connection.autocommit = False
        yield connection


@contextmanager
def channel_to(
    place: PostgresPlace, prepared: dict[str, bytes] | None = None
) -> Iterator[PipelineChannel]:
    """A channel without a transaction; `prepared` as of PipelineChannel."""
    with connected(place) as connection:
        channel = PipelineChannel(connection, None, prepared)
        yield channel
        if not connection.closed:
            channel.control("ROLLBACK")
            channel.settle()
            channel.close()
