"""The protocol with one thing wrong, each to be found out by the search."""

from __future__ import annotations

from typing import Any

from tests.proof.model.protocol.rules import (
    Answer,
    Lease,
    Protocol,
    Refused,
    Request,
    Step,
    Stored,
)
from tests.proof.model.protocol.scenes import CRASHES, TWO_HOLDERS_AND_ANOTHER, TWO_STREAMS
from tests.proof.model.protocol.search import Scene


class AuthorityBefore(Protocol):
    """The lease of a commit is judged before the transaction, and not in it."""

    def look(self, stored: Stored, request: Request, memory: Any) -> Step:
        step = super().look(stored, request, memory)
        if step.answer is None and request.kind == "commit":
            return step._replace(memory=super().require_live(stored, request))
        return step

    def do(self, stored: Stored, request: Request, memory: Any) -> tuple[Stored, Answer]:
        if request.kind == "commit":
            return self.write(stored, request, memory)
        return super().do(stored, request, memory)


class FreedomBefore(Protocol):
    """Whether a stream is free is judged before the transaction, and not in it."""

    def look(self, stored: Stored, request: Request, memory: Any) -> Step:
        step = super().look(stored, request, memory)
        if step.answer is None and request.kind in {"acquire", "takeover"}:
            super().require_free(stored, request)
        return step

    def require_free(self, stored: Stored, request: Request) -> None:
        pass


class EpochForgotten(Protocol):
    """A lease that is released takes its row with it."""

    def release(self, stored: Stored, lease: Lease) -> Stored:
        return stored._replace(leases=stored.leases - {lease})


class LineageForgotten(Protocol):
    """An actor that moves takes the row of its old stream with it, as in the reference."""

    def leave(self, stored: Stored, lease: Lease) -> Stored:
        return stored._replace(leases=stored.leases - {lease})


class RecordedAfter(Protocol):
    """What was done is recorded in a transaction of its own."""

    steps = (*Protocol.steps, "remember")

    def transact(self, stored: Stored, request: Request, memory: Any) -> Step:
        step = super().transact(stored, request, memory)
        return step._replace(memory=step.answer, answer=None)

    def record(self, stored: Stored, _request: Request, _answer: Answer) -> Stored:
        return stored

    def remember(self, stored: Stored, request: Request, answer: Any) -> Step:
        """The third step."""
        return Step(super().record(stored, request, answer), None, answer)


class LookedOnce(Protocol):
    """Records are looked for before the transaction, and not again in it."""

    def look_again(self, _stored: Stored, _request: Request) -> Answer | None:
        return None


class NonceIgnored(Protocol):
    """Whoever acts for the actor of a live lease is believed."""

    def proves(self, _request: Request, _lease: Lease) -> bool:
        return True


class LiveTakenOver(Protocol):
    """A takeover does not ask whether the lease has expired."""

    def require_free(self, stored: Stored, request: Request) -> None:
        if request.kind == "acquire":
            super().require_free(stored, request)
        elif stored.lease_on(request.stream) is None:
            raise Refused("lease_unavailable")


STALE = "somebody wrote who did not hold the lease at that moment"
TWICE = "a lease was granted while another on the stream was live"
BACK = "an epoch went back"
UNTRUE = "a refusal was told of what took effect"

#: What is found, and in which scene.
MUTANTS: dict[type[Protocol], tuple[Scene, str]] = {
    AuthorityBefore: (CRASHES, STALE),
    FreedomBefore: (CRASHES, TWICE),
    EpochForgotten: (CRASHES, BACK),
    LineageForgotten: (TWO_STREAMS, BACK),
    RecordedAfter: (CRASHES, UNTRUE),
    LookedOnce: (CRASHES, UNTRUE),
    NonceIgnored: (TWO_HOLDERS_AND_ANOTHER, STALE),
    LiveTakenOver: (CRASHES, TWICE),
}
