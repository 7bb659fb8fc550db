"""Epochs never go back (section 12.1), whatever happens to the leases.

Random histories of several actors on several streams, with clocks that move, restarts, and two
stores or two processes on one file: each new lease on a stream has a higher epoch than any before.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker import Broker
from broker.errors import LeaseUnavailable, StaleLease
from broker.messages import Lease
from tests.places import Place, PlaceOn, rows, url_of
from tests.support import (
    ManualClock,
    commit_request,
    credential,
    finish,
    open_store,
    start_python,
    wait_for,
)

ACTORS = ("a", "b", "c")
STREAMS = ("a", "s", "t")  # the first is also an actor's own
TTL_MS = 50
GRANTING = ("acquire", "takeover", "swap")
OPERATIONS = (*GRANTING, "heartbeat", "release", "commit")


@dataclass
class History:
    """What one process has seen of the leases: each actor's last, and the epochs of all."""

    held: dict[str, Lease] = field(default_factory=dict)
    granted: list[Lease] = field(default_factory=list)
    commits: int = 0

    def step(self, store: Broker, operation: str, actor: str, stream: str) -> Lease | None:
        """Try an operation; the new lease if it has granted one."""
        try:
            lease = self._try(store, operation, actor, stream)
        except (LeaseUnavailable, StaleLease):
            return None
        if lease is not None:
            self.held[actor] = lease
        if operation not in GRANTING or lease is None:
            return None
        self.granted.append(lease)
        return lease

    def _try(self, store: Broker, operation: str, actor: str, stream: str) -> Lease | None:
        if operation in {"acquire", "takeover"}:
            take = store.acquire_lease if operation == "acquire" else store.takeover_lease
            request = {"actorId": actor, "streamId": stream, "holderId": "h", "ttlMs": TTL_MS}
            return take(request)
        if actor not in self.held:
            return None
        return self._use(store, operation, self.held[actor])

    def _use(self, store: Broker, operation: str, lease: Lease) -> Lease | None:
        shown: dict[str, Any] = {"actorId": lease.actor_id, "lease": credential(lease)}
        if operation == "heartbeat":
            return store.heartbeat_lease(shown | {"ttlMs": TTL_MS})
        if operation == "swap":
            return store.compare_and_swap_lease(shown | {"ttlMs": TTL_MS, "nextHolderId": "n"})
        if operation == "release":
            store.release_lease(shown)
            return None
        revision = store.get_stream_revision({"streamId": lease.stream_id})
        self.commits += 1
        message_id = f"{lease.nonce}-{self.commits}"
        store.commit(commit_request(lease, message_id, expectedRevision=revision))
        return None


# --- In one process -----------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.sampled_from(OPERATIONS), st.sampled_from(ACTORS), st.sampled_from(STREAMS)),
    st.tuples(st.just("time"), st.sampled_from((1, TTL_MS, 10 * TTL_MS)), st.none()),
    st.tuples(st.just("wall clock"), st.integers(0, 5_000), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
)


@contextmanager
def two_stores(
    backend: str, place_on: PlaceOn
) -> Iterator[tuple[Place, ManualClock, list[Broker]]]:
    """Two stores at one new place and on one clock."""
    with place_on(backend) as place:
        clock = ManualClock()
        stores = [open_store(place, clock, nonce=_nonces(name)) for name in "xy"]
        try:
            yield place, clock, stores
        finally:
            for store in stores:
                store.close()


def _nonces(name: str) -> Any:
    counter = iter(range(1_000_000))
    return lambda: f"{name}{next(counter)}"


