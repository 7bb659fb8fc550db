"""What `alembic/env.py` does: the one road on which every Alembic command reaches a database."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from dataclasses import dataclass
from typing import Any, NoReturn

from alembic import context
from sqlalchemy import Connection, MetaData

from broker.errors import BrokerError, ConfigurationError, SchemaError
from broker.schema import versions
from broker.schema.backends import catalogue_of, transactions_of
from broker.schema.drift import drift
from broker.schema.drift_operations import report_drift
from broker.schema.migrate import Call, call_of, database_url, transaction
from broker.schema.printable import one_line, printable
from broker.schema.revisions import BASE, require_revision
from broker.schema.state import State, stamp, stamp_for_reading, state
from broker.schema.steps import Run, StepReport

_LOOKING = {"check", "current", "edit", "history", "revision", "show"}  # they change nothing
_COMPARING = {"check", "revision"}
_OPTIONS = {"url", "schema", "shared", "lose-data"}


def run() -> None:
    """Run the Alembic command that is under way, in one transaction of a connection of its own.

    From a program errors are raised as they are. On the command line they are one line and an exit
    code: 1, or for `check` 1 for drift and 2 if the database could not be looked at.
    """
    given: Namespace | None = context.config.cmd_opts
    if given is None:
        _run(_programs_call())
        return

    command = given.cmd[0].__name__
    try:
        call = _command_lines_call(command)
        if command == "check":
            _check(call)
        _run(call)
    except BrokerError as error:
        print(f"error: {one_line(error.message)}", file=sys.stderr)
        raise SystemExit(2 if command == "check" else 1) from error
    for report in call.run.reports:
        context.config.print_stdout(_line(report))


def _programs_call() -> Call:
    attributes = context.config.attributes
    if attributes.get("connection") is not None:
        database_url(attributes["connection"])  # refuses it, and says why
    url = attributes.get("url") or os.environ.get("BROKER_DATABASE_URL")
    schema = attributes.get("schema") or os.environ.get("BROKER_DATABASE_SCHEMA") or None
    return call_of(context.config) or Call(database_url(url or _no_url()), None, schema)


def _command_lines_call(command: str) -> Call:
    options: dict[str, str] = context.get_x_argument(as_dictionary=True)
    if options.keys() - _OPTIONS:
        raise ConfigurationError(
            # Not shown, for it may be a URL whose name was forgotten, with a password in it.
            "there is no other -x than -x url=…, -x schema=…, -x shared=yes, -x lose-data=yes"
        )
    url = options.get("url") or os.environ.get("BROKER_DATABASE_URL") or _no_url()
    return Call(
        database_url(url),
        command,
        options.get("schema") or os.environ.get("BROKER_DATABASE_SCHEMA") or None,
        revisions=_given_revisions(command),
        shared=_yes(options, "shared"),
        run=Run(lose_data=_yes(options, "lose-data")),
    )


def _given_revisions(command: str) -> tuple[str, ...]:
    options: Any = context.config.cmd_opts
    if command == "stamp":
        return tuple(options.revisions)
    return (options.revision,) if command in {"upgrade", "downgrade"} else ()


def _no_url() -> NoReturn:
    raise ConfigurationError(
        "which database? Say  alembic -x url=sqlite:///FILE …  or set BROKER_DATABASE_URL"
    )


def _yes(options: dict[str, str], name: str) -> bool:
    answer = options.get(name, "no")
    if answer not in {"yes", "no"}:
        raise ConfigurationError(f"-x {name} is yes or no, not {answer!r}")
    return answer == "yes"


def _line(report: StepReport) -> str:
    counts = ", ".join(f"{what}: {number}" for what, number in report.changes.items())
    return f"{report.revision} {report.title}" + (f" ({counts})" if counts else "")


def _check(call: Call) -> NoReturn:
    with transaction(
        call.url, call.schema, writes=False, busy_timeout_ms=call.busy_timeout_ms
    ) as connection:
        facts = drift(connection)
    for fact in facts or ["no drift: the schema is what the models say"]:
        context.config.print_stdout(printable(fact))
    raise SystemExit(1 if facts else 0)


def _run(call: Call) -> None:
    if context.is_offline_mode():
        raise ConfigurationError(
            "--sql is not possible: the migrations need the live database, whose rows they read"
            " and check"
        )
    for revision in call.revisions:
        require_revision(context.script, str(call.command), revision)
    makes = call.command in {"upgrade", None}  # None may be one
    to_base = makes and call.revisions == (BASE,)
    if to_base and not transactions_of(call.url).exists(call.url, call.schema):
        return  # there is nothing to do, and no reason to make the file or schema

    looking = call.command in _LOOKING
    with transaction(
        call.url, call.schema, writes=not looking, makes=makes, busy_timeout_ms=call.busy_timeout_ms
    ) as connection:
        if looking:
            _look(connection, call)
        else:
            _migrate(connection, call)


def _look(connection: Connection, call: Call) -> None:
    # A comparison is of whatever there is, its revision included; Alembic would stop at the latter.
    comparing = call.command in _COMPARING
    revision = versions.HEAD if comparing else state(connection, shared=True).revision
    stamp_for_reading(connection, revision)
    _configure(connection, call.run, _Comparison(connection))
    context.run_migrations()


def _migrate(connection: Connection, call: Call) -> None:
    found = state(connection, shared=call.shared)
    if found.stamped is None or found.stamped != found.revision:
        stamp(connection, found.revision)
    comparison = _Comparison(connection)
    _configure(connection, call.run, comparison)
    context.run_migrations()
    if comparison.made or context.get_context().opts.get("dont_mutate"):
        connection.rollback()
        return

    call.run.refuse_loss()
    if not call.run.reports:
        _check_stamp(found)
    if not context.get_context().get_current_heads():
        connection.exec_driver_sql(f"DROP TABLE {versions.VERSION_TABLE}")
    _check_agreement(connection)
    catalogue_of(connection).check_references(connection, call.run.rewritten)


@dataclass(slots=True)
class _Comparison:
    """Of the live schema with the models, for Alembic to call where it would report its own.

    `made` tells whether it did, which is all that such a command does to a database.
    """

    connection: Connection
    made: bool = False

    def __call__(self, _context: Any, _revision: Any, directives: list[Any]) -> None:
        self.made = True
        report_drift(drift(self.connection), directives)


def _configure(connection: Connection, run: Run, comparison: _Comparison) -> None:
    context.configure(
        connection=connection,
        target_metadata=MetaData(),  # nothing for Alembic to compare: `comparison` does it
        include_name=lambda *_: False,
        process_revision_directives=comparison,
        version_table=versions.VERSION_TABLE,
        transactional_ddl=True,
        broker_run=run,
    )


def _check_stamp(found: State) -> None:
    """If no revision has run, the version table must name the one where the database was found."""
    wanted = context.get_context().get_current_heads()
    if wanted != ((found.revision,) if found.revision else ()):
        raise SchemaError(
            f"the database is at {found.revision or 'no revision'}: stamping it"
            f" {', '.join(wanted) or BASE} would make the version table lie; use upgrade or"
            " downgrade",
            revision=found.revision,
        )


def _check_agreement(connection: Connection) -> None:
    """What the version table says must be what the database is, whatever the revisions did."""
    found = state(connection, shared=True)
    if found.stamped != found.revision:
        raise SchemaError(
            f"{versions.VERSION_TABLE} says {found.stamped}, but the database is at"
            f" {found.revision}: nothing was changed"
        )
