"""What the revisions share: the connection, counting, refusing to lose data, and the report.

A revision is a list of statements between two validations; this is the frame round it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from broker.database_url import SQLITE
from broker.errors import SchemaError
from broker.schema import validate
from broker.schema.backends import catalogue_of

#: How long a migration waits for the lock: another process may be in the middle of a long one.
LOCK_TIMEOUT_MS = 60_000

# Without parameters no driver looks for their marks.
_AS_IT_STANDS = {"no_parameters": True}

#: Called with the number of events that were read and that there are.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one revision did: `changes` counts, by a phrase that says what was counted."""

    revision: str
    title: str
    changes: dict[str, int]


@dataclass(slots=True)
class Run:
    """One call of Alembic: what the caller wants, and what came of it.

    `rewritten` are the tables whose rows may have gone, so that references to them need checking:
    a revision that leaves rows or keys out names its table there. `lost` counts what the steps so far have lost, by a phrase that says what it is.
    """

    lose_data: bool = False
    progress: Progress | None = None
    reports: list[StepReport] = field(default_factory=list)
    rewritten: set[str] = field(default_factory=set)
    lost: dict[str, int] = field(default_factory=dict)

    def refuse_loss(self) -> None:
        """Raise SchemaError if any step has lost data, unless that was asked for.

        To be called after the last step, so that the error names all of it, and before the commit.
        """
        if self.lost and not self.lose_data:
            listed = ", ".join(f"{what}: {number}" for what, number in self.lost.items())
            raise SchemaError(
                f"this downgrade would lose data ({listed}); nothing was changed. To lose it on"
                " purpose, say lose_data=True (alembic: -x lose-data=yes)",
                lost=dict(self.lost),
            )


@dataclass(slots=True)
class Step:
    """One revision under way, in the transaction of all of them."""

    connection: Connection
    run: Run
    changes: dict[str, int] = field(default_factory=dict)

    @property
    def dialect(self) -> str:
        """Whose statements are to be run: sqlite or postgresql."""
        return self.connection.dialect.name

    def execute(self, *statements: str) -> None:
        """Run statements that take no parameters, as they stand."""
        for statement in statements:
            self.connection.exec_driver_sql(statement, execution_options=_AS_IT_STANDS)

    def count(self, query: str) -> int:
        """The answer of a query for one number."""
        return int(self.connection.exec_driver_sql(query).scalar_one())

    def set_version(self, version: int) -> None:
        """Write the schema version, in both of its places where there are two."""
        self.execute(
            f"INSERT INTO metadata (key, value) VALUES ('schema_version', '{version:d}')"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        if self.dialect == SQLITE:
            self.execute(f"PRAGMA user_version = {version:d}")

    def refuse_to_lose(self, queries: Mapping[str, str]) -> None:
        """Count what this step is about to lose, before it does, for the report and the run.

        Counts other than 0 refuse the run, unless losing data was asked for: at its end, see
        `Run.refuse_loss`, for the steps below have counts of their own.
        """
        lost = {what: number for what, query in queries.items() if (number := self.count(query))}
        for what, number in lost.items():
            self.run.lost[what] = self.run.lost.get(what, 0) + number
            self.changes[f"{what} lost"] = number

    def rebuild(self, table: str, create: str, fill: str) -> None:
        """Replace `table` by one made with `create`, filled by `fill` from `broker_rebuild`.

        The latter is a temporary table with the columns of `table`, and on SQLite its rowids as
        `broker_rowid`. On PostgreSQL nothing of others may hang on the table.
        """
        if self.dialect == SQLITE:
            self._rebuild_on_sqlite(table, create, fill)
            return
        self.execute(
            f"CREATE TEMP TABLE broker_rebuild AS SELECT * FROM {table}",
            f"DROP TABLE {table}",
            create,
            fill,
            "DROP TABLE pg_temp.broker_rebuild",
        )

    def _rebuild_on_sqlite(self, table: str, create: str, fill: str) -> None:
        """What others hang on the table is kept: their indexes and triggers are made again.

        Views and triggers elsewhere that name it never see another name, as they would with ALTER
        TABLE … RENAME, which rewrites them or stumbles over them.
        """
        hung_on = self.connection.exec_driver_sql(
            "SELECT sql FROM main.sqlite_schema WHERE tbl_name = ? COLLATE NOCASE"
            " AND type IN ('index', 'trigger') AND sql IS NOT NULL ORDER BY type, name",
            (table,),
        ).fetchall()
        self.execute(
            f"CREATE TEMP TABLE broker_rebuild AS"
            f" SELECT rowid AS broker_rowid, * FROM main.{table} ORDER BY rowid",
            f"DROP TABLE main.{table}",
            create,
            fill,
            "DROP TABLE temp.broker_rebuild",
            *(sql for (sql,) in hung_on),
        )


@contextmanager
def step(op: Any, revision: str, title: str, *, before: int, after: int) -> Iterator[Step]:
    """The frame of a revision: validates schema version `before`, runs the block, validates `after`.

    0 is a database without our tables. Raises SchemaError, and leaves it to the transaction of the
    whole run to undo everything.
    """
    run: Run = op.get_context().opts["broker_run"]
    current = Step(op.get_bind(), run)
    if before:
        if not run.reports:
            catalogue_of(current.connection).keep_writers_away(current.connection, before)
        validate.validate(current.connection, before)
    yield current
    if after:
        validate.validate(current.connection, after)
    run.reports.append(StepReport(revision, title, current.changes))
