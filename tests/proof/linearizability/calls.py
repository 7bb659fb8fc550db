"""What was asked of a store and answered, as the model takes it."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from tests.proof.linearizability.search import Operation


@dataclass(frozen=True)
class Call:
    """One operation of a store's: its name, its request in camelCase, and what came of it.

    `result` is in camelCase too, of a read of events their ids; `refusal` the JSON form of the error
    instead. Both are None where there was no answer, or the result was None. `earliest` and `latest`
    bound the broker time that it can have had, in milliseconds. `is_repeated` if others have its id.
    """

    who: str
    method: str
    request: dict[str, Any]
    request_id: str | None = None
    earliest: float = 0
    latest: float = math.inf
    result: Any = None
    refusal: dict[str, Any] | None = None
    is_repeated: bool = False

    @property
    def id(self) -> str | None:
        """The id by which it is safe to repeat, if it has one."""
        if self.method == "commit":
            return f"message {self.request['messageId']}"
        return None if self.request_id is None else f"request {self.request_id}"

    @property
    def content(self) -> str:
        """What a repetition has to have in common with it."""
        request = self.request
        if self.method == "commit":
            request = {name: each for name, each in request.items() if name != "lease"}
        return json.dumps([self.method, request], sort_keys=True)


Recorded: TypeAlias = Operation[Call]


def prepared(history: Sequence[Recorded]) -> list[Recorded]:
    """A history for the model: it knows who has the same id.

    Who has no answer gets the result that a repetition got: if it took effect, it was with that one.
    """
    known = {
        (each.call.id, each.call.content): _of_the_first(each.call)
        for each in history
        if each.call.result is not None
    }
    times = Counter(each.call.id for each in history)

    def prepare(call: Call, *, is_answered: bool) -> Call:
        if call.id is None or times[call.id] == 1:
            return call
        result = call.result if is_answered else known.get((call.id, call.content))
        return replace(call, result=result, is_repeated=True)

    return [
        replace(each, call=prepare(each.call, is_answered=each.answered is not None))
        for each in history
    ]


def _of_the_first(call: Call) -> Any:
    return call.result | {"recovered": False} if call.method == "commit" else call.result


def listing(history: Sequence[Recorded]) -> str:
    """A history for people to read, a line an operation, with times in microseconds."""
    start = min((each.called for each in history), default=0)
    return "\n".join(_line(each, start) for each in sorted(history, key=lambda each: each.called))


def _line(operation: Recorded, start: int) -> str:
    call = operation.call
    times = f"{(operation.called - start) // 1_000:>8}"
    if operation.answered is None:
        times, answer = f"{times}        …", "no answer"
    else:
        times = f"{times} {(operation.answered - start) // 1_000:>8}"
        answer = json.dumps(call.refusal or call.result)
    repeatable = f" as {call.request_id}" if call.request_id else ""
    return f"  {times} {call.who}: {call.method} {json.dumps(call.request)}{repeatable} -> {answer}"