def epochs_in(place: Place) -> dict[str, int]:
    """The epoch that the store keeps for each stream; the unique index allows one."""
    return dict(rows(place, "SELECT stream_id, epoch FROM actor_leases"))


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(st.tuples(STEPS, st.integers(0, 1)), min_size=5, max_size=40))
def test_every_new_lease_on_a_stream_has_a_higher_epoch_and_none_is_forgotten(
    backend: str, place_on: PlaceOn, steps: list[tuple[tuple[Any, Any, Any], int]]
) -> None:
    highest: dict[str, int] = {}
    history = History()
    with two_stores(backend, place_on) as (place, clock, stores):
        for (operation, subject, stream), which in steps:
            if operation == "time":
                clock.advance(subject)
            elif operation == "wall clock":
                clock.wall_ms = subject
            elif operation == "restart":
                stores[which].close()
                stores[which] = open_store(place, clock, nonce=stores[which].options.nonce)
            elif lease := history.step(stores[which], operation, subject, stream):
                assert lease.epoch > highest.get(lease.stream_id, 0)
                highest[lease.stream_id] = lease.epoch
            assert epochs_in(place) == highest
        events = rows(place, "SELECT stream_id, revision, producer_epoch FROM events ORDER BY 1, 2")
    written = [(stream, epoch) for stream, _, epoch in events]
    assert written == sorted(written)


@settings(max_examples=10, deadline=None)
@given(moves=st.lists(st.tuples(st.sampled_from(ACTORS), st.sampled_from(STREAMS)), max_size=25))
def test_epochs_count_the_leases_of_a_stream_however_its_actors_move_about(
    backend: str, place_on: PlaceOn, moves: list[tuple[str, str]]
) -> None:
    counts: dict[str, int] = {}
    with two_stores(backend, place_on) as (place, clock, (store, _)):
        for actor, stream in moves:
            clock.advance(TTL_MS)
            lease = History().step(store, "acquire", actor, stream)
            counts[stream] = counts.get(stream, 0) + 1
            assert lease is not None
            assert lease.epoch == counts[stream]
        assert epochs_in(place) == counts


# --- In two processes ---------------------------------------------------------------------------

LEASES_EACH = 80


def play(url: str, seed: int) -> None:
    """Play a random history on real clocks until enough leases were granted, and print them.

    Waits for the other before each half, so that the two are at it together on any machine.
    """
    dice, history = random.Random(seed), History()
    with Broker.open(url) as store:
        for enough in (LEASES_EACH // 2, LEASES_EACH):
            print("ready", flush=True)
            sys.stdin.readline()
            while len(history.granted) < enough:
                operation = dice.choice((*OPERATIONS, "release", "release"))
                history.step(store, operation, dice.choice(ACTORS), dice.choice(STREAMS))
    print(json.dumps([lease.to_json() for lease in history.granted]))


PLAYER = """
import sys
from tests.properties.test_epochs import play
play(sys.argv[1], int(sys.argv[2]))
"""


def play_together(place: Place) -> list[list[Lease]]:
    """The leases that each of two processes was granted, which began each half together."""
    players = [start_python(PLAYER, url_of(place), seed) for seed in (1, 2)]
    for _half in range(2):
        for player in players:
            wait_for(player, "ready")
        for player in players:
            assert player.stdin is not None
            player.stdin.write("go\n")
            player.stdin.flush()
    said = [finish(player) for player in players]
    return [[Lease.from_json(form) for form in json.loads(text)] for text in said]


def test_two_processes_at_once_never_get_one_epoch_twice_nor_a_lower_one(place: Place) -> None:
    open_store(place, ManualClock(wall_ms=0)).close()
    histories = play_together(place)
    assert max(one[0].acquired_at for one in histories) <= min(
        one[-1].acquired_at for one in histories
    )
    for stream in STREAMS:
        seen = [[each.epoch for each in one if each.stream_id == stream] for one in histories]
        assert all(epochs == sorted(set(epochs)) for epochs in seen)
        together = sorted(seen[0] + seen[1])
        assert together == list(range(1, len(together) + 1))
        assert epochs_in(place)[stream] == len(together)
    by_epoch = sorted(histories[0] + histories[1], key=lambda lease: (lease.stream_id, lease.epoch))
    times = [(lease.stream_id, lease.acquired_at) for lease in by_epoch]
    assert times == sorted(times)
