"""The triggers that refuse changes nobody may make, whoever connects and however."""

from __future__ import annotations

from dataclasses import dataclass

from broker.clock import MAX_SAFE_INTEGER


@dataclass(frozen=True, slots=True)
class Guard:
    """A trigger that refuses a change, for each backend that needs it.

    `event` is as in CREATE TRIGGER; `sqlite` and `postgresql` are conditions on OLD and NEW, ""
    for none and None where that backend gets no such trigger. PostgreSQL's statements name table
    and schema as `broker.postgresql.tables.Statement` wants them.
    """

    name: str
    table: str
    event: str
    message: str
    sqlite: str | None
    postgresql: str | None

    def ddl(self, dialect: str) -> list[str]:
        """The statements that create it; empty where it is not needed."""
        if dialect == "sqlite" and self.sqlite is not None:
            return [self._sqlite_trigger(f" WHEN {self.sqlite}" if self.sqlite else "")]
        if dialect == "postgresql" and self.postgresql is not None:
            return [self._function(), self._trigger(self.postgresql)]
        return []

    @property
    def body(self) -> str:
        """What the trigger's function does on PostgreSQL."""
        return (
            "BEGIN RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation',"
            f" MESSAGE = '{self.message}'; END"
        )

    def _sqlite_trigger(self, when: str) -> str:
        return (
            f"CREATE TRIGGER {self.name} {self.event} ON {self.table}{when}"
            f" BEGIN SELECT RAISE(ABORT, '{self.message}'); END"
        )

    def _function(self) -> str:
        return (
            f"CREATE OR REPLACE FUNCTION {{schema}}{self.name}() RETURNS trigger LANGUAGE plpgsql"
            f" AS $guard$ {self.body} $guard$"
        )

    def _trigger(self, condition: str) -> str:
        scope = "STATEMENT" if self.event.endswith("TRUNCATE") else "ROW"
        when = f" WHEN ({condition})" if condition else ""
        return (
            f"CREATE TRIGGER {self.name} {self.event} ON {{table}} FOR EACH {scope}{when}"
            f" EXECUTE FUNCTION {{schema}}{self.name}()"
        )


_OWNER_IS_FIXED = "runtime broker stream workspace ownership is immutable"
_STREAM_STAYS = "runtime broker streams are permanent"
_EVENT_STAYS = "runtime broker events are append-only"
_NOT_SAFE = f"NEW.rowid NOT BETWEEN 1 AND {MAX_SAFE_INTEGER}"

# INSERT OR REPLACE deletes what it replaces without asking a DELETE trigger, unless the client has
# switched on recursive_triggers: so inserting over an existing row is refused before it happens.
# There NEW.rowid is -1 if the statement names none, and no row may ever have such a rowid. Nor one
# beyond the safe integers: it is a cursor, which JSON has to carry, and others must follow.
GUARDS = (
    Guard(
        name="streams_workspace_immutable",
        table="streams",
        event="BEFORE UPDATE OF workspace_id",
        message=_OWNER_IS_FIXED,
        sqlite="OLD.workspace_id IS NOT NULL AND OLD.workspace_id IS NOT NEW.workspace_id",
        postgresql=(
            "OLD.workspace_id IS NOT NULL AND OLD.workspace_id IS DISTINCT FROM NEW.workspace_id"
        ),
    ),
    Guard(
        name="streams_identity_immutable",
        table="streams",
        event="BEFORE UPDATE",
        message=_STREAM_STAYS,
        sqlite="OLD.stream_id IS NOT NEW.stream_id OR OLD.rowid IS NOT NEW.rowid",
        postgresql="OLD.stream_id IS DISTINCT FROM NEW.stream_id",
    ),
    Guard("streams_no_delete", "streams", "BEFORE DELETE", _STREAM_STAYS, "", ""),
    Guard("streams_no_truncate", "streams", "BEFORE TRUNCATE", _STREAM_STAYS, None, ""),
    Guard(
        name="streams_no_replace",
        table="streams",
        event="BEFORE INSERT",
        message=_STREAM_STAYS,
        sqlite=(
            "EXISTS (SELECT 1 FROM streams WHERE stream_id = NEW.stream_id)"
            " OR NEW.rowid > 0 AND EXISTS (SELECT 1 FROM streams WHERE rowid = NEW.rowid)"
        ),
        postgresql=None,
    ),
    Guard(
        name="streams_rowid_positive",
        table="streams",
        event="AFTER INSERT",
        message="runtime broker streams have rowids from 1 to 2^53 - 1",
        sqlite=_NOT_SAFE,
        postgresql=None,
    ),
    Guard("events_no_update", "events", "BEFORE UPDATE", _EVENT_STAYS, "", ""),
    Guard("events_no_delete", "events", "BEFORE DELETE", _EVENT_STAYS, "", ""),
    Guard("events_no_truncate", "events", "BEFORE TRUNCATE", _EVENT_STAYS, None, ""),
    Guard(
        name="events_no_replace",
        table="events",
        event="BEFORE INSERT",
        message=_EVENT_STAYS,
        sqlite=(
            "EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id)"
            " OR EXISTS (SELECT 1 FROM events"
            " WHERE stream_id = NEW.stream_id AND revision = NEW.revision)"
            " OR NEW.rowid > 0 AND EXISTS (SELECT 1 FROM events WHERE rowid = NEW.rowid)"
        ),
        postgresql=None,
    ),
    Guard(
        name="events_rowid_positive",
        table="events",
        event="AFTER INSERT",
        message="runtime broker events have rowids from 1 to 2^53 - 1",
        sqlite=_NOT_SAFE,
        postgresql=None,
    ),
)
