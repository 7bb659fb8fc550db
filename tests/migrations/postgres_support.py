"""Databases on a server for the migration tests: the recorded scripts of SQLite, put into its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import Connection, NullPool, create_engine, make_url

from tests.migrations.support import SCRIPTS, payload
from tests.places import PostgresPlace

_TRIGGER = re.compile(
    r"CREATE TRIGGER (\w+) (.*?) ON (\w+) (?:WHEN (.*?) )?"
    r"BEGIN SELECT RAISE\(ABORT, '(.*?)'\); END;",
    re.DOTALL,
)


def in_words_of_postgresql(script: str) -> str:
    """A recorded script, with what any store there has besides: the cursor, and no NUL."""
    words = _TRIGGER.sub(_trigger, script)
    words = re.sub(r"PRAGMA user_version = \d+;?", "", words)
    words = words.replace(") STRICT", ")").replace("INTEGER", "BIGINT")
    words = re.sub(r"(_id TEXT|\bkey TEXT)\b", r'\1 COLLATE "C"', words)
    words = words.replace(
        "CREATE TABLE outbox",
        "CREATE UNIQUE INDEX events_rowid_uq ON events(rowid); CREATE TABLE outbox",
    )
    words = words.replace(
        "FOREIGN KEY (message_id) REFERENCES inbox(message_id) DEFERRABLE INITIALLY DEFERRED,"
        " FOREIGN KEY (stream_id)",
        "rowid BIGINT GENERATED ALWAYS AS IDENTITY (MAXVALUE 9007199254740991),"
        " FOREIGN KEY (message_id) REFERENCES inbox(message_id) DEFERRABLE INITIALLY DEFERRED,"
        " FOREIGN KEY (stream_id)",
    )
    # A plain client of SQLite has foreign keys off, and some of the scripts make use of it.
    return f"SET session_replication_role = replica; {words}"


def _trigger(match: re.Match[str]) -> str:
    name, event, table, condition, message = match.groups()
    when = (
        ""
        if condition is None
        else f"WHEN ({condition.replace('IS NOT NEW', 'IS DISTINCT FROM NEW')})"
    )
    return (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION '{message}'; END $$;"
        f" CREATE TRIGGER {name} {event} ON {table} FOR EACH ROW {when} EXECUTE FUNCTION {name}();"
    )


@contextmanager
def connected(place: PostgresPlace, schema: str | None = None) -> Iterator[psycopg.Connection[Any]]:
    """A plain client, in one transaction that is committed."""
    libpq = make_url(place.url).set(drivername="postgresql")
    with psycopg.connect(libpq.render_as_string(hide_password=False)) as connection:
        if schema is not None:
            connection.execute(
                psycopg.sql.SQL("SET LOCAL search_path TO {}").format(
                    psycopg.sql.Identifier(schema)
                )
            )
        yield connection


def run(place: PostgresPlace, script: str) -> PostgresPlace:
    """Run statements, in one transaction."""
    with connected(place) as connection:
        connection.execute(script)
    return place


def found(place: PostgresPlace, query: str, schema: str | None = None) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    with connected(place, schema) as connection:
        return connection.execute(query).fetchall()


def dump(place: PostgresPlace, tables: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The rows of these tables, in the form of the vectors: without the cursor."""
    with connected(place) as connection:
        connection.row_factory = dict_row
        return {
            table: [
                {name: value for name, value in row.items() if name != "rowid"}
                for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1")
            ]
            for table in tables
        }


@contextmanager
def looking(place: PostgresPlace) -> Iterator[Connection]:
    """A connection of an application."""
    engine = create_engine(place.url, poolclass=NullPool)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def recorded(place: PostgresPlace, name: str) -> PostgresPlace:
    """A database as a recorded script makes it."""
    return run(place, in_words_of_postgresql(SCRIPTS[name]))


def add_events(place: PostgresPlace, stream: str, payloads: list[str]) -> None:
    """Append events to a stream of a version 1 or 2 database, as its own program would."""
    with connected(place) as connection:
        connection.execute("INSERT INTO streams VALUES (%s, %s, 1, 1)", (stream, len(payloads)))
        message = f"m-{stream}"
        connection.execute("INSERT INTO inbox VALUES (%s, 'h', %s, 0, '{}', 1)", (message, stream))
        rows = [
            (f"{stream}-{place}", message, stream, place, text)
            for place, text in enumerate(payloads, 1)
        ]
        connection.cursor().executemany(
            "INSERT INTO events VALUES (%s, %s, %s, %s, 'domain.event', %s, 1, 1)", rows
        )


def version_1(place: PostgresPlace) -> PostgresPlace:
    """A version 1 database with something in every table."""
    recorded(place, "v1-empty")
    add_events(place, "alpha", [payload("alpha", n, "w1") for n in range(1, 4)])
    add_events(place, "beta", ['{"kind": "note"}', payload("beta", 2, "w2")])
    add_events(place, "gamma", ['"nobody\'s"'])
    return run(
        place,
        """
        INSERT INTO actor_leases VALUES ('alpha', 'host', 3, 'n1', 1, 2, 900);
        INSERT INTO actor_leases VALUES ('b\u00e9ta', 'host', 7, 'n2', 1, 2, 3);
        INSERT INTO outbox VALUES ('o1', 'm-alpha', 'alpha-1', 'd', '{}', 5, 5, NULL, 0);
        INSERT INTO outbox VALUES ('o2', 'm-beta', NULL, 'd', '{}', 5, 5, 9, 2);
        INSERT INTO projections VALUES ('p1', 'alpha', 3, '{"n": 1}', 6);
        """,
    )
