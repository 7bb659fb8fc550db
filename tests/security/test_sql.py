"""No SQL is built from values: what is put together is constants, and names that are quoted.

The source is gone through. Whatever is put into a text that is SQL, or handed to a database, and is
neither a literal, nor a constant, nor an integer, has to be listed here with what it is; what is
listed and no longer there has to go. So each new one is looked at by somebody.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

import pytest

from tests.security.sql_in_source import ROOT, Found, handed_over, interpolated, modules

TABLES = "names of the store's own tables and columns"
OURS = "parts of the same module, all of them constants"
QUOTED = "a schema's name, quoted; see test_injection.py"

#: What is put into SQL, by module: expressions, and what they are.
PUT_IN: dict[str, dict[str, str]] = {
    "alembic/versions/0001_version_1.py": {"table": TABLES},
    "alembic/versions/0002_version_2.py": {"misfits(current.dialect, 'actor_leases')": OURS},
    "alembic/versions/0004_guards_and_indexes.py": dict.fromkeys(
        ["message", "name", "rest", "table", "when"], OURS
    ),
    "broker/cli/demo/legacy.py": {"table": TABLES},
    "broker/cli/demo/verify.py": {"_KEYS[table]": TABLES, "pragma": OURS, "table": TABLES},
    "broker/guards.py": dict.fromkeys(
        ["scope", "self.body", "self.event", "self.message", "self.name", "self.table", "when"],
        OURS,
    ),
    "broker/models.py": {"guard.name": "a name in guards.py"},
    "broker/moving/copying.py": {"table.name": TABLES, "where": OURS},
    "broker/moving/postgresql.py": dict.fromkeys(
        [
            "', '.join((table.name for table in TABLES))",
            "columns",
            "listing.select",
            "table.name",
            "tables",
        ],
        TABLES,
    )
    | {"quoted(self.schema)": QUOTED},
    "broker/moving/sides.py": {"fresh": OURS, "table": TABLES},
    "broker/moving/sqlite.py": {
        "', '.join(table.columns)": TABLES,
        "marks": "question marks",
        "table.columns[0]": TABLES,
        "table.name": TABLES,
    },
    "broker/moving/tables.py": dict.fromkeys(
        ["', '.join(columns)", "key", "name", "where"], TABLES
    ),
    "broker/postgresql/engine.py": {
        "is_local": "a boolean",
        "max(1, busy_timeout_ms)": "an integer, by the format of its place",
    },
    "broker/postgresql/session.py": {"quoted": QUOTED},
    "broker/postgresql/sql.py": dict.fromkeys(
        [
            "_LEASE.format('of_actor')",
            "_LEASE.format('of_stream')",
            "arrays",
            "ctes",
            "having",
            "into",
            "last",
        ],
        OURS,
    ),
    "broker/schema/postgresql/catalogue.py": dict.fromkeys(
        ["', '.join(sorted(TABLES[version]))", "column", "rest"], TABLES
    ),
    "broker/schema/postgresql/facts.py": {
        "column": TABLES,
        "head": "a revision's id in versions.py",
        "quoted(schema)": QUOTED,
        "rest": TABLES,
        "schema": "a literal and the server's process id",
    },
    "broker/schema/postgresql/transactions.py": {"path": QUOTED},
    "broker/schema/sqlite/catalogue.py": {
        "column": TABLES,
        "names": TABLES,
        "quoted": "a table's name out of the database, quoted",
        "rest": TABLES,
    },
    "broker/schema/sqlite/facts.py": {"table": TABLES, "version": "an integer in versions.py"},
    "broker/schema/steps.py": {"table": TABLES},
    "broker/sqlite/engine.py": {"mode": "DEFERRED or IMMEDIATE", "pragma": OURS},
}

BOUND = "text that Statement has compiled, with bound parameters"
BUILT = "put together above, from what PUT_IN lists"
NO_SQL = "no SQL, but a call of the same name"

#: What is handed to a database that is neither literal nor constant, by module.
HANDED: dict[str, dict[str, str]] = {
    "alembic/versions/0001_version_1.py": dict.fromkeys(
        ["*(f'DROP TABLE {table}' for table in DROPPED)", "*TABLES[current.dialect]"], OURS
    ),
    "alembic/versions/0003_version_3.py": dict.fromkeys(
        ["*OBJECTS[current.dialect]", "*REMOVE[current.dialect]", "COLUMN[current.dialect]"], OURS
    ),
    "alembic/versions/0004_guards_and_indexes.py": dict.fromkeys(
        [
            "*(f'CREATE INDEX {name} {rest}' for name, rest in indexes.items())",
            "*(f'DROP INDEX IF EXISTS {name}' for name in indexes)",
            "*DROP_TRIGGERS[current.dialect]",
            "*MAKE_TRIGGERS[current.dialect]",
        ],
        OURS,
    ),
    "broker/async_store.py": {"partial(make, *args, **kwargs)": NO_SQL},
    "broker/cli/demo/__init__.py": {"path": NO_SQL},
    "broker/cli/demo/legacy.py": {"example_sql()": "a file of the package"},
    "broker/models.py": {"statement.replace('%', '%%')": "a guard's statement"},
    "broker/moving/postgresql.py": {"statement": BUILT},
    "broker/moving/sides.py": {"sql": BUILT, "text(sql)": BUILT},
    "broker/moving/sqlite.py": {"listing.select": BUILT, "sql": BUILT},
    "broker/postgresql/channel.py": {"sql": BOUND},
    "broker/postgresql/connections.py": {
        "self._begin": "a literal",
        "set_up(self._options.busy_timeout_ms)": BUILT,
    },
    "broker/postgresql/engine.py": {"set_up(busy_timeout_ms, is_local=False)": BUILT},
    "broker/postgresql/rows.py": {"sql": BOUND},
    "broker/schema/backfill.py": {"statement": "a constant of two"},
    "broker/schema/postgresql/catalogue.py": {"statement": BUILT},
    "broker/schema/postgresql/facts.py": {"query": "a constant of fact_queries.py"},
    "broker/schema/postgresql/transactions.py": {
        "set_up(busy_timeout_ms)": BUILT,
        "text('SELECT pg_advisory_xact_lock(:key)')": "a literal",
    },
    "broker/schema/sqlite/catalogue.py": {
        "_REFERRING.format(names)": BUILT,
        "statement": "a literal, or what PUT_IN lists",
    },
    "broker/schema/sqlite/facts.py": {"statement": "a literal"},
    "broker/schema/state.py": {
        "catalogue.temporary(catalogue.VERSION_TABLE_DDL)": "a constant",
        "writing": BUILT,
    },
    "broker/schema/steps.py": {
        "query": "a revision's literal",
        "statement": "a revision's literal; the indexes and triggers that a rebuilt table had",
    },
    "broker/sqlite/channel.py": {"self._sql": BOUND, "sql": BOUND},
    "broker/sqlite/connections.py": {"make": NO_SQL, "read": NO_SQL},
    "broker/sqlite/write_queue.py": {"pending": NO_SQL},
    "broker/sqlite/writer.py": {"'COMMIT' if unsettled else 'ROLLBACK'": "two literals"},
    "broker/statements.py": {"on_postgresql": "a constant of sql.py"},
}

Finder = Callable[[str, ast.AST], Iterator[Found]]


def found_in_the_store(find: Finder) -> dict[str, dict[str, list[int]]]:
    """What there is, by module and expression, with its lines."""
    found: dict[str, dict[str, list[int]]] = {}
    for path in modules():
        for module, expression, line in find(
            path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))
        ):
            found.setdefault(module, {}).setdefault(expression, []).append(line)
    return found


@pytest.mark.parametrize(
    ("find", "listed"), [(interpolated, PUT_IN), (handed_over, HANDED)], ids=["put in", "handed"]
)
def test_all_that_becomes_sql_is_known_for_what_it_is(
    find: Finder, listed: dict[str, dict[str, str]]
) -> None:
    found = found_in_the_store(find)
    unknown = {
        (module, expression): lines
        for module, expressions in found.items()
        for expression, lines in expressions.items()
        if expression not in listed.get(module, {})
    }
    gone = {
        (module, expression)
        for module, expressions in listed.items()
        for expression in expressions
        if expression not in found.get(module, {})
    }
    assert unknown == {}, "what is it? Look, and list it with the answer"
    assert gone == set()


@pytest.mark.parametrize(
    "code",
    [
        "f\"SELECT * FROM events WHERE event_id = '{event_id}'\"",
        '"SELECT * FROM events WHERE event_id = " + event_id',
        '"SELECT * FROM events WHERE event_id = %s" % event_id',
        '"SELECT * FROM events WHERE event_id = {}".format(event_id)',
        '"SELECT * FROM events WHERE event_id = {x}".format(x=event_id)',
        'f" (DELETE FROM {event_id})"',
    ],
)
def test_a_value_put_into_sql_is_found(code: str) -> None:
    assert [each.expression for each in interpolated("m", ast.parse(code))] == ["event_id"]


@pytest.mark.parametrize(
    "code",
    ["c.execute(value)", "text(value)", "c.exec_driver_sql(value, ())", "channel.control(value)"],
)
def test_a_value_handed_over_as_sql_is_found(code: str) -> None:
    assert [each.expression for each in handed_over("m", ast.parse(code))] == ["value"]


@pytest.mark.parametrize(
    "code",
    [
        'raise SchemaError(f"SELECT failed: {reason}")',
        'f"PRAGMA user_version = {version:d}"',
        'c.execute("SELECT 1")',
        "c.execute(_LOOK)",
        'f"SELECT {_COLUMNS} FROM {versions.TABLE}"',
    ],
)
def test_messages_integers_and_constants_are_not(code: str) -> None:
    tree = ast.parse(code)
    assert [*interpolated("m", tree), *handed_over("m", tree)] == []
