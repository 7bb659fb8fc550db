"""The ledger: what a worker was about to ask of its store, and what it was answered.

A worker writes it to a pipe before and after each call, so that it survives the worker: what was
answered there was acknowledged.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from broker.errors import BrokerError, DatabaseBusy, DatabaseUnavailable, OutcomeUnknown, Refusal

#: `undone`: an error that says that nothing was stored; `unknown`: one that cannot tell;
#: `unexpected`: one that nobody may get.
Kind: TypeAlias = Literal["done", "refused", "undone", "unknown", "unexpected"]
Entry: TypeAlias = list[Any]

_KINDS: dict[type[BrokerError], Kind] = {
    Refusal: "refused",
    DatabaseBusy: "undone",
    DatabaseUnavailable: "undone",
    OutcomeUnknown: "unknown",
}


@dataclass(frozen=True)
class Answer:
    """What a call gave: the wire form of its result, or of its error. `at`: monotonic, ns."""

    kind: Kind
    value: Any
    at: int

    @classmethod
    def result(cls, result: Any) -> Answer:
        """The result of a call that has just returned."""
        form = result.to_json() if hasattr(result, "to_json") else result
        return cls("done", form, time.monotonic_ns())

    @classmethod
    def error(cls, error: Exception) -> Answer:
        """The error that a call has just raised."""
        kinds = [kind for of, kind in _KINDS.items() if isinstance(error, of)]
        if not kinds or not isinstance(error, BrokerError):
            return cls("unexpected", f"{type(error).__name__}: {error}", time.monotonic_ns())
        return cls(kinds[0], error.to_json(), time.monotonic_ns())


@dataclass
class Ask:
    """A call of an operation; `answer` stays None where the worker died first.

    Calls of the same `unit` were in one transaction of a session's.
    """

    worker: str
    number: int
    at: int
    operation: str
    request: dict[str, Any]
    request_id: str | None
    unit: str | None
    answer: Answer | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was acknowledged."""
        return self.answer is not None and self.answer.kind == "done"

    @property
    def is_open(self) -> bool:
        """Whether nobody knows what became of it."""
        return self.answer is None or self.answer.kind == "unknown"

    @property
    def key(self) -> str | None:
        """The id by which it is safe to repeat."""
        return self.request["messageId"] if self.operation == "commit" else self.request_id


class Ledger:
    """Where one worker writes, from any thread; `put` takes an entry at a time."""

    def __init__(self, put: Callable[[Entry], None]) -> None:
        self._put = put
        self._lock = threading.Lock()
        self._count = 0

    @classmethod
    def to(cls, pipe: int) -> Ledger:
        """A ledger that goes through a pipe, a line an entry."""

        def put(entry: Entry) -> None:
            line = f"{json.dumps(entry)}\n".encode()
            while line:
                line = line[os.write(pipe, line) :]

        return cls(put)

    def ask(
        self,
        operation: str,
        request: dict[str, Any],
        request_id: str | None = None,
        unit: str | None = None,
    ) -> int:
        """Say what is about to be asked; the number to answer it by."""
        with self._lock:
            self._count += 1
            what = [operation, request, request_id, unit]
            self._put(["ask", self._count, time.monotonic_ns(), *what])
            return self._count

    def answer(self, number: int, answer: Answer) -> None:
        """Say what came of it."""
        with self._lock:
            self._put(["answer", number, answer.kind, answer.value, answer.at])

    def note(self, what: str, value: Any = None) -> None:
        """Say something else."""
        with self._lock:
            self._put(["note", what, value])


@dataclass
class Book:
    """All that the workers of a run have written."""

    asks: list[Ask] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    answers: int = 0
    _by_number: dict[tuple[str, int], Ask] = field(default_factory=dict)

    def add(self, worker: str, entry: Entry) -> None:
        """Take one entry of a worker's."""
        what, *rest = entry
        if what == "ask":
            made = Ask(worker, *rest)
            self.asks.append(made)
            self._by_number[worker, made.number] = made
        elif what == "answer":
            number, *answer = rest
            self._by_number[worker, number].answer = Answer(*answer)
            self.answers += 1
        else:
            name, value = rest
            self.notes[name] = value

    def ledger(self, worker: str) -> Ledger:
        """A ledger that writes here, of somebody who is not to be killed."""
        return Ledger(lambda entry: self.add(worker, json.loads(json.dumps(entry))))
