"""The runs: which there are, what each commits, and what it claims to have stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from broker.cli.demo.legacy import Legacy
from broker.messages import CommitResult, Lease

WORKSPACES = ("atlas", "borealis")
FRAME = "teammate.runtime-read-model.frame.v2"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much there is to do: so many windows share so many runs."""

    windows: int = 16
    runs: int = 128


@dataclass(slots=True)
class Run:
    """A run: an actor at work on a stream, with what it claims of the store so far.

    Only the window that holds its lease touches it. `epoch` is that of the last lease, 0 if there
    never was one; `events` are the payloads by id, in order, `commits` each request
    with its result, `receipts` the ids under which lease requests were answered.
    """

    number: int
    actor_id: str
    stream_id: str
    workspace_id: str
    epoch: int = 0
    revision: int = 0
    lease: Lease | None = None
    commits: list[tuple[dict[str, Any], CommitResult]] = field(default_factory=list)
    events: dict[str, Any] = field(default_factory=dict)
    frames: list[str] = field(default_factory=list)
    outbox: list[str] = field(default_factory=list)
    receipts: list[str] = field(default_factory=list)
    projection: Any = None

    # What happens to a run, by its number; every kind occurs among any eight in a row.

    @property
    def meets_conflict(self) -> bool:
        """Whether it tries to commit at a revision that has passed."""
        return self.number % 4 == 1

    @property
    def is_handed_over(self) -> bool:
        """Whether its window hands it to the next one in the middle."""
        return self.number % 4 == 2

    @property
    def is_abandoned(self) -> bool:
        """Whether its window falls silent in the middle, and another has to take it over."""
        return self.number % 8 == 7

    @property
    def projection_id(self) -> str:
        return f"runs/{self.stream_id}"

    def receipt(self, name: str) -> str:
        """The id of a lease request that is going to be carried out."""
        request_id = f"{self.stream_id}/{name}"
        self.receipts.append(request_id)
        return request_id

    def record(self, request: dict[str, Any], result: CommitResult) -> None:
        """Claim that a commit was stored."""
        for event in request["events"]:
            self.events[event["eventId"]] = event["payload"]
            if event["payload"].get("eventType") == FRAME:
                self.frames.append(event["eventId"])
        self.outbox += [message["outboxId"] for message in request["outbox"]]
        self.projection = request["projections"][0]["value"]
        self.revision += len(request["events"])
        self.commits.append((request, result))


def plan_runs(plan: Plan, old: Legacy) -> list[Run]:
    """The actors of version 1, who go on with their streams, and as many new ones as it takes."""
    old_runs = [
        Run(
            number,
            actor_id=actor_id,
            stream_id=actor_id,
            workspace_id=old.owners.get(actor_id, WORKSPACES[0]),
            epoch=epoch,
            revision=old.revisions.get(actor_id, 0),
        )
        for number, (actor_id, epoch) in enumerate(sorted(old.epochs.items()))
    ]
    new_runs = (_new_run(number) for number in range(len(old_runs), plan.runs))
    return [*old_runs, *new_runs]


def _new_run(number: int) -> Run:
    workspace_id = WORKSPACES[number % len(WORKSPACES)]
    actor_id = f"teammate-{number:03}"
    return Run(number, actor_id, f"{workspace_id}/run-{number:03}", workspace_id)


# ----------------------------------------------------------------------------------------- commits


def commit_request(run: Run, part: str) -> dict[str, Any]:
    """The commit for a part of a run ("start", "work" or "end") under the lease it holds now."""
    assert run.lease is not None  # noqa: S101 - a run is worked on by the holder of its lease
    events = list(_events(run, part))
    frame = events[-1]
    state = frame["payload"]["payload"]
    return {
        "messageId": f"{run.stream_id}/{part}",
        "actorId": run.actor_id,
        "lease": run.lease.credential.to_json(),
        "streamId": run.stream_id,
        "expectedRevision": run.revision,
        "events": events,
        "outbox": [
            {
                "outboxId": f"{run.stream_id}/{part}/message",
                "destination": "notifications" if part == "end" else "timeline",
                "payload": {"run": run.actor_id, "state": state["state"]},
                "eventId": frame["eventId"],
            }
        ],
        "projections": [{"projectionId": run.projection_id, "value": state}],
        "inboxResult": {"accepted": part},
    }


def stale_request(run: Run, lease: Lease) -> dict[str, Any]:
    """A commit that would do, were it not for the lease, which its holder has lost."""
    request = commit_request(replace(run, lease=lease), "end")
    return request | {"messageId": f"{run.stream_id}/stale-{lease.epoch}"}


def _events(run: Run, part: str) -> Iterator[dict[str, Any]]:
    place = run.revision
    for kind, fields in _HAPPENINGS[part]:
        place += 1
        yield _event(run, place, kind, fields)
    state = {
        "state": _STATES[part],
        "step": place + 1,
        "text": "naïve, 日本語, 🚀",
        "exact": 10**20 + run.number,
    }
    fields = {"eventType": FRAME, "eventId": f"{run.stream_id}/frame-{place + 1}", "payload": state}
    yield _event(run, place + 1, "domain.event", fields)


def _event(run: Run, place: int, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    assert run.lease is not None  # noqa: S101 - as above
    payload = {
        "version": 2,
        "revision": 1,
        "streamId": run.stream_id,
        "sequence": place,
        "actor": {
            "version": 2,
            "revision": 1,
            "workspaceId": run.workspace_id,
            "actorKind": "teammate",
            "actorId": run.actor_id,
            "generation": run.lease.epoch,
        },
        "producerEpoch": run.lease.epoch,
        "occurredAt": run.lease.heartbeat_at,
        "kind": kind,
    }
    return {
        "eventId": f"{run.stream_id}/{kind}-{place}",
        "eventType": kind,
        "payload": payload | fields,
        "correlationId": run.actor_id,
    }


_CALL = {"toolCallId": "call-1", "toolName": "search"}
_STATES = {"start": "running", "work": "published", "end": "settled"}
_HAPPENINGS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "start": [("tool.started", _CALL)],
    "work": [
        ("tool.finished", _CALL | {"outcome": "succeeded"}),
        ("result.published", {"publicationId": "publication-1", "hasStructuredOutput": True}),
    ],
    "end": [("run.settled", {"outcome": "completed"})],
}
