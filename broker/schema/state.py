"""What a database is: empty, one of ours at some revision, one of the reference's, or a stranger's.

Databases that another program made have no version table; they are taken for what `PRAGMA
user_version` and `metadata.schema_version` say, once the tables were found to be that. The other
program may also have upgraded a file that has our version table: then the table lags behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from sqlalchemy import Connection

from broker.errors import SchemaError
from broker.schema import validate, versions
from broker.sqlite.database_file import require_sqlite

_SHARED_HINT = (
    "if an application has its tables here, say that the database is shared"
    " (shared=True, --shared, -x shared=yes)"
)


@dataclass(frozen=True, slots=True)
class State:
    """A database that was looked at and found to be usable.

    `version` is 0 to 3, 0 for a database without our tables; `stamped` is what the version table
    holds, None where there is no such table.
    """

    version: int
    stamped: str | None

    @property
    def revision(self) -> str | None:
        """Where the database stands, whatever the version table says; None for nowhere."""
        if self.stamped is not None and versions.VERSION_OF[self.stamped] == self.version:
            return self.stamped
        return versions.REVISION_OF[self.version]

    @property
    def at_head(self) -> bool:
        """Whether there is nothing to migrate, and nothing to stamp."""
        return self.stamped == self.revision == versions.HEAD


def state(connection: Connection, *, shared: bool = False) -> State:
    """Look at a database, and refuse it if it is not one that can be used or migrated.

    Reads only, in the caller's transaction, which should span the call so that it sees one state;
    a few milliseconds whatever the database holds. All checks of an opening are made here: the
    versions, the tables and named objects of the version found, the floor of the clock.

    `shared` permits an application's tables in a database that does not have ours yet.

    Raises SchemaError for a database that must be left alone, ConfigurationError for a backend
    that is not SQLite.
    """
    require_sqlite(connection.dialect.name)
    _require_utf8(connection)
    objects = _objects(connection)
    version = _version(connection, objects, shared=shared)
    stamped = _stamped(connection, objects)
    if version > 0:
        validate.validate(connection, version)
        validate.validate_clock_floor(connection)
    _check_agreement(version, stamped)
    if stamped == versions.HEAD:
        validate.validate_head(connection)
    else:
        _check_names_are_free(objects, versions.NAMES_OF[version] | {versions.VERSION_TABLE})
    return State(version, stamped)


def verify(connection: Connection) -> None:
    """Raise SchemaError unless the database is at the newest revision and valid.

    As `state`; for opening a database that must not be migrated.
    """
    found = state(connection)
    if not found.at_head:
        raise SchemaError(
            f"the database is at revision {found.revision or 'none'}, not {versions.HEAD}:"
            " upgrade it first (broker upgrade)",
            revision=found.revision,
            expected=versions.HEAD,
        )


def stamp(connection: Connection, revision: str | None) -> None:
    """Write the version table, made if it is missing, in the caller's transaction; None empties it.

    It is made before Alembic would make it, for Alembic's own is not STRICT.
    """
    exists = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = ?"
    if connection.exec_driver_sql(exists, (versions.VERSION_TABLE,)).fetchone() is None:
        connection.exec_driver_sql(versions.VERSION_TABLE_DDL)
    _write_revision(connection, revision)


def stamp_for_reading(connection: Connection, revision: str | None) -> None:
    """Let Alembic read `revision` on this connection, and nothing be written to the database.

    A temporary version table comes before the one in the file wherever a name has no schema.
    """
    ddl = versions.VERSION_TABLE_DDL.replace("CREATE TABLE", "CREATE TEMP TABLE")
    connection.exec_driver_sql(ddl)
    _write_revision(connection, revision)


def _write_revision(connection: Connection, revision: str | None) -> None:
    connection.exec_driver_sql(f"DELETE FROM {versions.VERSION_TABLE}")
    if revision is not None:
        connection.exec_driver_sql(f"INSERT INTO {versions.VERSION_TABLE} VALUES (?)", (revision,))


def _require_utf8(connection: Connection) -> None:
    """Refuse text in UTF-16, whose bytes have another order, and another length in bytes."""
    encoding = connection.exec_driver_sql("PRAGMA encoding").scalar_one()
    if encoding != "UTF-8":
        raise SchemaError(
            f"the text encoding of this database is {encoding}, and cannot be changed; the broker"
            " needs UTF-8",
            encoding=encoding,
        )


def _objects(connection: Connection) -> dict[str, str]:
    """Name to type of everything that is in the database, SQLite's own left out."""
    rows = connection.exec_driver_sql("SELECT name, type FROM main.sqlite_schema")
    return {name: kind for name, kind in rows if not name.startswith("sqlite_")}


