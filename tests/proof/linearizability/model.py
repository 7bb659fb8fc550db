"""The store as one object that does one thing after another: where an operation may lead.

Of what an answer does not tell, a state keeps that it is not known; `state` says how time goes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.proof.linearizability.calls import Call, Recorded
from tests.proof.linearizability.state import (
    RELEASED,
    Journal,
    Row,
    State,
    at,
    journal_of,
    matches,
    row_of,
    row_on,
    time_of,
    told_of,
    with_row,
)


def step(state: State, operation: Recorded) -> Iterator[State]:
    """See `search.Step`."""
    call = operation.call
    recorded = [each for each in state.done if each[0] == call.id]
    if recorded or call.method in _READS:
        if operation.answered is not None:
            yield from (
                _repeated(state, call, *recorded[0])
                if recorded
                else _READS[call.method](state, call)
            )
    elif call.refusal is None:
        yield from _WRITES[call.method](state, call)
    else:
        yield from _refused(state, call)


# ---------------------------------------------------------------------------------- repetitions


def _repeated(state: State, call: Call, _id: str, content: str, result: Any) -> Iterator[State]:
    """An answer to an id that was used before."""
    if content != call.content:
        if call.refusal is not None and call.refusal["code"] == "idempotency_conflict":
            yield state
        return
    is_it = call.refusal is None and (result is None or result == _to_remember(call))
    if is_it and (call.method != "commit" or call.result["recovered"]):
        yield state


def _to_remember(call: Call) -> Any:
    result = call.result
    if isinstance(result, dict):
        return tuple(
            sorted((name, str(each)) for name, each in result.items() if name != "recovered")
        )
    return result


def _remembering(state: State, call: Call) -> State:
    if not call.is_repeated:
        return state
    return state._replace(done=state.done | {(str(call.id), call.content, _to_remember(call))})


# ------------------------------------------------------------------------------------------- writes


def _acquire(state: State, call: Call) -> Iterator[State]:
    actor, stream = _names(call)
    last = row_on(state, stream)
    if call.method == "takeover_lease" and last is None:
        return
    row = Row(stream, actor, call.request["holderId"], 1 if last is None else last.epoch + 1)
    yield from _grant(state, call, row, over=[row_of(state, actor), last])


def _swap(state: State, call: Call) -> Iterator[State]:
    actor, last = call.request["actorId"], row_of(state, call.request["actorId"])
    if last is not None and matches(last, call.request["lease"]):
        row = Row(last.stream, actor, call.request["nextHolderId"], last.epoch + 1)
        yield from _grant(state, call, row, live=[last])


def _grant(
    state: State,
    call: Call,
    row: Row,
    *,
    over: Sequence[Row | None] = (),
    live: Sequence[Row | None] = (),
) -> Iterator[State]:
    now = call.result and call.result["acquiredAt"]
    time = time_of(state, call, now, over=over, live=live)
    if time is None:
        return
    if call.result is not None:
        expires = now + call.request["ttlMs"]
        expected = row._replace(acquired=now, heartbeat=now, expires=expires)
        granted = told_of(expected, call.result)
        if granted is None or granted.nonce in {each.nonce for each in state.rows}:
            return
        row = granted
    yield _remembering(at(with_row(state, row), time), call)


def _heartbeat(state: State, call: Call) -> Iterator[State]:
    last = row_of(state, call.request["actorId"])
    now = call.result and call.result["heartbeatAt"]
    time = time_of(state, call, now, live=[last])
    if last is None or time is None or not matches(last, call.request["lease"]):
        return
    row: Row | None = last._replace(heartbeat=None, expires=None)
    if call.result is not None:
        expires = now + call.request["ttlMs"]
        row = told_of(last._replace(heartbeat=now, expires=expires), call.result)
    if row is not None:
        yield _remembering(at(with_row(state, row), time), call)


def _release(state: State, call: Call) -> Iterator[State]:
    last = row_of(state, call.request["actorId"])
    time = time_of(state, call, live=[last])
    if last is not None and time is not None and matches(last, call.request["lease"]):
        row = last._replace(heartbeat=None, expires=RELEASED)
        yield _remembering(at(with_row(state, row), time), call)


def _commit(state: State, call: Call) -> Iterator[State]:
    request, result = call.request, call.result
    row, journal = row_of(state, request["actorId"]), journal_of(state, request["streamId"])
    time = time_of(state, call, result and result["appliedAt"], live=[row])
    if row is None or time is None or not matches(row, request["lease"]):
        return
    if row.stream != journal.stream or request["expectedRevision"] != len(journal.events):
        return
    ids = [each["eventId"] for each in request["events"]]
    cursor = journal.cursor
    if result is not None:
        if not _is_result(result, request, journal, ids):
            return
        cursor = max([cursor, *result["eventCursors"]])
    others = [each for each in state.journals if each.stream != journal.stream]
    after = Journal(journal.stream, (*journal.events, *ids), cursor)
    journals = tuple(sorted([*others, after]))
    yield _remembering(at(state._replace(journals=journals), time), call)


def _is_result(
    result: dict[str, Any], request: dict[str, Any], journal: Journal, ids: list[str]
) -> bool:
    """Whether this is the result of a commit that is done now."""
    cursors = [journal.cursor, *result["eventCursors"]]
    revision = len(journal.events)
    expected = {
        "messageId": request["messageId"],
        "streamId": journal.stream,
        "previousRevision": revision,
        "revision": revision + len(ids),
        "eventIds": ids,
        "recovered": False,
    }
    is_growing = all(before < after for before, after in itertools.pairwise(cursors))
    is_whole = len(cursors) == len(ids) + 1
    return is_growing and is_whole and expected.items() <= result.items()


# ----------------------------------------------------------------------------------------- refusals


def _refused(state: State, call: Call) -> Iterator[State]:
    """Where a refusal leads: nothing changes, but it tells something of the state."""
    code = call.refusal["code"] if call.refusal else ""
    details = call.refusal.get("details", {}) if call.refusal else {}
    if code == "lease_unavailable" and call.method in {"acquire_lease", "takeover_lease"}:
        yield from _unavailable(state, call, details)
    elif code == "stale_lease" and "lease" in call.request:
        yield from _stale(state, call, details)
    elif code == "revision_conflict" and call.method == "commit":
        yield from _conflict(state, call, details)


def _conflict(state: State, call: Call, details: dict[str, Any]) -> Iterator[State]:
    """A stream that is at another revision than expected, found by who may write to it."""
    request, row = call.request, row_of(state, call.request["actorId"])
    journal = journal_of(state, request["streamId"])
    actual = len(journal.events)
    if row is None or row.stream != journal.stream or not matches(row, request["lease"]):
        return
    if details["actualRevision"] == actual != request["expectedRevision"]:
        yield from _found(state, call, live=[row])


def _unavailable(state: State, call: Call, details: dict[str, Any]) -> Iterator[State]:
    """A lease that is in the way: of the stream, where the details name that, or of the actor."""
    actor, stream = _names(call)
    mine, last, named = row_of(state, actor), row_on(state, stream), details.get("streamId")
    if "expiresAt" not in details:  # of a takeover there is nothing to take over
        if last is None and call.method == "takeover_lease" and named == stream:
            yield from _found(state, call)
        return
    over: list[Row | None] = []
    if call.method == "takeover_lease":  # which looks at the stream first, an acquisition last
        blocking, over = (last, []) if named == stream else (mine, [last])
        is_named = blocking is not None and named == blocking.stream
    else:
        blocking, over = (mine, []) if named is None else (last, [mine])
        is_named = named in {None, stream}
    if blocking is None or not is_named or blocking.expires not in {None, details["expiresAt"]}:
        return
    blocking = blocking._replace(expires=details["expiresAt"])
    yield from _found(with_row(state, blocking), call, over=over, live=[blocking])


def _stale(state: State, call: Call, details: dict[str, Any]) -> Iterator[State]:
    """A credential that is not that of a live lease, or of one on another stream."""
    row = row_of(state, call.request["actorId"])
    is_shown = row is not None and matches(row, call.request["lease"])
    if "authorizedStreamId" in details:
        named = details["authorizedStreamId"], details["streamId"]
        if row is not None and is_shown and named[0] == row.stream != named[1]:
            yield from _found(state, call, live=[row])
    elif row is not None and is_shown and row.nonce is not None:
        yield from _found(state, call, over=[row])
    else:
        yield from _found(state, call)


def _found(
    state: State,
    call: Call,
    *,
    over: Sequence[Row | None] = (),
    live: Sequence[Row | None] = (),
) -> Iterator[State]:
    """The state at the time of an operation that found these leases over and those live."""
    time = time_of(state, call, over=over, live=live)
    if time is not None:
        yield at(state, time)


def _names(call: Call) -> tuple[str, str]:
    """The actor and the stream of a request."""
    actor: str = call.request["actorId"]
    return actor, call.request.get("streamId", actor)


# -------------------------------------------------------------------------------------------- reads


def _get(state: State, call: Call) -> Iterator[State]:
    row = row_of(state, call.request["actorId"])
    if row is None or call.result is None:
        if row is call.result:
            yield state
        return
    told = told_of(row, call.result)
    if told is not None:  # the end of a lease that was released has come by then
        ended = told.expires or 0 if row.expires == RELEASED else 0
        yield at(with_row(state, told), ended)


def _revision(state: State, call: Call) -> Iterator[State]:
    if call.result == len(journal_of(state, call.request["streamId"]).events):
        yield state


def _events(state: State, call: Call) -> Iterator[State]:
    if tuple(call.result) == journal_of(state, call.request["streamId"]).events:
        yield state


_Judge = Callable[[State, Call], Iterator[State]]

_READS: dict[str, _Judge] = {
    "get_lease": _get,
    "get_stream_revision": _revision,
    "read_events": _events,
}
_WRITES: dict[str, _Judge] = {
    "acquire_lease": _acquire,
    "takeover_lease": _acquire,
    "heartbeat_lease": _heartbeat,
    "compare_and_swap_lease": _swap,
    "release_lease": _release,
    "commit": _commit,
}
