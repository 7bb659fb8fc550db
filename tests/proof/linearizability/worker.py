"""A process that does what it is told to a store, and tells when it did what and what came of it.

    python -m tests.proof.linearizability.worker SOCKET

imports everything once, and forks for each line that it reads: who is forked connects to the socket,
says its process id, and takes programs from there, a JSON line each. What it is about to do it says
before it does it, so that it can be killed at any time.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import orjson

from tests.proof.linearizability.doors import Doors

# What is shown where no lease is known yet.
NO_LEASE = {"epoch": 1, "nonce": "never given"}


class Line:
    """The line to whoever gives the orders; safe from any thread."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._file = self._socket.makefile("rb")
        self._lock = threading.Lock()

    def say(self, **what: Any) -> None:
        """Say something."""
        line = orjson.dumps(what) + b"\n"
        with self._lock:
            self._socket.sendall(line)

    def orders(self) -> Any:
        """What there is to do, until nobody gives orders any more."""
        return (orjson.loads(line) for line in self._file)


@dataclass
class Knowledge:
    """What the threads of a process have learnt in a program, each from all."""

    credentials: dict[str, list[dict[str, Any]]]
    revisions: dict[str, int] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)

    def request(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """What to ask for: a method, a request, an id to repeat it by; None to repeat nothing."""
        if "again" in order:
            return self.asked[order["again"] % len(self.asked)] if self.asked else None
        request: dict[str, Any] = dict(order["request"])
        if "lease" in order:
            known = self.credentials.get(request["actorId"], [])
            place: int = order["lease"]
            request["lease"] = known[max(place, -len(known))] if known else NO_LEASE
        if order["method"] == "commit":
            request.setdefault("expectedRevision", self.revisions.get(request["streamId"], 0))
        asked = {"method": order["method"], "request": request, "id": order.get("id")}
        if order["method"] not in READS:
            self.asked.append(asked)
        return asked

    def learn(self, method: str, request: dict[str, Any], answer: dict[str, Any]) -> None:
        """Keep what helps to ask better next time."""
        result, refusal = answer.get("result"), answer.get("refusal")
        if isinstance(result, dict) and "nonce" in result:
            credential = {"epoch": result["epoch"], "nonce": result["nonce"]}
            self.credentials.setdefault(result["actorId"], []).append(credential)
        elif method == "commit" and isinstance(result, dict):
            self.revisions[result["streamId"]] = result["revision"]
        elif method == "get_stream_revision" and isinstance(result, int):
            self.revisions[request["streamId"]] = result
        elif refusal and refusal["code"] == "revision_conflict":
            self.revisions[request["streamId"]] = refusal["details"]["actualRevision"]


READS = {"get_lease", "get_stream_revision", "read_events"}


class Worker:
    """One process and its stores: one for each patience with others."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._stores: dict[tuple[str, int], Doors] = {}
        self._numbers = itertools.count()

    def serve(self) -> None:
        """Follow orders until there are no more."""
        for order in self._line.orders():
            store = self._store(order["url"], order["patience"])
            knowledge = Knowledge(order["credentials"])
            with ThreadPoolExecutor(max(1, len(order["threads"]))) as pool:
                threads = [
                    pool.submit(self._follow, store, f"{number}", each, knowledge, order["start"])
                    for number, each in enumerate(order["threads"])
                ]
            for thread in threads:
                thread.result()
            self._line.say(done=True, credentials=knowledge.credentials)

    def _store(self, url: str, patience: int) -> Doors:
        key = (url, patience)
        if key not in self._stores:
            for _, others in [each for each in self._stores.items() if each[0][0] != url]:
                others.close()
            self._stores = {each: kept for each, kept in self._stores.items() if each[0] == url}
            self._stores[key] = Doors(url, patience)
        return self._stores[key]

    def _follow(
        self,
        store: Doors,
        thread: str,
        program: list[dict[str, Any]],
        knowledge: Knowledge,
        start: int,
    ) -> None:
        """Do the operations of one thread, from a time of the monotonic clock on."""
        time.sleep(max(0, start - time.monotonic_ns()) / 1e9)
        for order in program:
            time.sleep(order.get("pause", 0) / 1e3)
            asked = knowledge.request(order)
            if asked is None:
                continue
            number = next(self._numbers)
            who = f"{thread} by {order['door']}"
            self._line.say(number=number, thread=who, **asked, at=time.monotonic_ns())
            answer = store.perform(order["door"], **asked)
            self._line.say(number=number, at=time.monotonic_ns(), **answer)
            knowledge.learn(asked["method"], asked["request"], answer)


def main() -> None:
    """Fork a worker for each line of the standard input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for _ in sys.stdin.buffer:
        if os.fork() == 0:
            os.close(0)
            line = Line(sys.argv[1])
            line.say(pid=os.getpid())
            Worker(line).serve()
            os._exit(0)


if __name__ == "__main__":
    main()