def _stamped(connection: Connection, objects: dict[str, str]) -> str | None:
    if versions.VERSION_TABLE not in objects:
        return None
    validate.validate_version_table(connection)
    rows = connection.exec_driver_sql(
        f"SELECT CAST(version_num AS BLOB) FROM {versions.VERSION_TABLE}"
    ).fetchall()
    if len(rows) > 1:
        raise SchemaError(f"{versions.VERSION_TABLE} has {len(rows)} rows instead of one")
    if not rows:
        return None
    stamped = validate.utf8(rows[0][0], versions.VERSION_TABLE)
    if stamped not in versions.VERSION_OF:
        raise SchemaError(
            f"{versions.VERSION_TABLE} names {stamped!r}, which this version of broker does not"
            " know: was the database made by a newer one?"
        )
    return stamped


def _version(connection: Connection, objects: dict[str, str], *, shared: bool) -> int:
    user_version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
    if objects.get("metadata") != "table":
        return _without_metadata(user_version, objects, shared=shared)

    try:
        version = _recorded_version(connection)
    except SchemaError:
        if shared and not user_version:  # no store was here yet: the table is the application's
            _check_names_are_free(objects, set())
        raise
    if version != user_version:
        raise SchemaError(
            f"metadata.schema_version is {version}, but PRAGMA user_version is {user_version}"
        )
    if version > versions.NEWEST_VERSION:
        raise SchemaError(
            f"schema version {version} is newer than {versions.NEWEST_VERSION}, the newest that this"
            " version of broker knows"
        )
    return version


def _without_metadata(user_version: int, objects: dict[str, str], *, shared: bool) -> int:
    if (objects or user_version) and not shared:
        what = "has tables" if objects else f"has PRAGMA user_version {user_version}"
        raise SchemaError(f"the database {what}, but no table metadata of ours: {_SHARED_HINT}")
    _check_names_are_free(objects, set())
    if user_version:
        raise SchemaError(
            f"PRAGMA user_version is {user_version}: the application uses it, and so does the"
            " broker's schema; they cannot share this database"
        )
    return 0


def _check_names_are_free(objects: Iterable[str], ours: Set[str]) -> None:
    """Refuse names that a migration will need, and that are not there as our own."""
    used = sorted(name for name in objects if name.lower() in versions.NAMES and name not in ours)
    if used:
        raise SchemaError(
            f"already in use in this database: {', '.join(used)}; the broker needs these names",
            names=used,
        )


def _recorded_version(connection: Connection) -> int:
    try:
        validate.validate_metadata(connection)
    except SchemaError as error:
        raise SchemaError(f"{error.message}: is it another program's?", **error.details) from None
    statement = "SELECT CAST(value AS BLOB) FROM metadata WHERE key = 'schema_version'"
    rows = connection.exec_driver_sql(statement).fetchall()
    if len(rows) != 1:
        raise SchemaError("metadata.schema_version is missing")
    name = "metadata.schema_version"
    return validate.canonical_integer(validate.utf8(rows[0][0], name), name)


def _check_agreement(version: int, stamped: str | None) -> None:
    if stamped is not None and versions.VERSION_OF[stamped] > version:
        raise SchemaError(
            f"{versions.VERSION_TABLE} says {stamped}, which has schema version"
            f" {versions.VERSION_OF[stamped]}, but the database has version {version}"
        )
