"""What the store's tables have on PostgreSQL besides what their entities say of both backends."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Table, event
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement

from broker.runtime_events import DOMAIN_EVENT

# A query takes `events_read_model_idx` if it repeats these texts.
WORKSPACE_OF_PAYLOAD = "broker_payload_text(payload_json, 'actor', 'workspaceId')"
EVENT_TYPE_OF_PAYLOAD = "broker_payload_text(payload_json, 'eventType')"
KIND_OF_PAYLOAD = "broker_payload_text(payload_json, 'kind')"

# There is no rowid here, so the cursor is a real column. JSON has to carry it exactly.
CURSOR = (
    "ALTER TABLE {table} ADD COLUMN rowid BIGINT GENERATED ALWAYS AS IDENTITY"
    " (MAXVALUE 9007199254740991)",
    "CREATE UNIQUE INDEX events_rowid_uq ON {table} (rowid)",
    "ALTER TABLE {table} ADD CONSTRAINT events_rowid_positive"
    " CHECK (rowid BETWEEN 1 AND 9007199254740991)",
)

# Other programs may have stored text that is not JSON, or that the server cannot take apart for a
# lone surrogate or a NUL somewhere in it: those are replaced for a second look. An entry of the
# index has a limit, and ids are no longer than this.
PAYLOAD_TEXT = r"""CREATE OR REPLACE FUNCTION {schema}broker_payload_text(payload text, VARIADIC path text[])
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $function$
DECLARE found json;
BEGIN
  FOR look IN 1..2 LOOP
    BEGIN
      found := payload::json #> path;
      IF json_typeof(found) = 'string' AND octet_length(found #>> '{}') <= 1024 THEN
        RETURN found #>> '{}';
      END IF;
      RETURN NULL;
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
      payload := regexp_replace(payload, '(?<!\\)((?:\\\\)*)\\u(?:0000'
        '|[dD][89abAB][[:xdigit:]]{2}(?!\\u[dD][c-fC-F])'
        '|(?<!\\u[dD][89abAB][[:xdigit:]]{2}\\u)[dD][c-fC-F][[:xdigit:]]{2})', '\1\\u0001', 'g');
    END;
  END LOOP;
  RETURN NULL;
END $function$"""

READ_MODEL_INDEX = (
    f"CREATE INDEX events_read_model_idx ON {{table}} ({{schema}}{WORKSPACE_OF_PAYLOAD},"
    f" {{schema}}{EVENT_TYPE_OF_PAYLOAD}, rowid) WHERE event_type = '{DOMAIN_EVENT}'"
)
DROP_PAYLOAD_TEXT = "DROP FUNCTION IF EXISTS {schema}broker_payload_text(text, text[])"

_PLACES = re.compile(r"\{table\}|\{schema\}")


class Statement(ExecutableDDLElement):
    """A statement about a table, wherever `schema_translate_map` says that the table is.

    `{table}` stands for its name, and `{schema}` for what goes before another name.
    """

    inherit_cache = False

    def __init__(self, text: str) -> None:
        self.text = text


@compiles(Statement)
def _compile(statement: Statement, compiler: Any, **_options: Any) -> str:
    table = statement.target
    assert isinstance(table, Table)  # noqa: S101  # `attach` sees to it
    name: str = compiler.preparer.format_table(table)
    prefix = name[: len(name) - len(compiler.preparer.quote(table.name))]
    named = {"{table}": name, "{schema}": prefix}
    return _PLACES.sub(lambda place: named[place[0]], statement.text)


def attach(table: Table, text: str, when: str = "after_create") -> None:
    """Have a statement run with the creation, or `after_drop`, of a table on PostgreSQL."""
    event.listen(table, when, Statement(text).execute_if(dialect="postgresql"))


def attach_to_events(events: Table) -> None:
    """Give the events their cursor and the index of the read model."""
    for text in (*CURSOR, PAYLOAD_TEXT, READ_MODEL_INDEX):
        attach(events, text)
    attach(events, DROP_PAYLOAD_TEXT, "after_drop")
