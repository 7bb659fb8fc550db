"""The nursery's process: it has imported everything, and forks a worker in a few milliseconds.

It has no store open and one thread, and the shim of `tests.proof.shim` is loaded in it, so that it
is in its workers too. A worker that has died stays a zombie until it is asked about, and so its
process id means nobody else.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import socket
import sys
from contextlib import closing, suppress

from tests.proof.kill import requests
from tests.proof.kill.doors import opened
from tests.proof.kill.nursery import MOST_BYTES
from tests.proof.kill.worker import Job, work


def _serve(supervisor: socket.socket) -> None:
    children: set[int] = set()
    try:
        while True:
            message, files, _, _ = socket.recv_fds(supervisor, MOST_BYTES, 2)
            if not message:
                return
            asked = json.loads(message)
            if "warm up" in asked:
                _warm_up(Job(**asked["warm up"]))
                supervisor.send(b"0")
            elif "job" in asked:
                pid = _fork(supervisor, Job(**asked["job"]), *files)
                children.add(pid)
                supervisor.send(b"%d" % pid)
            else:
                children.discard(asked["end of"])
                _, status = os.waitpid(asked["end of"], 0)
                supervisor.send(b"%d" % os.waitstatus_to_exitcode(status))
    finally:
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _fork(supervisor: socket.socket, job: Job, book: int, orders: int) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            supervisor.close()
            code = work(job, book, orders)
        finally:
            os._exit(code)
    os.close(book)
    os.close(orders)
    return pid


def _warm_up(job: Job) -> None:
    """Use a store, so that what is done once in a process is not done in each worker."""
    with closing(opened(job.place)) as door:
        lease = door.do("acquire_lease", requests.acquire("warm", "warm"), "warm")
        request = requests.commit(lease.to_json(), "warm", 0, random.Random(0), events=2)
        door.do("commit", request, None)
        door.do("mark_outbox_delivered", {"outboxId": "warm/o0"}, None)
    gc.collect()
    gc.freeze()  # what is there now stays shared with the workers


def main() -> None:
    """Fork workers until nobody is at the other end of the socket."""
    with socket.socket(fileno=int(sys.argv[1])) as supervisor:
        _serve(supervisor)


if __name__ == "__main__":
    main()
