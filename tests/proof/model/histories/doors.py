"""The processes that have a database open, and the doors to it: each kind of store, and a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, get_args, get_type_hints

from pydantic import ValidationError
from sqlalchemy.orm import Session

from broker import IMMEDIATE, AsyncBroker, Broker, UnitOfWork
from broker.messages import Request
from broker.operations import Operations
from tests.conformance import answer
from tests.places import Place
from tests.proof.model.plain.store import MUTATIONS, Answer, PlainStore
from tests.support import open_store


def asked(store: Any, operation: str, request: Any, request_id: Any = None) -> Any:
    """What a store's method gives; a walk is not walked yet."""
    method = getattr(store, operation)
    return method(request, request_id=request_id) if operation in MUTATIONS else method(request)


@cache
def _message_of(operation: str) -> type[Request]:
    """The class of an operation's request."""
    kinds: Any = get_type_hints(getattr(Operations, operation))["request"]
    kind: type[Request] = get_args(kinds)[0]
    return kind


def as_message(operation: str, request: Any) -> Any:
    """A request as the message that it is, or as it was, if it is none."""
    try:
        return _message_of(operation).model_validate(request)
    except ValidationError:
        return request


def _to_its_end(given: Any) -> Any:
    return list(given) if isinstance(given, Iterator) else given


class Process:
    """A process with a store, on a machine with clocks of its own; `plain` is its double."""

    def __init__(self, place: Place, plain: PlainStore) -> None:
        self.plain = plain
        self._place = place
        self._dead: list[Broker] = []
        self._broker = self._open()

    @property
    def name(self) -> str:
        """What its nonces begin with."""
        return self.plain.name

    def ask(self, operation: str, request: Any, request_id: Any = None) -> Answer:
        """What the store answers, a refusal included."""
        return answer(lambda: _to_its_end(asked(self._broker, operation, request, request_id)))

    @contextmanager
    def session(self) -> Iterator[UnitOfWork]:
        """A session of the application's on the store's engine, to be committed or rolled back."""
        engine = self._broker.engine.execution_options(**IMMEDIATE)
        with Session(engine) as session:
            yield self._broker.unit_of_work(session)

    def restart(self, *, is_crash: bool) -> None:
        """End, orderly or by a `crash` that closes nothing, and begin anew."""
        if is_crash:
            self._dead.append(self._broker)
        else:
            self._broker.close()
        self._broker = self._open()
        self.plain.open()

    def end(self) -> None:
        """Close everything, what is dead included."""
        for each in [self._broker, *self._dead]:
            each.close()

    def _open(self) -> Broker:
        limits = self.plain.limits
        return open_store(
            self._place,
            self.plain.hands,
            nonce=self._nonce,
            receipt_capacity=limits.receipt_capacity,
            page_max_bytes=limits.page_max_bytes,
            read_model_max_bytes=limits.read_model_max_bytes,
        )

    _drawn = 0

    def _nonce(self) -> str:
        self._drawn += 1
        return f"{self.name}-{self._drawn}"


class AsyncProcess(Process):
    """A process whose store is awaited."""

    def __init__(self, place: Place, plain: PlainStore) -> None:
        self._loop = asyncio.new_event_loop()
        self._dead_too: list[AsyncBroker] = []
        super().__init__(place, plain)
        self._begin()

    def _begin(self) -> None:
        async def serve() -> AsyncBroker:
            return AsyncBroker(self._broker)

        self._async_broker = self._loop.run_until_complete(serve())

    def ask(self, operation: str, request: Any, request_id: Any = None) -> Answer:
        """As of `Process`."""

        async def asking() -> Any:
            given = asked(self._async_broker, operation, request, request_id)
            if isinstance(given, AsyncIterator):
                return [each async for each in given]
            return await given

        return answer(lambda: self._loop.run_until_complete(asking()))

    def ask_together(self, asks: Sequence[tuple[str, Any]]) -> list[Answer]:
        """What it answers to writes of tasks that ask for them at once, in this order."""

        async def asking() -> list[Any]:
            given = [asked(self._async_broker, *each) for each in asks]
            return await asyncio.gather(*given, return_exceptions=True)

        return [
            answer(partial(_given, outcome)) for outcome in self._loop.run_until_complete(asking())
        ]

    def restart(self, *, is_crash: bool) -> None:
        """As of `Process`."""
        if is_crash:
            self._dead_too.append(self._async_broker)
        else:
            self._close(self._async_broker)
        super().restart(is_crash=is_crash)
        self._begin()

    def end(self) -> None:
        """As of `Process`."""
        for each in [self._async_broker, *self._dead_too]:
            self._close(each)
        super().end()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _close(self, store: AsyncBroker) -> None:
        self._loop.run_until_complete(store.close())


def _given(outcome: Any) -> Any:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
