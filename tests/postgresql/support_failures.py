"""What tests of failures need: other clients that end our sessions, and what is left on the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import QueuePool, make_url

from broker import Broker
from broker.messages import Lease
from broker.postgresql.connections import PostgresConnections
from tests.places import PostgresPlace, client, rows
from tests.support import TTL_MS, commit_request

OURS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database()
AND backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY pid
"""
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = ANY(%s)"


def sessions(place: PostgresPlace) -> list[int]:
    """The server's processes for the clients of this database."""
    return [pid for (pid,) in rows(place, OURS)]


def terminate_sessions(place: PostgresPlace) -> int:
    """End all of them, as an administrator may, and wait until they are gone; how many there were."""
    with client(place) as other:
        pids = [pid for (pid,) in other.execute(OURS)]
        for pid in pids:
            other.execute("SELECT pg_terminate_backend(?, 60000)", (pid,))
    return len(pids)


def connections_of(store: Broker) -> PostgresConnections:
    """Those of a store."""
    return cast(PostgresConnections, store._connections)


def in_use(store: Broker) -> int:
    """How many connections of the pool are in use."""
    return cast(QueuePool, store.engine.pool).checkedout()


def warm_up(store: Broker, count: int) -> None:
    """Let the pool have so many connections."""
    taken = [store.engine.raw_connection() for _ in range(count)]
    for each in taken:
        each.close()


@contextmanager
def held(place: PostgresPlace, table: str = "actor_leases") -> Iterator[None]:
    """Another client is in the middle of a transaction that has locked all rows of a table."""
    with client(place) as other:
        other.execute("SET idle_in_transaction_session_timeout = '60s'")  # not for ever
        other.execute("BEGIN")
        other.execute(f"SELECT * FROM {table} FOR UPDATE")
        yield
        other.execute("ROLLBACK")


def waiting(place: PostgresPlace) -> list[int]:
    """The server's processes that wait for a lock."""
    return [pid for (pid,) in rows(place, WAITING, sessions(place))]


def is_waiting(place: PostgresPlace) -> bool:
    """Whether somebody waits for a lock."""
    return waiting(place) != []


def until(happens: Callable[[], bool]) -> None:
    """Wait until something is so, which it is within a minute or never."""
    deadline = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def with_settings(place: PostgresPlace, **settings: str) -> PostgresPlace:
    """The place by a URL that sets these for each session."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    url = make_url(place.url).update_query_dict({"options": options})
    return PostgresPlace(url.render_as_string(hide_password=False))


def heartbeat(lease: Lease) -> dict[str, Any]:
    """A request to keep a lease for as long as it was taken."""
    shown = {"epoch": lease.epoch, "nonce": lease.nonce}
    return {"actorId": lease.actor_id, "lease": shown, "ttlMs": TTL_MS}


def many_events(lease: Lease, count: int, message_id: str = "many", **others: Any) -> Any:
    """A commit of so many events, which are copied if they are more than a hundred."""
    events = [
        {"eventId": f"{message_id}-{number}", "eventType": "note", "payload": number}
        for number in range(count)
    ]
    return commit_request(lease, message_id, events=events, **others)
