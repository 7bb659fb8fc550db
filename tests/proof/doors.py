"""The doors to a store, by the same words: a `Broker`, units of work, the tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Protocol

from sqlalchemy.orm import Session

from broker import IMMEDIATE, AsyncBroker, Broker


class Door(Protocol):
    """Does an operation by its name."""

    def do(self, operation: str, request: dict[str, Any], request_id: str | None) -> Any:
        """Its result; raises its error."""
        ...

    def close(self) -> None:
        """Let go of the store."""
        ...


class Threads:
    """Each call on the thread that makes it."""

    def __init__(self, store: Broker) -> None:
        self.store = store

    def do(self, operation: str, request: dict[str, Any], request_id: str | None) -> Any:
        """As of `Door`."""
        return _call(self.store, operation, request, request_id)

    def close(self) -> None:
        """As of `Door`."""
        self.store.close()


class Units(Threads):
    """Each call in a session of its own, which commits it."""

    def do(self, operation: str, request: dict[str, Any], request_id: str | None) -> Any:
        """As of `Door`."""
        with Session(self.store.engine.execution_options(**IMMEDIATE)) as session, session.begin():
            unit = self.store.unit_of_work(session)
            return _call(unit, operation, request, request_id)


class Tasks:
    """Each call a task of an event loop, which has a thread of its own."""

    def __init__(self, store: Broker) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._store: AsyncBroker = self._wait(self._serve(store))

    def do(self, operation: str, request: dict[str, Any], request_id: str | None) -> Any:
        """As of `Door`."""
        return self._wait(_call(self._store, operation, request, request_id))

    def close(self) -> None:
        """As of `Door`."""
        self._wait(self._store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    @staticmethod
    async def _serve(store: Broker) -> AsyncBroker:
        return AsyncBroker(store)


def _call(store: Any, operation: str, request: dict[str, Any], request_id: str | None) -> Any:
    keyed = {} if request_id is None else {"request_id": request_id}
    return getattr(store, operation)(request, **keyed)
