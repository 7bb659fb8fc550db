"""Moving a store from one database to another, of either backend: all of it or nothing."""

from __future__ import annotations

from sqlalchemy import URL

from broker.database_url import database_url, is_postgresql
from broker.errors import ConfigurationError
from broker.moving.copying import MoveReport, Progress, RowsReport, copy_and_verify
from broker.moving.sides import Place, Side
from broker.moving.sqlite import SqlitePlace
from broker.options import Options
from broker.sqlite.database_file import file_exists, file_of

__all__ = ["MoveReport", "Progress", "RowsReport", "move"]


def move(
    source: str | URL,
    target: str | URL,
    *,
    schema: str | None = None,
    progress: Progress | None = None,
) -> MoveReport:
    """Copy a store into an empty database, compare the two, and say what was found to be the same.

    The source is read in one snapshot and left as it is, every byte of a file. It has to be at the
    newest revision. Its writers may go on, but what they commit after the move has begun is not
    moved: stop them first. The target is made or migrated if need be; it may have no row of a store.
    Everything is written in one transaction of the target, and committed after it was compared with
    the source: what fails or is killed leaves an empty store, or none. Memory does not grow with the
    store. Cursors of the journal keep their numbers.

    `schema` is the schema (namespace) of the store in PostgreSQL, on both sides if both are
    PostgreSQL's. `progress("copying" or "verifying", done, total)` is called as rows go by.

    Raises SchemaError for a source that is not at head, a target that is not empty, or a row that
    the target cannot hold; CorruptRow for text that is not UTF-8; ConfigurationError for URLs;
    DatabaseBusy, DatabaseUnavailable, DatabaseError; OutcomeUnknown if COMMIT failed in a way that
    leaves open whether the target is empty or complete.
    """
    have, to = _place(source, schema), _place(target, schema)
    _require_two(have, to)

    def copy(side: Side) -> MoveReport:
        to.make_ready()
        return to.fill(lambda empty: copy_and_verify(side, empty, progress))

    return have.read(copy)


def _place(given: str | URL, schema: str | None) -> Place:
    url = database_url(given)
    Options(schema=schema)  # refuses a name that is none
    if not is_postgresql(url):
        return SqlitePlace(url)
    from broker.moving.postgresql import PostgresqlPlace  # not needed for SQLite's

    return PostgresqlPlace(url, schema)


def _require_two(have: Place, to: Place) -> None:
    if isinstance(have, SqlitePlace) and isinstance(to, SqlitePlace):
        one, other = have.url, to.url
        if file_exists(one) and file_exists(other) and file_of(one).samefile(file_of(other)):
            raise ConfigurationError("source and target are the same file")
