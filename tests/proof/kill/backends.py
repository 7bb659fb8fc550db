"""The server's own processes are ended under a load whose clients go on."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Self

import psycopg
from sqlalchemy import make_url

from broker import schema
from tests.places import PostgresPlace, client
from tests.postgres_server import running
from tests.postgresql.support_failures import OURS, sessions
from tests.proof.kill.stages import RUNS_IN_A_DATABASE

_PATIENCE_S = 60


def terminate(place: PostgresPlace, chance: random.Random) -> int:
    """End some of the sessions of a database, as an administrator may; how many were ended."""
    ended = 0
    with client(place) as other:
        for _ in range(chance.randint(1, 4)):
            pids = [pid for (pid,) in other.execute(OURS)]
            if pids:
                chosen = chance.choice(pids)
                query = "SELECT pg_terminate_backend(?)"
                ended += other.execute(query, (chosen,)).fetchall() == [(True,)]
            time.sleep(chance.uniform(0, 0.005))
    return ended


class OwnServer:
    """A server of the proof's own: it restarts when one of its processes is killed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._url: str | None = None
        self._made = 0
        self._place: PostgresPlace | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def place(self) -> PostgresPlace:
        """A database at head, with other runs."""
        if self._url is None:
            self._url = self._stack.enter_context(running()).url
        if self._place is None or self._made % RUNS_IN_A_DATABASE == 0:
            self._place = self._new(self._url)
        self._made += 1
        return self._place

    def _new(self, url: str) -> PostgresPlace:
        with client(PostgresPlace(url)) as other:
            if self._place is not None:
                old = make_url(self._place.url).database
                other.execute(f"DROP DATABASE {old} WITH (FORCE)")
            name = f"kill_{self._made}"
            other.execute(f"CREATE DATABASE {name}")
        made = make_url(url).set(database=name).render_as_string(hide_password=False)
        schema.upgrade(made)
        return PostgresPlace(made, is_at_head=True)


def crash(place: PostgresPlace, chance: random.Random) -> int:
    """Kill a process that serves this database, upon which the server ends all and recovers."""
    pids = sessions(place)
    if not pids:
        return 0
    os.kill(chance.choice(pids), signal.SIGKILL)
    for _ in _tries():
        with suppress(psycopg.OperationalError), client(place) as other:
            other.execute("SELECT 1")
            return 1
    return 0


def _tries() -> Iterator[None]:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(0.01)
