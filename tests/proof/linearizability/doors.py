"""The ways into a store that a process uses side by side: threads, tasks, units of work."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from broker import IMMEDIATE, AsyncBroker, Broker, Options
from broker.errors import (
    BrokerError,
    DatabaseBusy,
    DatabaseUnavailable,
    OutcomeUnknown,
    Refusal,
)

DOORS = ("broker", "broker", "tasks", "unit")  # by how often each is to be taken


class Doors:
    """One database, by each of the doors; `patience` is the busy timeout in milliseconds."""

    def __init__(self, url: str, patience: int) -> None:
        self.options = Options(busy_timeout_ms=patience)
        self._url = url
        self._broker = _patiently_opened(url, self.options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._opening = threading.Lock()
        self._async_broker: AsyncBroker | None = None

    def close(self) -> None:
        """Let go of the database."""
        if self._async_broker is not None:
            asyncio.run_coroutine_threadsafe(self._async_broker.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._broker.close()

    def perform(self, door: str, method: str, request: Any, id: str | None) -> dict[str, Any]:  # noqa: A002
        """What comes of an operation: `result`, `refusal`, or what kind of answer it was instead."""
        named = {} if id is None else {"request_id": id}
        try:
            result = getattr(self, f"_by_{door}")(method, request, named)
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

    def _by_broker(self, method: str, request: Any, named: dict[str, str]) -> Any:
        return getattr(self._broker, method)(request, **named)

    def _by_unit(self, method: str, request: Any, named: dict[str, str]) -> Any:
        engine = self._broker.engine.execution_options(**IMMEDIATE)
        with Session(engine) as session, session.begin():
            unit = self._broker.unit_of_work(session)
            return getattr(unit, method)(request, **named)

    def _by_tasks(self, method: str, request: Any, named: dict[str, str]) -> Any:
        async def ask() -> Any:
            return await getattr(store, method)(request, **named)

        store = self._opened_for_tasks()
        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result()

    def _opened_for_tasks(self) -> AsyncBroker:
        with self._opening:
            if self._async_broker is None:
                opening = AsyncBroker.open(self._url, options=self.options)
                self._async_broker = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
            return self._async_broker


def _patiently_opened(url: str, options: Options) -> Broker:
    """A store; others may be in the way, and connections be cut."""
    while True:
        try:
            return Broker.open(url, options=options)
        except (DatabaseBusy, DatabaseUnavailable):
            time.sleep(0.005)
