"""The load: hands that acquire, commit, keep, hand on, take over, release, deliver, and try it stale."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.proof.kill import requests
from tests.proof.kill.doors import Client
from tests.proof.kill.ledger import Answer

_TTLS_MS = (5, 25, requests.LONG_MS, requests.LONG_MS)
_PATIENCE_S = 30


class Hand:
    """One actor, that does one thing after another until it is told to stop.

    What it is told that nothing came of, or that nobody can tell, it asks again under the same id.
    """

    def __init__(
        self, client: Client, name: str, streams: list[str], seed: int, is_over: threading.Event
    ) -> None:
        self._client = client
        self._name = name
        self._streams = streams
        self._chance = random.Random(f"{seed} {name}")
        self._is_over = is_over
        self._count = 0
        self._lease: dict[str, Any] | None = None
        self._revision = 0
        self._former: list[dict[str, Any]] = []
        self._outgoing: list[str] = []
        self._done: list[dict[str, Any]] = []

    def work(self) -> None:
        """Go on until it is over."""
        moves: list[Callable[[], None]] = [self._commit, self._keep, self._swap, self._release]
        moves += [self._deliver, self._try_stale, self._repeat]
        while not self._is_over.is_set():
            if self._lease is None:
                self._grab()
            else:
                self._chance.choices(moves, (60, 8, 8, 6, 8, 6, 6))[0]()

    # ------------------------------------------------------------------------------------- leases

    def _grab(self) -> None:
        stream, ttl_ms = self._chance.choice(self._streams), self._chance.choice(_TTLS_MS)
        operation = self._chance.choice(("acquire_lease", "takeover_lease"))
        wanted = requests.acquire(self._name, stream, ttl_ms)
        answer = self._ask(operation, wanted, self._next("r"))
        if answer.kind != "done":
            time.sleep(0.001)
            return
        revision = self._ask("get_stream_revision", {"streamId": stream})
        if revision.kind == "done":
            self._lease, self._revision = answer.value, revision.value

    def _keep(self) -> None:
        lease = self._held()
        request = requests.shown(lease, ttlMs=self._chance.choice(_TTLS_MS))
        request_id = self._chance.choice((None, self._next("r")))
        self._hold(self._ask("heartbeat_lease", request, request_id))

    def _swap(self) -> None:
        lease = self._held()
        self._former.append(lease)
        self._hold(self._ask("compare_and_swap_lease", requests.swap(lease), self._next("r")))

    def _release(self) -> None:
        lease = self._held()
        self._former.append(lease)
        self._ask("release_lease", requests.shown(lease), self._next("r"))
        self._lease = None

    def _hold(self, answer: Answer) -> None:
        self._lease = answer.value if answer.kind == "done" else None

    def _held(self) -> dict[str, Any]:
        assert self._lease is not None
        return self._lease

    # ------------------------------------------------------------------------------------ commits

    def _commit(self) -> None:
        lease = self._held()
        request = requests.commit(lease, self._next("m"), self._revision, self._chance)
        answer = self._ask("commit", request)
        if answer.kind != "done":
            self._lease = None
            return
        self._revision = answer.value["revision"]
        self._outgoing += answer.value["outboxIds"]
        self._done.append(request)

    def _try_stale(self) -> None:
        """With a lease that is over, at the revision that would be right."""
        if not self._former:
            return
        lease = self._chance.choice(self._former)
        revision = self._ask("get_stream_revision", {"streamId": lease["streamId"]})
        request = requests.commit(lease, self._next("stale"), revision.value, self._chance)
        self._client.ask("commit", request)

    def _repeat(self) -> None:
        if self._done:
            self._ask("commit", self._chance.choice(self._done))

    def _deliver(self) -> None:
        if self._outgoing:
            self._client.ask(
                "mark_outbox_delivered", {"outboxId": self._chance.choice(self._outgoing)}
            )

    # ------------------------------------------------------------------------------------- asking

    def _next(self, kind: str) -> str:
        self._count += 1
        return f"{self._name}/{kind}{self._count}"

    def _ask(
        self, operation: str, request: dict[str, Any], request_id: str | None = None
    ) -> Answer:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = self._client.ask(operation, request, request_id)
            if answer.kind not in {"undone", "unknown"} or time.monotonic() > deadline:
                return answer
            time.sleep(0.005)


def carry(
    client: Client, name: str, streams: list[str], seed: int, hands: int, is_over: threading.Event
) -> None:
    """Let so many hands work side by side until it is over."""
    threads = [
        threading.Thread(
            target=Hand(client, f"{name}{number}", streams, seed, is_over).work, daemon=True
        )
        for number in range(hands)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
