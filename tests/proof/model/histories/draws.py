"""Requests drawn at random: mostly sensible ones, of few ids, so that they meet each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.proof.model.plain.database import Database, Row
from tests.support import event, outbox_message, runtime_event

T = TypeVar("T")

ACTORS = ("a", "b", "c")
STREAMS = ("a", "s", "t")  # the first is also an actor's own
HOLDERS = ("h", "i")
WORKSPACES = ("w", "v")
PROJECTIONS = ("p", "q", "r")
REQUEST_IDS = ("r0", "r1", "r2", "r3", "r4", "r5")
TTLS = (60_000, 20, 100, 3_000, 60_000)


@cache
def _below(number: int) -> st.SearchStrategy[int]:
    return st.integers(0, number - 1)


class Dice:
    """Draws by Hypothesis, the first choice being the simplest."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def number(self, below: int) -> int:
        """One of so many numbers from 0 on."""
        return self._data.draw(_below(below)) if below > 1 else 0

    def pick(self, choices: Sequence[T]) -> T:
        """One of these."""
        return choices[self.number(len(choices))]

    def one_in(self, number: int) -> bool:
        """True once in so many times."""
        return self.number(number) == number - 1


class Draws:
    """Requests for a database in the state in which the plain one is."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._fresh = count(1)
        self.granted: list[Row] = []

    @property
    def live(self) -> list[Row]:
        """The leases that are live, as far as the time stored tells."""
        leases = self._database.leases.values()
        return [lease for lease in leases if lease["expiresAt"] > self._database.floor]

    def request(self, operation: str, dice: Dice) -> Row:
        """A request for an operation."""
        make: Callable[[Dice], Row] = getattr(self, operation)
        return make(dice)

    def request_id(self, dice: Dice) -> str | None:
        """A request id of a lease mutation, or none."""
        return dice.pick((None, None, None, None, *REQUEST_IDS))

    def _id(self, dice: Dice, kind: str, used: Sequence[str]) -> str:
        if used and dice.one_in(6):
            return dice.pick(used)
        return f"{kind}{next(self._fresh)}"

    # ------------------------------------------------------------------------------------- leases

    def acquire_lease(self, dice: Dice) -> Row:
        request: Row = {"actorId": dice.pick(ACTORS)}
        stream_id = dice.pick((*STREAMS, "actor's own", None))
        if stream_id != "actor's own":
            request["streamId"] = stream_id
        request |= {"holderId": dice.pick(HOLDERS), "ttlMs": dice.pick(TTLS)}
        if dice.one_in(4):
            request["now"] = dice.pick((5, 5.0, None))
        if dice.one_in(40):
            request["ttlMs"] = 2**53 - 1
        return request

    takeover_lease = acquire_lease

    def _shown(self, dice: Dice) -> Row:
        lease = self._lease(dice)
        return {"actorId": lease["actorId"], "lease": _credential(lease)}

    def _lease(self, dice: Dice) -> Row:
        """A lease to show: one that is stored, or was granted once, or never."""
        stored, live = list(self._database.leases.values()), self.live
        road = dice.number(16)
        if live and road < 12:
            return dice.pick(live)
        if stored and road < 14:
            return dice.pick(stored)
        if self.granted and road < 15:
            return dice.pick(self.granted)
        forged = {"actorId": dice.pick(ACTORS), "streamId": dice.pick(STREAMS)}
        return forged | {"epoch": 1 + dice.number(3), "nonce": "forged"}

    def heartbeat_lease(self, dice: Dice) -> Row:
        return self._shown(dice) | {"ttlMs": dice.pick(TTLS)}

    def compare_and_swap_lease(self, dice: Dice) -> Row:
        return self.heartbeat_lease(dice) | {"nextHolderId": dice.pick(HOLDERS)}

    def release_lease(self, dice: Dice) -> Row:
        return self._shown(dice)

    def get_lease(self, dice: Dice) -> Row:
        return {"actorId": dice.pick(ACTORS)}

    # ------------------------------------------------------------------------------------ commits

    def commit(self, dice: Dice) -> Row:
        lease = self._lease(dice)
        stream_id = dice.pick(STREAMS) if dice.one_in(12) else lease["streamId"]
        revision = self._database.revision_of(stream_id)
        known_events = [each["eventId"] for each in self._database.events]
        events = [self._event(dice, stream_id, known_events) for _ in range(dice.number(4))]
        request: Row = {
            "messageId": self._id(dice, "m", list(self._database.inbox)),
            "actorId": lease["actorId"],
            "lease": _credential(lease),
            "streamId": stream_id,
            "expectedRevision": revision + 1 if dice.one_in(12) else revision,
            "events": events,
        }
        if dice.one_in(3):
            known_events += [each["eventId"] for each in events]
            request["outbox"] = [self._message(dice, known_events) for _ in range(dice.number(3))]
        if dice.one_in(3):
            request["projections"] = [_projection(dice) for _ in range(dice.number(3))]
        if dice.one_in(4):
            request["inboxResult"] = dice.pick((None, {"b": 1, "a": [1.0, 2.5]}, "\ud800", 2**70))
        for name in ("outbox", "projections", "committedAt"):
            if dice.one_in(12):
                request.setdefault(name, None)
        return request

    def _event(self, dice: Dice, stream_id: str, known: Sequence[str]) -> Row:
        payload = _payload(dice, stream_id)
        drawn = event(self._id(dice, "e", known), payload)
        drawn["eventType"] = dice.pick(("domain.event", "note", "é"))
        if dice.one_in(4):
            drawn |= {"occurredAt": dice.pick((0, 77.0)), "traceId": "tr\u00e9\n"}
        if dice.one_in(6):
            drawn |= {"correlationId": "co", "causationId": None}
        return drawn

    def _message(self, dice: Dice, known_events: Sequence[str]) -> Row:
        drawn = outbox_message(self._id(dice, "o", list(self._database.outbox)))
        if dice.one_in(2):
            drawn["eventId"] = dice.pick((*known_events[-3:], "unknown"))
        if dice.one_in(3):
            drawn["availableAt"] = dice.pick((0, 1_050, 10**6))
        return drawn

    # -------------------------------------------------------------------------------------- reads

    def get_stream_revision(self, dice: Dice) -> Row:
        return {"streamId": dice.pick((*STREAMS, "none"))}

    def read_events(self, dice: Dice) -> Row:
        stream_id = dice.pick(STREAMS)
        request: Row = {"streamId": stream_id}
        return request | ({"afterRevision": dice.number(4)} if dice.one_in(2) else {})

    walk_events = read_events

    def read_authorized_events(self, dice: Dice) -> Row:
        lease = self._lease(dice)
        reader = {"actorId": lease["actorId"], "lease": _credential(lease)}
        stream_id = dice.pick(STREAMS) if dice.one_in(8) else lease["streamId"]
        return {"streamId": stream_id, "authorization": reader, "afterRevision": dice.number(3)}

    def read_authorized_events_page(self, dice: Dice) -> Row:
        lease = self._lease(dice)
        request = {
            "streamId": dice.pick(STREAMS) if dice.one_in(8) else lease["streamId"],
            "afterRevision": dice.number(4),
            "limit": dice.pick((128, 1, 2, 129)),
            "actorId": lease["actorId"],
            "lease": _credential(lease),
        }
        if dice.one_in(2):
            request["throughRevision"] = dice.pick((None, 0, 1, 3, 9))
        if dice.one_in(2):
            request["maxBytes"] = dice.pick((None, 2, 300, 700))
        return request

    def list_streams(self, dice: Dice) -> Row:
        request = {"workspaceId": dice.pick(WORKSPACES), "prefix": dice.pick((*STREAMS, "%"))}
        return request | self._listing(dice) | {"limit": dice.pick((512, 1, 513))}

    def _listing(self, dice: Dice) -> Row:
        after = dice.pick(("absent", None, "", "a", "s", "\0"))
        request: Row = {} if after == "absent" else {"afterStreamId": after}
        return request | ({"limit": dice.pick((1, 513, 2**60))} if dice.one_in(4) else {})

    def read_model_sources(self, dice: Dice) -> Row:
        return {"workspaceId": dice.pick(WORKSPACES)} | self._listing(dice)

    def read_journal(self, dice: Dice) -> Row:
        cursors = [each["cursor"] for each in self._database.events]
        request: Row = {"afterCursor": dice.pick((0, *cursors, 10**6))} if dice.one_in(2) else {}
        return request | ({"limit": dice.pick((1, 3, 129))} if dice.one_in(2) else {})

    walk_journal = read_journal

    def read_model_events(self, dice: Dice) -> Row:
        return {"workspaceId": dice.pick(WORKSPACES)} | self.read_journal(dice)

    walk_read_model_events = read_model_events

    def read_projection(self, dice: Dice) -> Row:
        return {"projectionId": dice.pick(PROJECTIONS)}

    # ------------------------------------------------------------------------------------- outbox

    def list_pending_outbox(self, dice: Dice) -> Row:
        request: Row = {"asOf": dice.pick((0, 1_050, 10**7, -1))} if dice.one_in(2) else {}
        return request | ({"limit": dice.pick((1, 2, 0))} if dice.one_in(3) else {})

    def mark_outbox_delivered(self, dice: Dice) -> Row:
        request: Row = {"outboxId": dice.pick((*self._database.outbox, "none"))}
        return request | ({"deliveredAt": dice.pick((5, None))} if dice.one_in(3) else {})


def _credential(lease: Row) -> Row:
    return {"epoch": lease["epoch"], "nonce": lease["nonce"]}


def _projection(dice: Dice) -> Row:
    value = dice.pick((1, None, {"sum": [1, 2.50, -0.0], "é": "\u2028"}))
    return {"projectionId": dice.pick(PROJECTIONS), "value": value}


def _payload(dice: Dice, stream_id: str) -> Any:
    """Anything, of a runtime event or nearly one, or just large."""
    road = dice.number(8)
    if road < 3:
        return dice.pick((None, {"b": 1.0, "a": [True, "é", 2**70]}, "\ud800 \U0001f600", 1e-7))
    if road == 3:
        return "x" * dice.pick((60, 150, 240, 700))
    workspace_id = dice.pick(WORKSPACES) if dice.one_in(6) else WORKSPACES[0]
    drawn = runtime_event(stream_id, workspace_id)
    if road == 4:
        drawn |= dice.pick(_OTHER_EVENTS)
    if road == 5:
        drawn["streamId"] = dice.pick(STREAMS)
    return drawn


_OTHER_EVENTS: tuple[Row, ...] = (
    {"sequence": 0},  # nobody's, but of the read model
    {"kind": "tool_start", "toolCallId": "c", "toolName": "n"},
    {"kind": "run.settled", "outcome": "lost", "error": None},
    {"kind": "process.reclaimed", "processId": "p", "exitCode": -9, "signal": None},
    {"kind": "domain.event", "eventType": "another"},
    {"version": "2", "revision": 1.0, "producerEpoch": None},
    {"actor": {"workspaceId": "v"}},
)
