"""A state of the store as the model has it, and what can be read from one.

Time is part of it without being guessed: a state has the least that broker time can be by then, and
each operation bounds of its own. Where an answer does not tell its time, it is the earliest that
explains the answer. That leaves to later ones whatever any other would: time only makes leases end,
and who needs one ended can wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.proof.linearizability.calls import Call

RELEASED = -1  # for the end of a lease that was given up, whose answer does not tell its time


class Row(NamedTuple):
    """The last lease of a stream; None is what no answer has told yet, or no actor any more."""

    stream: str
    actor: str | None
    holder: str | None
    epoch: int
    nonce: str | None = None
    acquired: int | None = None
    heartbeat: int | None = None
    expires: int | None = None


class Journal(NamedTuple):
    """The events of a stream, by their ids, and its last cursor as far as it is known."""

    stream: str
    events: tuple[str, ...] = ()
    cursor: int = 0


class State(NamedTuple):
    """A store. `done` has what may be repeated: its id, its content, its result if that is known.

    `is_serial` where one writes at a time, so that broker time follows the order of operations. On
    PostgreSQL it does so for each lease alone: who does not meet may end in another order than they
    have read the time in.
    """

    is_serial: bool = True
    time: float = 0
    rows: tuple[Row, ...] = ()
    journals: tuple[Journal, ...] = ()
    done: frozenset[tuple[str, str, Any]] = frozenset()


def at(state: State, time: float) -> State:
    """The state at this time or later."""
    return state._replace(time=max(state.time, time)) if state.is_serial else state


def row_of(state: State, actor: str) -> Row | None:
    return next((row for row in state.rows if row.actor == actor), None)


def row_on(state: State, stream: str) -> Row | None:
    return next((row for row in state.rows if row.stream == stream), None)


def journal_of(state: State, stream: str) -> Journal:
    return next((each for each in state.journals if each.stream == stream), Journal(stream))


def with_row(state: State, row: Row) -> State:
    """The state after a stream has got this for its last lease; one that its actor leaves stays."""
    rows = [
        Row(each.stream, None, None, each.epoch, expires=0) if each.actor == row.actor else each
        for each in state.rows
        if each.stream != row.stream
    ]
    return state._replace(rows=tuple(sorted([*rows, row], key=lambda each: each.stream)))


def time_of(
    state: State,
    call: Call,
    told: int | None = None,
    *,
    over: Sequence[Row | None] = (),
    live: Sequence[Row | None] = (),
) -> float | None:
    """Broker time of an operation that found these leases over and those live; None if never.

    It is what the answer has told, or else the earliest.
    """
    ends = [row.expires or 0 for row in over if row is not None]
    beats = [row.heartbeat or 0 for row in (*over, *live) if row is not None]
    earliest = max(state.time, call.earliest, *ends, *beats)
    time = earliest if told is None else told
    if not earliest <= time <= call.latest:
        return None
    is_live = all(row is not None and (row.expires is None or row.expires > time) for row in live)
    return time if is_live else None


def matches(row: Row | None, credential: dict[str, Any]) -> bool:
    """Whether a credential is that of a lease, or may be."""
    if row is None or row.epoch != credential["epoch"]:
        return False
    return row.nonce is None or row.nonce == credential["nonce"]


def told_of(row: Row, lease: dict[str, Any]) -> Row | None:
    """A row together with what an answer tells of it, None where they differ."""
    told = Row(
        stream=lease["streamId"],
        actor=lease["actorId"],
        holder=lease["holderId"],
        epoch=lease["epoch"],
        nonce=lease["nonce"],
        acquired=lease["acquiredAt"],
        heartbeat=lease["heartbeatAt"],
        expires=lease["expiresAt"],
    )
    if row.expires == RELEASED:
        row = row._replace(expires=told.heartbeat)
    is_same = all(ours is None or ours == theirs for ours, theirs in zip(row, told, strict=True))
    return told if is_same else None
