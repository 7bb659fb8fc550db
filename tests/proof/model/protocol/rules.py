"""The protocol, at the granularity of what is atomic: a look before the transaction, and that.

Time is no number here: a live lease may expire at any moment. A nonce is the number of its grant.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

GRANTING: Final = frozenset({"acquire", "takeover", "swap"})


class Lease(NamedTuple):
    """The one row of a stream; `actor` is "" once that has left."""

    stream: str
    actor: str
    epoch: int
    nonce: int
    is_live: bool


class Written(NamedTuple):
    """A commit of so many events."""

    stream: str
    message: str
    events: int


class Request(NamedTuple):
    """What is asked for; `key` is a message id, or the request id of a lease mutation, or "".

    `epoch` and `nonce` are shown; `text` is what must be the same in a repetition.
    """

    kind: str
    key: str
    actor: str
    stream: str
    epoch: int = 0
    nonce: int = 0
    expected: int = 0
    events: int = 1
    text: str = ""


class Answer(NamedTuple):
    """`kind` is lease, released, written, or the code of a refusal; `at` an epoch or a revision."""

    kind: str
    stream: str = ""
    at: int = 0
    nonce: int = 0

    @property
    def is_refusal(self) -> bool:
        """Whether nothing was done."""
        return self.kind not in {"lease", "released", "written"}


class Recorded(NamedTuple):
    """What the inbox or a receipt keeps."""

    request: Request
    answer: Answer


class Stored(NamedTuple):
    """The database; `grants` counts leases for nonces, and is no part of it."""

    leases: frozenset[Lease] = frozenset()
    writes: tuple[Written, ...] = ()
    records: frozenset[Recorded] = frozenset()
    grants: int = 0

    def lease_on(self, stream: str) -> Lease | None:
        """The row of a stream."""
        return next((lease for lease in self.leases if lease.stream == stream), None)

    def lease_of(self, actor: str) -> Lease | None:
        """The row of an actor."""
        return next((lease for lease in self.leases if lease.actor == actor), None)

    def revision(self, stream: str) -> int:
        """How many events a stream has."""
        return sum(each.events for each in self.writes if each.stream == stream)

    def with_lease(self, lease: Lease) -> Stored:
        """With this row in place of its stream's."""
        others = [each for each in self.leases if each.stream != lease.stream]
        return self._replace(leases=frozenset([*others, lease]))


class Refused(Exception):
    """The transaction does nothing."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.answer = Answer(code)


class Step(NamedTuple):
    """What a step leaves: the database, what the operation remembers, its answer at its end."""

    stored: Stored
    memory: Any = None
    answer: Answer | None = None


class Protocol:
    """The steps of an operation, each of them atomic; between any two anything may happen."""

    steps: tuple[str, ...] = ("look", "transact")

    def step(self, name: str, stored: Stored, request: Request, memory: Any) -> Step:
        """Take a step; one that is refused leaves the database as it was."""
        try:
            taken: Step = getattr(self, name)(stored, request, memory)
        except Refused as refused:
            return Step(stored, None, refused.answer)
        return taken

    def look(self, stored: Stored, request: Request, _memory: Any) -> Step:
        """Was it done before?"""
        return Step(stored, None, self.recorded(stored, request))

    def transact(self, stored: Stored, request: Request, memory: Any) -> Step:
        """Was it done meanwhile? Else judge, do and record it."""
        recorded = self.look_again(stored, request)
        if recorded is not None:
            return Step(stored, None, recorded)
        done, answer = self.do(stored, request, memory)
        return Step(self.record(done, request, answer), None, answer)

    # ----------------------------------------------------------------------------------- its parts

    def recorded(self, stored: Stored, request: Request) -> Answer | None:
        """The answer that is kept under a key."""
        for record in stored.records:
            if request.key and record.request.key == request.key:
                if not _is_repetition(record.request, request):
                    raise Refused("idempotency_conflict")
                return record.answer
        return None

    def look_again(self, stored: Stored, request: Request) -> Answer | None:
        """As `recorded`, under the write lock."""
        return self.recorded(stored, request)

    def do(self, stored: Stored, request: Request, _memory: Any) -> tuple[Stored, Answer]:
        """Judge and do a request."""
        if request.kind in {"acquire", "takeover"}:
            self.require_free(stored, request)
            return self.grant(stored, request.actor, request.stream)
        lease = self.require_live(stored, request)
        if request.kind == "commit":
            return self.write(stored, request, lease)
        if request.kind == "swap":
            return self.grant(stored, lease.actor, lease.stream)
        if request.kind == "release":
            return self.release(stored, lease), Answer("released")
        return stored, Answer("lease", lease.stream, lease.epoch, lease.nonce)  # a heartbeat

    def require_free(self, stored: Stored, request: Request) -> None:
        """Refuse a lease that somebody holds, or a takeover of what nobody held."""
        own, last = stored.lease_of(request.actor), stored.lease_on(request.stream)
        if (own is not None and own.is_live) or (last is not None and last.is_live):
            raise Refused("lease_unavailable")
        if request.kind == "takeover" and last is None:
            raise Refused("lease_unavailable")

    def require_live(self, stored: Stored, request: Request) -> Lease:
        """The lease of which this is the credential, on the stream if one is named."""
        lease = stored.lease_of(request.actor)
        if lease is None or not lease.is_live or not self.proves(request, lease):
            raise Refused("stale_lease")
        if request.kind == "commit" and lease.stream != request.stream:
            raise Refused("stale_lease")
        return lease

    def proves(self, request: Request, lease: Lease) -> bool:
        """Whether the credential is the lease's."""
        return (request.epoch, request.nonce) == (lease.epoch, lease.nonce)

    def grant(self, stored: Stored, actor: str, stream: str) -> tuple[Stored, Answer]:
        """The next lease on a stream."""
        own, last = stored.lease_of(actor), stored.lease_on(stream)
        if own is not None and own.stream != stream:
            stored = self.leave(stored, own)
        epoch, nonce = 1 if last is None else last.epoch + 1, stored.grants + 1
        granted = stored.with_lease(Lease(stream, actor, epoch, nonce, is_live=True))
        return granted._replace(grants=nonce), Answer("lease", stream, epoch, nonce)

    def leave(self, stored: Stored, lease: Lease) -> Stored:
        """An actor moves to another stream, and the epoch of its old one stays."""
        return stored.with_lease(lease._replace(actor="", is_live=False))

    def release(self, stored: Stored, lease: Lease) -> Stored:
        """A lease ends, and its epoch stays."""
        return stored.with_lease(lease._replace(is_live=False))

    def write(self, stored: Stored, request: Request, _lease: Lease) -> tuple[Stored, Answer]:
        """Append at the revision that is expected."""
        if stored.revision(request.stream) != request.expected:
            raise Refused("revision_conflict")
        written = Written(request.stream, request.key, request.events)
        done = stored._replace(writes=(*stored.writes, written))
        return done, Answer("written", request.stream, done.revision(request.stream))

    def record(self, stored: Stored, request: Request, answer: Answer) -> Stored:
        """Keep the answer, in the same transaction."""
        if not request.key:
            return stored
        return stored._replace(records=stored.records | {Recorded(request, answer)})


def _is_repetition(before: Request, now: Request) -> bool:
    """Whether it asks for the same; a commit may show another lease."""
    if now.kind == "commit":
        before, now = (each._replace(epoch=0, nonce=0) for each in (before, now))
    return before == now
