"""How a migration reaches a server, as `broker.schema.backends.Transactions` wants it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, NullPool, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from broker.errors import ConfigurationError, DatabaseUnavailable, SchemaError
from broker.postgresql.engine import (
    make_engine,
    set_up,
    sqlstate,
    translate,
    translate_commit,
)

_LONGEST_NAME = 63  # bytes; the server would cut off the rest

_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
_OF_THE_ROLE = "$user"  # in a search path, quoted or not, the schema that is named like the role

_DEPENDENT_OBJECTS_STILL_EXIST = "2BP01"

_SCHEMA_EXISTS = text("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = :schema)")


def exists(url: URL, schema: str | None) -> bool:
    """Whether the schema is there; without one the database's own decides, which is not asked."""
    if schema is None:
        return True
    with _begun(url, writes=False, busy_timeout_ms=0) as connection:
        return _schema_exists(connection, schema)


@contextmanager
def transaction(
    url: URL, schema: str | None, *, writes: bool, makes: bool, busy_timeout_ms: int
) -> Iterator[Connection]:
    """With `writes` no other migration of the schema runs beside it; with `makes` the schema is made.

    Whatever has no schema in its name is in `schema`, or in the one where the connection would make
    a table. Raises DatabaseUnavailable for a database or schema that is not there.
    """
    with _begun(url, writes=writes, busy_timeout_ms=busy_timeout_ms) as connection:
        name = _current_schema(connection) if schema is None else schema
        path = quoted(name)
        if writes:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _key(name)})
        if schema is not None and not _schema_exists(connection, schema):
            if not makes:
                raise DatabaseUnavailable(f"there is no schema {schema!r} in this database")
            connection.exec_driver_sql(f"CREATE SCHEMA {path}")
        connection.exec_driver_sql(f"SET LOCAL search_path TO {path}")
        yield connection


def quoted(schema: str) -> str:
    """A name as SQL text; ConfigurationError for what cannot be the name of a schema."""
    size = len(schema.encode(errors="surrogatepass"))
    is_reserved = schema.startswith("pg_") or schema == _OF_THE_ROLE
    if not 0 < size <= _LONGEST_NAME or _NO_CHARACTER.search(schema) or is_reserved:
        raise ConfigurationError(
            f"a schema's name has 1 to {_LONGEST_NAME} bytes, no NUL, does not begin with pg_ and is"
            f" not {_OF_THE_ROLE}; not {schema[:80]!r}"
        )
    return '"' + schema.replace('"', '""').replace("%", "%%") + '"'


@contextmanager
def _begun(url: URL, *, writes: bool, busy_timeout_ms: int) -> Iterator[Connection]:
    """A connection of its own in a transaction, committed at the end.

    One that only looks sees one state. Nothing is kept in the session, which may be a pooler's.
    """
    engine = make_engine(
        url, busy_timeout_ms=busy_timeout_ms, transaction_pooler=True, poolclass=NullPool
    )
    level = "READ COMMITTED" if writes else "REPEATABLE READ"
    try:
        with engine.connect().execution_options(isolation_level=level) as connection:
            begun = connection.begin()
            connection.exec_driver_sql(set_up(busy_timeout_ms))
            if writes:  # a migration takes as long as it takes
                connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            yield connection
            if begun.is_active:  # else the block has rolled back
                _commit(begun.commit)
    except SQLAlchemyError as error:
        raise _translate(error, url) from error
    finally:
        engine.dispose()


def _current_schema(connection: Connection) -> str:
    name: str | None = connection.exec_driver_sql("SELECT current_schema()").scalar()
    if name is None:
        raise ConfigurationError(
            "the search path of this connection names no schema that exists: say which schema is"
            " the store's"
        )
    return name


def _schema_exists(connection: Connection, schema: str) -> bool:
    quoted(schema)
    return bool(connection.execute(_SCHEMA_EXISTS, {"schema": schema}).scalar_one())


def _key(schema: str) -> int:
    """The advisory lock of a schema's migrations; such locks are a database's own."""
    digest = hashlib.sha256(f"broker migration {schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _translate(error: SQLAlchemyError, url: URL) -> Exception:
    said = " ".join(str(error.orig).split()) if isinstance(error, DBAPIError) else ""
    if sqlstate(getattr(error, "orig", error)) == _DEPENDENT_OBJECTS_STILL_EXIST:
        return SchemaError(
            f"objects of others depend on what the migration removes ({said}); nothing was changed"
        )
    translated = translate(error)
    # What the server says to someone who connects comes without a code. It is for a hint only.
    is_missing = f'database "{url.database}" does not exist' in said
    if isinstance(translated, DatabaseUnavailable) and is_missing:
        return DatabaseUnavailable(f"{translated.message}: create it first (createdb)")
    return translated


def _commit(commit: Callable[[], None]) -> None:
    try:
        commit()
    except SQLAlchemyError as error:
        raise translate_commit(error) from error
