"""PostgreSQL's catalogue, as `broker.schema.backends.Catalogue` wants it read.

All of it is about one schema, where tables without the name of one are made: `current_schema()`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from broker.errors import SchemaError
from broker.guards import GUARDS
from broker.postgresql.engine import DEADLOCK_DETECTED, sqlstate
from broker.postgresql.tables import PAYLOAD_TEXT
from broker.schema import versions
from broker.schema.versions import Column, IndexFacts

VERSION_TABLE_DDL: str = (
    f"CREATE TABLE {versions.VERSION_TABLE} (version_num TEXT NOT NULL PRIMARY KEY)"
)
UNUSABLE: str = "is missing, or not an ordinary, logged table"

_LOCKING_ATTEMPTS = 10

_CURSOR = Column("rowid", "BIGINT", not_null=True, key=False)


def _columns(table: str, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    kinds = {"INTEGER": "BIGINT", "TEXT": "TEXT"}
    own = tuple(column._replace(type=kinds[column.type]) for column in columns)
    return (*own, _CURSOR) if table == "events" else own


TABLES: Mapping[int, Mapping[str, tuple[Column, ...]]] = {
    version: {table: _columns(table, columns) for table, columns in tables.items()}
    for version, tables in versions.TABLES.items()
}

_TRIGGERS_OF_HEAD = (
    "events_no_delete",
    "events_no_truncate",
    "events_no_update",
    "streams_identity_immutable",
    "streams_no_delete",
    "streams_no_truncate",
)
_PAYLOAD_TEXT = "broker_payload_text(text, text[])"
_FUNCTIONS_OF_HEAD = (_PAYLOAD_TEXT, *(f"{name}()" for name in _TRIGGERS_OF_HEAD))

HEAD_OBJECTS: frozenset[str] = frozenset(
    {*versions.INDEXES_OF_HEAD, *_TRIGGERS_OF_HEAD, _PAYLOAD_TEXT}
)

_CURSORS_OWN = frozenset({"events_rowid_uq", "events_rowid_seq"})

NAMES_OF: Mapping[int, frozenset[str]] = {
    0: versions.NAMES_OF[0],
    1: versions.NAMES_OF[1] | _CURSORS_OWN,
    2: versions.NAMES_OF[2] | _CURSORS_OWN,
    3: versions.NAMES_OF[3] | _CURSORS_OWN | {f"{versions.OWNERSHIP_TRIGGER}()"},
}
_NAMES = NAMES_OF[3] | {
    *versions.INDEXES_OF_HEAD,
    *_FUNCTIONS_OF_HEAD,
    versions.VERSION_TABLE,
}

_HERE = "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"

# A table has a type of its own name, and so has a type that is none a name that no table can have.
_OBJECTS = f"""
SELECT c.relname, CASE
  WHEN EXISTS (SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass
    AND d.objid = c.oid AND d.deptype = 'e') THEN 'of an extension'
  WHEN c.relkind = 'r' THEN 'table' ELSE 'relation' END AS kind
FROM pg_class AS c WHERE c.relnamespace = {_HERE}
UNION ALL
SELECT t.typname, 'type' FROM pg_type AS t
WHERE t.typnamespace = {_HERE} AND t.typrelid = 0 AND t.typelem = 0
UNION ALL
SELECT p.proname || '(' || oidvectortypes(p.proargtypes) || ')', 'function'
FROM pg_proc AS p WHERE p.pronamespace = {_HERE}
"""
_COLUMNS = f"""
SELECT c.relname, a.attname, upper(format_type(a.atttypid, a.atttypmod)), a.attnotnull,
  coalesce(a.attnum = ANY (i.indkey::int2[]), false)
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index AS i ON i.indrelid = c.oid AND i.indisprimary
WHERE c.relnamespace = {_HERE} AND c.relkind = 'r' AND c.relpersistence = 'p'
ORDER BY c.relname, a.attnum
"""
_INDEXES = f"""
SELECT n.relname, c.relname, i.indisunique, coalesce(a.attname, '(expression)')
FROM pg_index AS i
JOIN pg_class AS n ON n.oid = i.indexrelid
JOIN pg_class AS c ON c.oid = i.indrelid
CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum
WHERE c.relnamespace = {_HERE} AND i.indisvalid AND i.indpred IS NULL
ORDER BY n.relname, k.place
"""
_TRIGGER = text(f"""
SELECT pg_get_triggerdef(t.oid) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE c.relnamespace = {_HERE} AND c.relname = :table AND t.tgname = :name
AND t.tgenabled IN ('O', 'A')
""")
_OURS = f"c.relnamespace = {_HERE} AND c.relname = ANY (%(tables)s)"
_HANGING_ON_TABLES = f"""
SELECT 'trigger ' || t.tgname || ' on ' || c.relname, t.tgname, p.prosrc
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_proc AS p ON p.oid = t.tgfoid
WHERE {_OURS} AND NOT t.tgisinternal
UNION ALL
SELECT 'function {_PAYLOAD_TEXT}', p.proname, p.prosrc FROM pg_proc AS p
WHERE p.pronamespace = {_HERE} AND p.proname = 'broker_payload_text'
UNION ALL
SELECT 'rule ' || r.rulename || ' on ' || c.relname, NULL, NULL
FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class
WHERE {_OURS} AND c.relkind = 'r'
UNION ALL
SELECT 'row security of ' || c.relname, NULL, NULL FROM pg_class AS c
WHERE {_OURS} AND c.relrowsecurity
UNION ALL
SELECT 'inheritance of ' || c.relname, NULL, NULL FROM pg_class AS c
WHERE {_OURS} AND EXISTS (SELECT FROM pg_inherits AS h WHERE c.oid IN (h.inhrelid, h.inhparent))
"""
_TABLE_NAMES = sorted(versions.TABLE_NAMES)
_NAMES_PRESENT = f"""
SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = {_HERE}
UNION ALL
SELECT t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE c.relnamespace = {_HERE} AND t.tgenabled IN ('O', 'A')
UNION ALL
SELECT p.proname || '(' || oidvectortypes(p.proargtypes) || ')'
FROM pg_proc AS p WHERE p.pronamespace = {_HERE}
"""


def require_supported(connection: Connection) -> None:
    """Refuse a database that cannot hold every text."""
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
    if encoding != "UTF8":
        raise SchemaError(
            f"the encoding of this database is {encoding}; the broker needs UTF8 (createdb -E UTF8)",
            encoding=encoding,
        )


def objects(connection: Connection) -> dict[str, str]:
    """Name to type of everything in the schema; a function's name is with its types of arguments."""
    return {row.relname: row.kind for row in connection.exec_driver_sql(_OBJECTS)}


