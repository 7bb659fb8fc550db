"""Whether what a real store answered is something that the protocol can do.

What a trace does not tell, when a lease expired, is found by trying: the protocol is followed in
every state that it may be in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from tests.proof.model.histories.world import Asked
from tests.proof.model.plain.database import Refused as InvalidRequest
from tests.proof.model.plain.requests import accepted, is_id
from tests.proof.model.plain.text import canonical
from tests.proof.model.protocol.rules import Answer, Protocol, Request, Stored

KINDS = {
    "acquire_lease": "acquire",
    "takeover_lease": "takeover",
    "heartbeat_lease": "heartbeat",
    "compare_and_swap_lease": "swap",
    "release_lease": "release",
    "commit": "commit",
}
#: Of these ids the protocol knows nothing.
_OTHER_IDS = {"field", "projectionId"}


def first_impossible(trace: Sequence[Asked], protocol: Protocol | None = None) -> int | None:
    """The place in a trace of the first answer that the protocol cannot give; None if it can all.

    The trace has every lease mutation and commit of a database since it was new, in their order.
    """
    reader = _Reader(protocol or Protocol())
    for place, asked in enumerate(trace):
        if asked.operation in KINDS and not reader.accepts(asked):
            return place
    return None


class _Reader:
    """Reads a trace; `_states` are those in which the database may be, as the protocol has it."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._states = {Stored()}
        self._nonces: dict[str, int] = {}  # by their text, the number of their grant

    def accepts(self, asked: Asked) -> bool:
        """Whether the answer is possible; what is possible afterwards is remembered."""
        error = asked.answer.get("error", {})
        if error.get("code") == "invalid_request" or _OTHER_IDS & error.get("details", {}).keys():
            return True  # which changes nothing that the protocol knows of
        try:
            request = self._request(asked)
        except InvalidRequest:
            return False
        after = set()
        for state in self._states:
            for possible in _expiring(state):
                done, answer = self._done(possible, request)
                if self._is_same(answer, asked.answer, state, done):
                    after.add(done)
        self._states = after
        return bool(after)

    def _request(self, asked: Asked) -> Request:
        given = accepted(asked.operation, asked.request)
        lease = given.get("lease", {"epoch": 0, "nonce": ""})
        kind, actor_id = KINDS[asked.operation], given["actorId"]
        if asked.request_id is not None and not is_id(asked.request_id, 256):
            raise InvalidRequest("invalid_request")
        compared = given
        if kind == "commit":
            compared = {name: given[name] for name in given.keys() - {"lease", "committedAt"}}
        prefix = "message" if kind == "commit" else "request"
        key = given["messageId"] if kind == "commit" else asked.request_id
        return Request(
            kind,
            "" if key is None else f"{prefix} {key}",
            actor_id,
            given.get("streamId", actor_id),
            lease["epoch"],
            self._nonces.get(lease["nonce"], -1),
            given.get("expectedRevision", 0),
            len(given.get("events", [])),
            canonical(compared),
        )

    def _done(self, stored: Stored, request: Request) -> tuple[Stored, Answer]:
        memory: Any = None
        for name in self._protocol.steps:
            stored, memory, answer = self._protocol.step(name, stored, request, memory)
            if answer is not None:
                return stored, answer
        raise AssertionError("an operation ends with an answer")

    def _is_same(
        self, answer: Answer, actual: dict[str, Any], before: Stored, done: Stored
    ) -> bool:
        if "error" in actual:
            return bool(answer.kind == actual["error"]["code"])
        result = actual["result"]
        if answer.kind == "lease":
            nonce = result["nonce"]
            is_new = done.grants > before.grants
            if is_new and nonce not in self._nonces:
                self._nonces[nonce] = answer.nonce
            known = self._nonces.get(nonce)
            return (answer.stream, answer.at, answer.nonce) == (
                result["streamId"],
                result["epoch"],
                known,
            )
        if answer.kind == "written":
            is_recovered = done.writes == before.writes
            return (answer.stream, answer.at, is_recovered) == (
                result["streamId"],
                result["revision"],
                result["recovered"],
            )
        return answer.kind == "released" and result is None


def _expiring(stored: Stored) -> Iterator[Stored]:
    """The state, and those in which some of its live leases have expired."""
    live = [lease for lease in stored.leases if lease.is_live]
    for number in range(len(live) + 1):
        for gone in combinations(live, number):
            expired = stored
            for lease in gone:
                expired = expired.with_lease(lease._replace(is_live=False))
            yield expired


def altered(trace: Sequence[Asked]) -> Iterable[tuple[str, list[Asked]]]:
    """Copies of a trace, each with one answer that the store did not and must not give."""
    last_nonces: dict[str, str] = {}  # by stream
    for place, asked in enumerate(trace):
        for name, answer in _alterations(asked, last_nonces):
            changed = replace(asked, answer=answer)
            yield name, [*trace[:place], changed, *trace[place + 1 :]]
        result = asked.answer.get("result")
        if isinstance(result, dict) and "nonce" in result:
            last_nonces[result["streamId"]] = result["nonce"]


def _alterations(
    asked: Asked, last_nonces: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    result = asked.answer.get("result")
    code = asked.answer.get("error", {}).get("code")
    if asked.operation not in KINDS:
        return
    if isinstance(result, dict) and "epoch" in result:
        yield "a lower epoch", {"result": result | {"epoch": result["epoch"] - 1}}
        yield "a higher epoch", {"result": result | {"epoch": result["epoch"] + 1}}
        yield "another stream", {"result": result | {"streamId": "elsewhere"}}
    if isinstance(result, dict) and "recovered" in result:
        yield "another revision", {"result": result | {"revision": result["revision"] + 1}}
        yield "another recovery", {"result": result | {"recovered": not result["recovered"]}}
    if asked.operation != "commit" or code not in {"stale_lease", "revision_conflict"}:
        return
    nonce = last_nonces.get(asked.request["streamId"])
    if code == "revision_conflict" or asked.request["lease"]["nonce"] != nonce:
        revision = asked.request["expectedRevision"] + len(asked.request["events"])
        written = {
            "streamId": asked.request["streamId"],
            "revision": revision,
            "recovered": False,
        }
        yield f"a commit in spite of {code}", {"result": written}
