"""What a database is: empty, one of ours at some revision, one of the reference's, or a stranger's.

Databases that another program made have no version table; they are taken for what
`metadata.schema_version` says, and `PRAGMA user_version` on SQLite, once the tables were found to be
that. The other program may also have upgraded a file that has our version table: then the table lags
behind. On PostgreSQL "the database" is one schema of it, the first one of the search path.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from sqlalchemy import Connection, text

from broker.errors import SchemaError
from broker.schema import validate, versions
from broker.schema.backends import Catalogue, catalogue_of

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
    that is neither SQLite nor PostgreSQL.
    """
    catalogue = catalogue_of(connection)
    catalogue.require_supported(connection)
    objects = catalogue.objects(connection)
    version = _version(catalogue, connection, objects, shared=shared)
    stamped = _stamped(catalogue, connection, objects)
    if version > 0:
        validate.validate(connection, version)
        validate.validate_clock_floor(connection)
    _check_agreement(version, stamped)
    if stamped == versions.HEAD:
        validate.validate_head(connection)
    else:
        ours = catalogue.NAMES_OF[version] | {versions.VERSION_TABLE}
        _check_names_are_free(catalogue, objects, ours)
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

    It is made before Alembic would make it, for Alembic's own is not as we make it.
    """
    catalogue = catalogue_of(connection)
    if catalogue.objects(connection).get(versions.VERSION_TABLE) != "table":
        connection.exec_driver_sql(catalogue.VERSION_TABLE_DDL)
    _write_revision(connection, revision)


def stamp_for_reading(connection: Connection, revision: str | None) -> None:
    """Let Alembic read `revision` on this connection, and nothing be written to the database.

    A temporary version table comes before the real one wherever a name has no schema.
    """
    catalogue = catalogue_of(connection)
    connection.exec_driver_sql(catalogue.temporary(catalogue.VERSION_TABLE_DDL))
    _write_revision(connection, revision)


def _write_revision(connection: Connection, revision: str | None) -> None:
    connection.exec_driver_sql(f"DELETE FROM {versions.VERSION_TABLE}")
    if revision is not None:
        writing = text(f"INSERT INTO {versions.VERSION_TABLE} VALUES (:revision)")
        connection.execute(writing, {"revision": revision})


def _stamped(catalogue: Catalogue, connection: Connection, objects: dict[str, str]) -> str | None:
    table = versions.VERSION_TABLE
    if table not in objects:
        return None
    validate.validate_version_table(connection)
    found = catalogue.texts(connection, "version_num", table, table)
    if len(found) > 1:
        raise SchemaError(f"{table} has {len(found)} rows instead of one")
    if not found:
        return None
    if found[0] not in versions.VERSION_OF:
        raise SchemaError(
            f"{table} names {found[0]!r}, which this version of broker does not know: was the"
            " database made by a newer one?"
        )
    return found[0]


def _version(
    catalogue: Catalogue, connection: Connection, objects: dict[str, str], *, shared: bool
) -> int:
    user_version = catalogue.user_version(connection)
    if objects.get("metadata") != "table":
        return _without_metadata(catalogue, user_version, objects, shared=shared)

    try:
        version = _recorded_version(connection)
    except SchemaError:
        if shared and not user_version:  # no store was here yet: the table is the application's
            _check_names_are_free(catalogue, objects, set())
        raise
    if user_version is not None and version != user_version:
        raise SchemaError(
            f"metadata.schema_version is {version}, but PRAGMA user_version is {user_version}"
        )
    if version > versions.NEWEST_VERSION:
        raise SchemaError(
            f"schema version {version} is newer than {versions.NEWEST_VERSION}, the newest that this"
            " version of broker knows"
        )
    return version


def _without_metadata(
    catalogue: Catalogue, user_version: int | None, objects: dict[str, str], *, shared: bool
) -> int:
    has_content = any(map(catalogue.is_content, objects.values()))
    if (has_content or user_version) and not shared:
        what = "has tables" if has_content else f"has PRAGMA user_version {user_version}"
        raise SchemaError(f"the database {what}, but no table metadata of ours: {_SHARED_HINT}")
    _check_names_are_free(catalogue, objects, set())
    if user_version:
        raise SchemaError(
            f"PRAGMA user_version is {user_version}: the application uses it, and so does the"
            " broker's schema; they cannot share this database"
        )
    return 0


def _check_names_are_free(catalogue: Catalogue, objects: Iterable[str], ours: Set[str]) -> None:
    """Refuse names that a migration will need, and that are not there as our own."""
    used = sorted(name for name in objects if catalogue.is_needed(name) and name not in ours)
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
    version = validate.metadata_integer(connection, "schema_version")
    if version is None:
        raise SchemaError("metadata.schema_version is missing")
    return version


def _check_agreement(version: int, stamped: str | None) -> None:
    if stamped is not None and versions.VERSION_OF[stamped] > version:
        raise SchemaError(
            f"{versions.VERSION_TABLE} says {stamped}, which has schema version"
            f" {versions.VERSION_OF[stamped]}, but the database has version {version}"
        )
