"""A window: a process that acts for actors, holds their leases and commits for them.

It works on the runs that it got, hands some over, and takes over what another left lying. Every
refusal that is part of the story is asked for and checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from broker import Broker
from broker.cli.demo.claims import Checks, Claim
from broker.cli.demo.scenario import Plan, Run, commit_request, stale_request
from broker.errors import (
    LeaseUnavailable,
    RevisionConflict,
    StaleLease,
)
from broker.messages import Lease

HOUR_MS = 3_600_000  # longer than any demo: these leases end by being released
SHORT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Window:
    """One of the windows, which acts for the actors of its runs under its own holder id."""

    number: int
    plan: Plan
    broker: Broker
    checks: Checks

    @property
    def holder_id(self) -> str:
        return f"window-{self.number:02}"

    @property
    def next_holder_id(self) -> str:
        return f"window-{(self.number + 1) % self.plan.windows:02}"

    # ----------------------------------------------------------------------------------- the race

    def want(self, run: Run) -> Lease | None:
        """Try to get a run; None if another window has it."""
        try:
            lease = self._acquire(run)
            self.checks.equal(Claim.RECEIPT, run.actor_id, lease, self._acquire(run))
        except LeaseUnavailable:
            return None
        return lease

    def _acquire(self, run: Run) -> Lease:
        return self.broker.acquire_lease(
            {
                "actorId": run.actor_id,
                "streamId": run.stream_id,
                "holderId": self.holder_id,
                "ttlMs": HOUR_MS,
            },
            request_id=f"{run.stream_id}/{self.holder_id}",
        )

    # ----------------------------------------------------------------------------------- the work

    def work(self, run: Run) -> None:
        """Work on a run that this window has got, to its end or until it is abandoned."""
        self._commit(run, "start", retried=True)
        if run.meets_conflict:
            self._commit_too_late(run)
        self._heartbeat(run)
        if run.is_handed_over:
            self._hand_over(run)
        self._commit(run, "work")
        if run.is_abandoned:
            self._fall_silent(run)
        else:
            self._settle(run)

    def _commit(self, run: Run, part: str, *, retried: bool = False) -> None:
        request = commit_request(run, part)
        result = self.broker.commit(request)
        run.record(request, result)
        if retried:
            again = self.broker.commit(request)
            self.checks.equal(Claim.RETRY, run.actor_id, replace(result, recovered=True), again)

    def _commit_too_late(self, run: Run) -> None:
        request = commit_request(run, "work") | {"expectedRevision": run.revision - 1}
        self.checks.refused(
            Claim.CONFLICT,
            run.actor_id,
            RevisionConflict,
            lambda: self.broker.commit(request),
            streamId=run.stream_id,
            expectedRevision=run.revision - 1,
            actualRevision=run.revision,
        )

    def _heartbeat(self, run: Run, ttl_ms: int = HOUR_MS) -> None:
        before = _held(run)
        run.lease = self.broker.heartbeat_lease(
            {"actorId": run.actor_id, "lease": before.credential, "ttlMs": ttl_ms}
        )
        at = run.lease.heartbeat_at
        expected = replace(before, heartbeat_at=at, expires_at=at + ttl_ms)
        self.checks.equal(Claim.HEARTBEAT, run.actor_id, expected, run.lease)

    def _hand_over(self, run: Run) -> None:
        """Hand the run to the next window, under whose name this thread goes on."""
        before = _held(run)
        run.lease = self.broker.compare_and_swap_lease(
            {
                "actorId": run.actor_id,
                "lease": before.credential,
                "nextHolderId": self.next_holder_id,
                "ttlMs": HOUR_MS,
            },
            request_id=run.receipt("hand-over"),
        )
        run.epoch += 1
        expected = (self.next_holder_id, run.epoch)
        self.checks.equal(Claim.HANDOVER, run.actor_id, expected, _holder(run.lease))
        self._check_stale(run, before)

    def _check_stale(self, run: Run, lost: Lease) -> None:
        self.checks.refused(
            Claim.STALE,
            run.actor_id,
            StaleLease,
            lambda: self.broker.commit(stale_request(run, lost)),
            actorId=run.actor_id,
        )

    def _settle(self, run: Run) -> None:
        self._commit(run, "end")
        read = list(self._read_pages(run))
        self.checks.equal(Claim.PAGES, run.actor_id, list(run.events), read[-len(run.events) :])
        self.checks.equal(Claim.PAGES, run.actor_id, run.revision, len(read))
        self.broker.release_lease(
            {"actorId": run.actor_id, "lease": _held(run).credential},
            request_id=run.receipt("release"),
        )

    def _read_pages(self, run: Run) -> Iterator[str]:
        after, done = 0, False
        while not done:
            page = self.broker.read_authorized_events_page(
                {
                    "streamId": run.stream_id,
                    "afterRevision": after,
                    "limit": 3,
                    "actorId": run.actor_id,
                    "lease": _held(run).credential,
                }
            )
            yield from (event.event_id for event in page.events)
            # A page that is empty and not the last would be read for ever.
            done = page.done or page.next_revision <= after
            after = page.next_revision

    # ------------------------------------------------------------------------------- the take-over

    def _fall_silent(self, run: Run) -> None:
        """Keep the lease for a little while, and do nothing any more."""
        self._heartbeat(run, SHORT_MS)
        self.checks.refused(
            Claim.LIVE,
            run.actor_id,
            LeaseUnavailable,
            lambda: self._take_over(run, self.next_holder_id),
            actorId=run.actor_id,
            streamId=run.stream_id,
        )

    def rescue(self, run: Run) -> None:
        """Take a run over whose lease has expired, see its old holder refused, and finish it."""
        lost = _held(run)
        run.lease = self._take_over(run, self.holder_id)
        run.epoch += 1
        expected = (self.holder_id, run.epoch)
        self.checks.equal(Claim.TAKEOVER, run.actor_id, expected, _holder(run.lease))
        self._check_stale(run, lost)

        request, result = run.commits[-1]  # made by the old holder, under the lease it has lost
        again = self.broker.commit(request)
        self.checks.equal(Claim.LATE_RETRY, run.actor_id, replace(result, recovered=True), again)
        self._settle(run)

    def _take_over(self, run: Run, holder_id: str) -> Lease:
        return self.broker.takeover_lease(
            {
                "actorId": run.actor_id,
                "streamId": run.stream_id,
                "holderId": holder_id,
                "ttlMs": HOUR_MS,
            }
        )


def _held(run: Run) -> Lease:
    assert run.lease is not None  # noqa: S101 - only a run that was got is worked on
    return run.lease


def _holder(lease: Lease) -> tuple[str, int]:
    return lease.holder_id, lease.epoch
