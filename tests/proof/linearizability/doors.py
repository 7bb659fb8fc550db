"""The ways into a store that a process uses side by side: threads, tasks, units of work."""

from __future__ import annotations

import threading
import time
from typing import Any

from sqlalchemy.exc import DBAPIError

from broker import Broker, Options
from broker.errors import (
    BrokerError,
    DatabaseBusy,
    DatabaseUnavailable,
    OutcomeUnknown,
    Refusal,
)
from tests.proof.doors import Door, Tasks, Threads, Units

DOORS = ("broker", "broker", "tasks", "unit")  # by how often each is to be taken


class Doors:
    """One database, by each of the doors; `patience` is the busy timeout in milliseconds."""

    def __init__(self, url: str, patience: int) -> None:
        self._url = url
        self._options = Options(busy_timeout_ms=patience)
        broker = self._opened()
        self._doors: dict[str, Door] = {"broker": Threads(broker), "unit": Units(broker)}
        self._opening = threading.Lock()

    def close(self) -> None:
        """Let go of the database."""
        for door in self._doors.values():
            door.close()

    def perform(self, door: str, method: str, request: Any, id: str | None) -> dict[str, Any]:  # noqa: A002
        """What comes of an operation: `result`, `refusal`, or what kind of answer it was instead."""
        try:
            result = self._door(door).do(method, request, id)
        except Refusal as refusal:
            return {"refusal": refusal.to_json()}
        except (DatabaseBusy, DatabaseUnavailable) as error:
            return {"nothing": error.code}
        except (OutcomeUnknown, DBAPIError) as error:  # the session's COMMIT raises SQLAlchemy's
            return {"unknown": type(error).__name__}
        except Exception as error:
            return {"failed": repr(error.to_json() if isinstance(error, BrokerError) else error)}
        if method == "read_events":
            return {"result": [event.event_id for event in result]}
        return {"result": result.to_json() if hasattr(result, "to_json") else result}

    def _door(self, name: str) -> Door:
        with self._opening:
            if name not in self._doors:  # that of tasks, which has a store of its own
                self._doors[name] = Tasks(self._opened())
            return self._doors[name]

    def _opened(self) -> Broker:
        """A store; others may be in the way, and connections be cut."""
        while True:
            try:
                return Broker.open(self._url, options=self._options)
            except (DatabaseBusy, DatabaseUnavailable):
                time.sleep(0.005)
