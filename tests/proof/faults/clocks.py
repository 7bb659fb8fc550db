"""Clocks that jump, and clocks of several processes that differ by hours."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker import Broker
from broker.errors import LeaseUnavailable, StaleLease
from broker.messages import Lease
from tests.places import url_of
from tests.proof.faults.scene import Scene, appended
from tests.support import ManualClock

HOUR = 3_600_000
YEAR = 365 * 24 * HOUR
SLACK = 1_001  # how far broker time may lead both clocks before it goes on at the monotonic pace
TTL = 60_000
STEPS = 40


@dataclass
class Process:
    """One that has the store open, by its own clocks."""

    clock: ManualClock
    store: Broker


@dataclass
class Time:
    """Broker time as it was seen, in the order of the transactions."""

    scene: Scene
    seen: list[int] = field(default_factory=list)

    def goes_on(self, now: int) -> None:
        """See a time that a transaction had."""
        before = self.seen[-1] if self.seen else 0
        self.scene.expect(now >= before, "time ran back", f"broker time was {before}, is {now}")
        self.seen.append(now)


def jumping_clocks(scene: Scene) -> None:
    """Several processes, whose clocks are set at any time, take leases, commit and start anew."""
    processes = [_started(scene, wall_ms) for wall_ms in (YEAR, YEAR + 5 * HOUR, YEAR - 7 * HOUR)]
    time, leases = Time(scene), dict[str, Lease]()
    for step in range(STEPS):
        process = scene.random.choice(processes)
        for each in processes:
            each.clock.advance(scene.random.randrange(0, TTL // 2))
        if scene.random.random() < 0.3:
            scene.met()
            process.clock.wall_ms += scene.random.choice([-HOUR, -HOUR, HOUR, YEAR])
        if scene.random.random() < 0.2:
            process.store.close()
            process.store = _opened(scene, process.clock)
        _work(scene, process, time, leases, f"step-{step}")
    for each in processes:
        each.store.close()


def _work(scene: Scene, process: Process, time: Time, leases: dict[str, Lease], name: str) -> None:
    actor = f"actor-{scene.random.randrange(3)}"
    held = leases.get(actor)
    try:
        if held is None:
            taken = process.store.acquire_lease(
                {"actorId": actor, "holderId": "holder", "ttlMs": TTL}
            )
            time.goes_on(taken.acquired_at)
            leases[actor] = taken
        else:
            result = scene.acknowledged(appended(process.store, held, name))
            time.goes_on(result.applied_at)
            is_live = result.applied_at < held.expires_at
            scene.expect(is_live, "stale writes", f"a commit at {time.seen[-1]} under {held}")
    except StaleLease:
        assert held is not None
        renewed = process.store.acquire_lease(
            {"actorId": actor, "holderId": "holder", "ttlMs": TTL}
        )
        time.goes_on(renewed.acquired_at)
        is_over = renewed.acquired_at >= held.expires_at
        scene.expect(is_over, "leases cut off", f"{held} was over at {renewed.acquired_at}")
        scene.expect(renewed.epoch > held.epoch, "epochs fell", f"{held}, then {renewed}")
        leases[actor] = renewed


def after_a_jump(scene: Scene) -> None:
    """However the clock was set, at work or at rest: a lease ends when its time is over, by the pace."""
    wall_ms = YEAR
    for jumps in ((-HOUR,), (YEAR,), (YEAR, -YEAR), (HOUR, -HOUR, -HOUR), (-YEAR // 2, HOUR)):
        for restarts in (False, True):
            wall_ms += 3 * YEAR  # beyond whatever was before
            process = _started(scene, wall_ms)
            actor = f"{jumps} {restarts} {scene.seed}"
            for number, jump in enumerate(jumps):
                scene.met()
                process.clock.wall_ms += jump
                beside = f"{actor} {number}"
                appended(process.store, _taken(process, beside), beside)
            if restarts:
                process.store.close()
                process.store = _opened(scene, process.clock)
            _lives_and_ends(scene, process, actor)
            process.store.close()


def _lives_and_ends(scene: Scene, process: Process, actor: str) -> None:
    """A lease is live for its time, and not for longer than the clock may stand still."""
    lease = _taken(process, actor)
    process.clock.advance(TTL - 1)
    try:
        scene.acknowledged(appended(process.store, lease, actor))
    except StaleLease:
        scene.expect(False, "leases cut off", f"{actor}: before its time")
    process.clock.advance(SLACK)
    wanted = {"actorId": f"heir of {actor}", "streamId": actor, "holderId": "h", "ttlMs": TTL}
    try:
        heir = process.store.takeover_lease(wanted)
    except LeaseUnavailable:
        scene.expect(False, "leases without end", f"{actor}: after its time")
    else:
        scene.expect(heir.epoch > lease.epoch, "epochs fell", f"{lease}, then {heir}")


def _taken(process: Process, actor: str) -> Lease:
    return process.store.acquire_lease({"actorId": actor, "holderId": "holder", "ttlMs": TTL})


def _started(scene: Scene, wall_ms: int) -> Process:
    clock = ManualClock(wall_ms)
    return Process(clock, _opened(scene, clock))


def _opened(scene: Scene, clock: ManualClock) -> Broker:
    return Broker.open(url_of(scene.place), options=clock.options())