def is_content(kind: str) -> bool:
    """Tables and the like; extensions may have been made before anything else."""
    return kind in {"table", "relation"}


def is_needed(name: str) -> bool:
    """Whether a name is one of ours."""
    return name in _NAMES


def user_version(_connection: Connection) -> int | None:
    """The version is in `metadata` alone."""
    return None


def usable_tables(connection: Connection) -> dict[str, list[Column]]:
    """The columns of every table that is an ordinary one, and survives a crash."""
    tables: dict[str, list[Column]] = defaultdict(list)
    for table, *facts in connection.exec_driver_sql(_COLUMNS):
        tables[table].append(Column(*facts))
    return tables


def indexes(connection: Connection) -> dict[str, IndexFacts]:
    """Those that are valid, and of all rows."""
    found: dict[str, IndexFacts] = {}
    for index, table, unique, column in connection.exec_driver_sql(_INDEXES):
        before = found[index].columns if index in found else ()
        found[index] = IndexFacts(table, (*before, column), unique)
    return found


def trigger(connection: Connection, name: str, table: str) -> str | None:
    """The text of a trigger, with OLD and NEW as one writes them."""
    definition = connection.execute(_TRIGGER, {"name": name, "table": table}).scalar()
    return definition and definition.replace("old.", "OLD.").replace("new.", "NEW.")


def names(connection: Connection) -> set[str]:
    """The names of relations, of triggers that fire, and of functions with their arguments."""
    return {name for (name,) in connection.exec_driver_sql(_NAMES_PRESENT)}


def intruders(connection: Connection) -> list[str]:
    """Triggers and functions of other text than ours, rules, row security, inheritance."""
    hanging = connection.exec_driver_sql(_HANGING_ON_TABLES, {"tables": _TABLE_NAMES})
    return [said for said, name, body in hanging if name is None or not _is_ours(name, body)]


def _is_ours(name: str, body: str) -> bool:
    return _BODIES.get(name) == _words(body)


def _words(text: str) -> str:
    return " ".join(text.split())


_BODIES = {guard.name: _words(guard.body) for guard in GUARDS}
_BODIES["broker_payload_text"] = _words(PAYLOAD_TEXT.split("$function$")[1])


def texts(connection: Connection, column: str, rest: str, _name: str) -> list[str]:
    """Text is UTF-8 here, and nothing else."""
    return list(connection.exec_driver_sql(f"SELECT {column} FROM {rest}").scalars())


def temporary(ddl: str) -> str:
    """It comes before the real one wherever a name has no schema, and ends with the transaction."""
    return ddl.replace("CREATE TABLE", "CREATE TEMP TABLE") + " ON COMMIT DROP"


def keep_writers_away(connection: Connection, version: int) -> None:
    """Lock all tables before any is changed, so that nothing is waited for in the middle.

    Whoever is in the middle of a transaction finishes it first. If we and they wait for each other,
    the server ends our wait, or theirs; then all locks are let go of and asked for again.
    """
    statement = f"LOCK TABLE {', '.join(sorted(TABLES[version]))} IN EXCLUSIVE MODE"
    for attempts_left in reversed(range(_LOCKING_ATTEMPTS)):
        savepoint = connection.begin_nested()
        try:
            connection.exec_driver_sql(statement)
        except DBAPIError as error:
            if (
                attempts_left == 0
                or error.orig is None
                or sqlstate(error.orig) != DEADLOCK_DETECTED
            ):
                raise
            savepoint.rollback()
        else:
            savepoint.commit()
            return


def check_references(_connection: Connection, _tables: Iterable[str]) -> None:
    """Foreign keys hold at all times."""
