"""What is stored: a list or dictionary for each table, and the refusals."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


class Refused(Exception):
    """A request is refused; what it did so far has to be nothing."""

    def __init__(self, code: str, **details: Any) -> None:
        super().__init__(code, details)
        self.code = code
        self.details = details


@dataclass
class Database:
    """Rows by their keys, in camelCase; a lease by its stream, for a stream has one."""

    floor: int = 0
    leases: dict[str, Row] = field(default_factory=dict)
    receipts: dict[str, Row] = field(default_factory=dict)
    streams: dict[str, Row] = field(default_factory=dict)
    inbox: dict[str, Row] = field(default_factory=dict)
    events: list[Row] = field(default_factory=list)
    outbox: dict[str, Row] = field(default_factory=dict)
    projections: dict[str, Row] = field(default_factory=dict)

    def copy(self) -> Database:
        """What a transaction may be rolled back to."""
        return deepcopy(self)

    @property
    def last_cursor(self) -> int:
        """The cursor of the last event, 0 if there is none."""
        return int(self.events[-1]["cursor"]) if self.events else 0

    def lease_of(self, actor_id: str) -> Row | None:
        """The lease row of an actor."""
        return next((row for row in self.leases.values() if row["actorId"] == actor_id), None)

    def revision_of(self, stream_id: str) -> int:
        """How many events a stream has."""
        stream = self.streams.get(stream_id)
        return 0 if stream is None else int(stream["revision"])

    def owner_of(self, stream_id: str) -> str | None:
        """The workspace that owns a stream."""
        stream = self.streams.get(stream_id)
        return None if stream is None else stream["workspaceId"]
