"""A database of PostgreSQL's that a test has used, made as new for the next test.

That takes a tenth of what another copy takes: to copy three hundred files, to wait for a checkpoint,
and then to build the caches that the first session of a new database has to build.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

# Whatever changes a schema makes, changes or removes rows of these. What `initdb` made has smaller
# numbers, and is left out where there is much of it.
_MADE = 16_384
_CATALOGUE = {
    "pg_class": "",
    "pg_attribute": f"WHERE attrelid >= {_MADE}",
    "pg_attrdef": "",
    "pg_constraint": "",
    "pg_index": "",
    "pg_trigger": "",
    "pg_namespace": "",
    "pg_extension": "",
    "pg_depend": "",
    "pg_description": f"WHERE objoid >= {_MADE}",
    "pg_statistic": f"WHERE starelid >= {_MADE}",
    "pg_db_role_setting": "WHERE setdatabase = (SELECT oid FROM pg_database"
    " WHERE datname = current_database())",
    **dict.fromkeys(("pg_proc", "pg_type", "pg_rewrite", "pg_policy"), f"WHERE oid >= {_MADE}"),
}
_LOOK = " UNION ALL ".join(
    f"SELECT '{name}', count(*), max(xmin::text::bigint) FROM {name} {which}"
    for name, which in _CATALOGUE.items()
)
_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_SIZE = "SELECT coalesce(sum(pg_relation_size(oid)), 0) FROM pg_class WHERE relfilenode >= %s"
_ENOUGH = 4 * 2**20  # bytes of tables and indexes: what was deleted stays in them
_TABLES = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
ORDER BY 1
"""
_COUNTERS = "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence"


@dataclass(frozen=True)
class Original:
    """What there is in a database, and in its copies, as long as nobody has used them."""

    catalogue: list[tuple[Any, ...]]
    restoring: sql.Composed

    @classmethod
    def of(cls, connection: psycopg.Connection[Any]) -> Original:
        """What this session, of a superuser, finds in its database."""
        names = [name for (name,) in connection.execute(_TABLES).fetchall()]
        parts = [
            sql.SQL("SET lock_timeout = '10s'"),  # a prepared transaction has no session to end
            sql.SQL("SET session_replication_role = replica"),  # no triggers, no keys
            *(sql.SQL("DELETE FROM {}").format(sql.Identifier(name)) for name in names),
            *(_insertion(connection, name) for name in names),
            sql.SQL(_COUNTERS),
        ]
        return cls(connection.execute(_LOOK).fetchall(), sql.SQL("; ").join(parts))

    def restore(self, connection: psycopg.Connection[Any]) -> bool:
        """Make a used copy as it was, unless more than rows of its tables has changed.

        The session is a superuser's; all others of that database are ended.
        """
        connection.execute(_OTHERS)
        is_as_made = connection.execute(_LOOK).fetchall() == self.catalogue
        if not is_as_made or not _is_small(connection):
            return False
        connection.execute(self.restoring)
        return True


def _insertion(connection: psycopg.Connection[Any], name: str) -> sql.Composed:
    table = sql.Identifier(name)
    found = connection.execute(sql.SQL("SELECT jsonb_agg(t) FROM {} AS t").format(table)).fetchone()
    rows = Jsonb(found[0] if found and found[0] else [])
    return sql.SQL(
        "INSERT INTO {0} OVERRIDING SYSTEM VALUE SELECT * FROM jsonb_populate_recordset(NULL::{0}, {1})"
    ).format(table, sql.Literal(rows))


def _is_small(connection: psycopg.Connection[Any]) -> bool:
    ((size,),) = connection.execute(_SIZE, [_MADE]).fetchall()
    return bool(size < _ENOUGH)
