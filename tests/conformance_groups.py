"""Recorded cases with their writes in groups: every one shares its transaction with others.

They are companions that leave nothing behind and make the group be done again, with savepoints; and
the writes recorded next, where the clock stands still between them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, ParamSpec, TypeVar, cast
from unittest.mock import patch

from sqlalchemy import bindparam, insert

from broker import journal
from broker.errors import IdempotencyConflict, Refusal, StaleLease
from broker.models import MetadataEntry, Stream
from broker.operations import Operations
from broker.options import Options
from broker.statements import Statement
from broker.transaction import FLOOR_KEY, Read, Transaction, Write
from tests.conformance import OPERATIONS, Case, Replay, answer
from tests.group_support import grouped, queue_of

T = TypeVar("T")
P = ParamSpec("P")

WRITING = {
    "acquire",
    "heartbeat",
    "compareAndSwap",
    "takeover",
    "release",
    "commit",
    "markDelivered",
}


class GroupReplay(Replay):
    """A case under way, with all of its writes in groups."""

    def runs(self, steps: list[Case]) -> Iterator[list[Case]]:
        """As many writes together as there are at one time."""
        together: list[Case] = []
        for step in steps:
            if together and not _are_at_one_time(together[-1], step):
                yield together
                together = []
            together.append(step)
        if together:
            yield together

    def answers(self, steps: list[Case]) -> list[Case]:
        """As they are, of writes that share a transaction."""
        if steps[0]["op"] not in WRITING:
            return super().answers(steps)
        prepared = [_prepared(step, self.broker.options) for step in steps]
        writes = [each for each in prepared if isinstance(each, Write)]
        outcomes = iter(self._grouped(writes, steps) if writes else [])
        return [
            answer(partial(_give, next(outcomes) if isinstance(each, Write) else each))
            for each in prepared
        ]

    def _grouped(self, writes: list[Write[Any]], steps: list[Case]) -> list[Any]:
        before: list[Write[Any]] = [Write(_be_refused)]
        if any(map(_moves_the_clock, steps)):
            before.append(_without_lease(self.broker.options))
        queue, nonces = queue_of(self.broker), self.clockwork.nonces
        writer = queue._writer
        start_over = writer._start_over

        def draw_the_same_nonces(*arguments: Any) -> Any:
            self.clockwork.nonces = nonces
            return start_over(*arguments)

        with patch.object(writer, "_start_over", draw_the_same_nonces):
            outcomes = grouped(queue, [*before, *writes, Write(_meet_a_constraint)])
        assert isinstance(outcomes[0], StaleLease)
        assert isinstance(outcomes[-1], IdempotencyConflict)
        return outcomes[len(before) : -1]


class _Preparing(Operations):
    """The operations, which give what they would do."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def _read(self, make: Callable[P, Read[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        raise NotImplementedError

    def _write(self, make: Callable[P, Write[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return cast(T, make(*args, **kwargs))


def _prepared(step: Case, options: Options) -> object:
    try:
        return OPERATIONS[step["op"]](_Preparing(options), step)
    except Refusal as error:
        return error


def _give(outcome: object) -> object:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _are_at_one_time(one: Case, other: Case) -> bool:
    return {one["op"], other["op"]} <= WRITING and (one["now"], one["mono"]) == (
        other["now"],
        other["mono"],
    )


def _moves_the_clock(step: Case) -> bool:
    """Whether a step is sure to be no repetition, which would leave the clock alone."""
    result = step["expect"].get("result")
    is_repeated = isinstance(result, dict) and result.get("recovered")
    return (
        step["op"] != "markDelivered"
        and "result" in step["expect"]
        and "requestId" not in step
        and not is_repeated
    )


# -------------------------------------------------------------------------------------- companions


def _be_refused(_transaction: Transaction) -> None:
    raise StaleLease("for company")


def _meet_a_constraint(transaction: Transaction) -> None:
    """Write something, meet a constraint, and say so, as a commit does."""
    try:
        with transaction.savepoint():
            transaction.channel.run(_NEW_STREAM, "company")
            transaction.channel.run(_USED, "company")
    except sqlite3.IntegrityError as error:
        raise IdempotencyConflict("for company") from error


_NUMBERS = count()


def _without_lease(options: Options) -> Write[Any]:
    """A commit that is refused for its lease, as it moves the clock."""
    request = {
        "messageId": f"company-{next(_NUMBERS)}",
        "actorId": "company",
        "streamId": "company",
        "lease": {"epoch": 1, "nonce": "none"},
        "expectedRevision": 0,
        "events": [],
    }
    return journal.commit(request, options)


_NEW_STREAM = Statement(
    insert(Stream).values(stream_id=bindparam("id"), revision=0, created_at=0, updated_at=0), "id"
)
_USED = Statement(insert(MetadataEntry).values(key=FLOOR_KEY, value=bindparam("value")), "value")
