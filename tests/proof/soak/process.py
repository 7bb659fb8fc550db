"""A process of a soak: threads that each play a role, and a line for each window of time.

    python -m tests.proof.soak.process '{"url": …, "roles": ["commits", …], …}'

It ends when its standard input does; with an error if a thread ended with one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from random import Random
from typing import Any

from broker import Broker
from tests.proof.soak.roles import ROLES, Load
from tests.proof.soak.tally import Tally

_LEAKED: list[Any] = []


def main() -> None:
    """Play the roles until it is over."""
    told = json.loads(sys.argv[1])
    with Broker.open(told["url"]) as store:
        load = Load(
            url=told["url"],
            name=f"{told['name']}-{os.getpid()}",
            seed=told["seed"],
            pause_s=told["pause_s"],
            store=store,
            tally=Tally(),
            cursor=told["cursor"],
        )
        threads = [
            threading.Thread(target=_play, args=(load, role, number))
            for number, role in enumerate(told["roles"])
        ]
        threading.Thread(target=_wait_for_the_end, args=(load,), daemon=True).start()
        for thread in threads:
            thread.start()
        _say(load.tally)
        while not load.over.wait(told["window_s"]):
            _say(load.tally)
            if told["is_leaking"]:
                _leak()
        for thread in threads:
            thread.join()
    _say(load.tally)


def _play(load: Load, role: str, number: int) -> None:
    try:
        ROLES[role](load, Random(f"{load.seed} {load.name} {number}"))
    except BaseException:  # whatever it is, it is the end of the soak
        print(json.dumps({"failed": f"{role}: {traceback.format_exc()}"}), flush=True)
        load.over.set()


def _wait_for_the_end(load: Load) -> None:
    sys.stdin.read()
    load.over.set()


def _say(tally: Tally) -> None:
    print(json.dumps({"at": time.monotonic(), **tally.take()}), flush=True)


def _leak() -> None:
    """Lose something on purpose, a window after another: proof that it would be noticed."""
    _LEAKED.append(os.urandom(10_000_000))
    _LEAKED.append([os.open(os.devnull, os.O_RDONLY) for _ in range(4)])
    for _ in range(3):
        _LEAKED.append(threading.Thread(target=time.sleep, args=(600,), daemon=True))
        _LEAKED[-1].start()


if __name__ == "__main__":
    main()
