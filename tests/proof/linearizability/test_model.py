"""The model by itself: of short histories, whether an operation may have had its answer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.proof.linearizability.calls import Call, Recorded, listing, prepared
from tests.proof.linearizability.model import step
from tests.proof.linearizability.search import Operation, is_linearizable
from tests.proof.linearizability.state import State

LEASE = {
    "actorId": "a",
    "streamId": "s",
    "holderId": "h",
    "epoch": 1,
    "nonce": "one",
    "acquiredAt": 100,
    "heartbeatAt": 100,
    "expiresAt": 150,
}
SHOWN = {"epoch": 1, "nonce": "one"}
STALE = {"code": "stale_lease", "details": {"actorId": "a"}}


def _one_after_another(*calls: Call | None, **unanswered: Call) -> list[Recorded]:
    """Each is called after the answer to the last; those by name are called first and unanswered."""
    first = [Operation(0, None, call) for call in unanswered.values()]
    answered = [
        Operation(2 * place, 2 * place + 1, call) for place, call in enumerate(calls) if call
    ]
    return [*first, *answered]


def _may_be(history: list[Recorded], *, is_serial: bool = True) -> bool:
    return is_linearizable(prepared(history), State(is_serial), step)


def _call(method: str, result: Any = None, *, refusal: Any = None, **more: Any) -> Call:
    """A call at broker time 100 to 199, unless `earliest` and `latest` say otherwise."""
    named = {name: more.pop(name) for name in ("request_id", "earliest", "latest") if name in more}
    bounds: Any = {"earliest": 100, "latest": 199} | named
    return Call("p", method, more, result=result, refusal=refusal, **bounds)


def _acquire(result: Any = None, **more: Any) -> Call:
    asked = {"actorId": "a", "streamId": "s", "holderId": "h", "ttlMs": 50}
    return _call("acquire_lease", result, **asked | more)


def _heartbeat(result: Any = None, **more: Any) -> Call:
    return _call("heartbeat_lease", result, actorId="a", lease=SHOWN, ttlMs=50, **more)


def _release(**more: Any) -> Call:
    return _call("release_lease", actorId="a", lease=SHOWN, **more)


def _get(result: Any) -> Call:
    return _call("get_lease", result, actorId="a")


def _commit(message: str, revision: int, cursor: int | None = None, **more: Any) -> Call:
    """A commit of one event; with a cursor it was done."""
    request = {
        "messageId": message,
        "actorId": "a",
        "streamId": "s",
        "lease": SHOWN,
        "expectedRevision": revision,
        "events": [{"eventId": message}],
    }
    result = {
        "messageId": message,
        "streamId": "s",
        "previousRevision": revision,
        "revision": revision + 1,
        "eventIds": [message],
        "eventCursors": [cursor],
        "outboxIds": [],
        "appliedAt": 110,
        "recovered": more.pop("recovered", False),
    }
    return _call("commit", None if cursor is None else result, **request, **more)


def _unavailable(**details: Any) -> dict[str, Any]:
    return {"code": "lease_unavailable", "details": {"actorId": "a", **details}}


NEXT = LEASE | {"epoch": 2, "nonce": "two", "acquiredAt": 160, "heartbeatAt": 160, "expiresAt": 210}
KEPT = LEASE | {"heartbeatAt": 120, "expiresAt": 170}
CONFLICT = {"code": "revision_conflict", "details": {"actualRevision": 1}}
CLASH = {"code": "idempotency_conflict", "details": {}}

POSSIBLE = {
    "a lease, kept, given up, and taken again": _one_after_another(
        _acquire(LEASE), _heartbeat(KEPT), _release(), _acquire(NEXT)
    ),
    "a lease that ends by itself": _one_after_another(_acquire(LEASE), _acquire(NEXT)),
    "refused until it ends, then stale": _one_after_another(
        _acquire(LEASE),
        _acquire(refusal=_unavailable(expiresAt=150)),
        _heartbeat(refusal=STALE),
    ),
    "a release tells its time by the row": _one_after_another(
        _acquire(LEASE),
        _release(),
        _get(LEASE | {"heartbeatAt": 130, "expiresAt": 130}),
    ),
    "an acquisition without an answer that a reader sees": _one_after_another(
        _get(LEASE), killed=_acquire(latest=math.inf)
    ),
    "one that did not happen": _one_after_another(_get(None), killed=_acquire(latest=math.inf)),
    "a repetition gets what was recorded": _one_after_another(
        _acquire(LEASE, request_id="r"), _release(), _acquire(LEASE, request_id="r")
    ),
    "an id that was used for something else": _one_after_another(
        _acquire(LEASE, request_id="r"), _acquire(refusal=CLASH, request_id="r", ttlMs=51)
    ),
    "appending, and its repetition": _one_after_another(
        _acquire(LEASE), _commit("m", 0, 7), _commit("m", 0, 7, recovered=True)
    ),
    "appending that is refused": _one_after_another(
        _acquire(LEASE), _commit("m", 0, 7), _commit("n", 0, refusal=CONFLICT)
    ),
    "a commit without an answer whose repetition is recovered": _one_after_another(
        _acquire(LEASE), _commit("m", 0, 7, recovered=True), killed=_commit("m", 0, latest=math.inf)
    ),
}
IMPOSSIBLE = {
    "two have the lease at the same time": _one_after_another(
        _acquire(LEASE),
        _acquire(NEXT | {"acquiredAt": 149, "heartbeatAt": 149, "expiresAt": 199}),
    ),
    "an epoch that comes twice": _one_after_another(_acquire(LEASE), _acquire(NEXT | {"epoch": 1})),
    "a nonce that comes twice": _one_after_another(
        _acquire(LEASE), _acquire(NEXT | {"nonce": "one"})
    ),
    "time that runs backwards": _one_after_another(
        _acquire(LEASE), _heartbeat(LEASE | {"heartbeatAt": 99, "expiresAt": 149}, earliest=0)
    ),
    "a time before the call": _one_after_another(_acquire(LEASE, earliest=101)),
    "a time after the answer": _one_after_another(_acquire(LEASE, latest=99)),
    "stale before its end": _one_after_another(
        _acquire(LEASE), _heartbeat(refusal=STALE, latest=149)
    ),
    "refused after its end": _one_after_another(
        _acquire(LEASE), _acquire(refusal=_unavailable(expiresAt=150), earliest=150)
    ),
    "kept after it was given up": _one_after_another(_acquire(LEASE), _release(), _heartbeat(KEPT)),
    "a lease that nobody asked for": _one_after_another(_get(LEASE)),
    "a lease that is gone": _one_after_another(_acquire(LEASE), _get(None)),
    "a repetition that is done again": _one_after_another(
        _acquire(LEASE, request_id="r"), _release(), _acquire(NEXT, request_id="r")
    ),
    "a message that is applied twice": _one_after_another(
        _acquire(LEASE), _commit("m", 0, 7), _commit("m", 0, 8)
    ),
    "two at one revision": _one_after_another(
        _acquire(LEASE), _commit("m", 0, 7), _commit("n", 0, 8)
    ),
    "cursors that go back": _one_after_another(
        _acquire(LEASE), _commit("m", 0, 7), _commit("n", 1, 6)
    ),
    "a commit without a lease": _one_after_another(_commit("m", 0, 7)),
    "recovered although never done": _one_after_another(
        _acquire(LEASE), _commit("m", 0, 7, recovered=True)
    ),
    "an error that does not belong to the operation": _one_after_another(
        _acquire(LEASE), _get(LEASE), _acquire(refusal=CONFLICT)
    ),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_what_a_store_may_do_is_possible(name: str) -> None:
    assert _may_be(POSSIBLE[name])


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_no_store_may_do_is_not(name: str) -> None:
    assert not _may_be(IMPOSSIBLE[name])


@pytest.mark.parametrize("is_serial", [True, False])
def test_where_several_write_at_once_each_lease_has_a_time_of_its_own(is_serial: bool) -> None:
    other = LEASE | {"actorId": "b", "streamId": "t", "acquiredAt": 130, "heartbeatAt": 130}
    asked = {"actorId": "b", "streamId": "t"}
    history = [
        Operation(0, 9, _acquire(LEASE)),  # at 100
        Operation(1, 2, _acquire(other | {"expiresAt": 180, "nonce": "another"}, **asked)),
        Operation(3, 4, _get(None)),
    ]
    assert _may_be(history, is_serial=is_serial) is not is_serial


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_nor_is_it_where_several_write_at_once(name: str) -> None:
    assert not _may_be(IMPOSSIBLE[name], is_serial=False)


def test_a_history_is_listed_in_the_order_of_its_calls() -> None:
    history = _one_after_another(_acquire(LEASE, request_id="r"), _release(), killed=_heartbeat())
    lines = listing(history).splitlines()
    assert [line.split(": ")[1].split()[0] for line in lines] == [
        "heartbeat_lease",
        "acquire_lease",
        "release_lease",
    ]
    assert lines[0].endswith("no answer")
    assert "as r -> {" in lines[1]
