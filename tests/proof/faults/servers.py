"""Faults between a store and its PostgreSQL server: lost connections, ended sessions, a server that goes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from broker import Broker, Options
from broker.errors import BrokerError, DatabaseBusy, DatabaseUnavailable, OutcomeUnknown
from broker.messages import CommitResult, Lease
from tests.places import PostgresPlace, rows
from tests.postgres_server import running
from tests.postgresql.support_failures import (
    held,
    in_use,
    terminate_sessions,
    until,
    with_settings,
)
from tests.postgresql.support_proxy import AFTER, BEFORE, COMMIT, HALFWAY, losing
from tests.proof.faults.scene import Scene
from tests.proof.invariants import broken
from tests.support import TTL_MS, acquire, commit_request

GONE = (DatabaseUnavailable, OutcomeUnknown)
WRITERS = 4


def lost_connections(scene: Scene) -> None:
    """A connection is lost at a statement: before it, halfway through it, after it."""
    place = _place(scene)
    with losing(place) as (proxy, through), Broker.open(through.url) as store:
        for trigger in ("BEGIN", COMMIT):
            for when in (BEFORE, HALFWAY, AFTER):
                name = f"{trigger[:6]} {when}"
                lease = acquire(store, name, name)
                proxy.lose(trigger, when)
                _settled(scene, store, commit_request(lease, name), kinds=(OutcomeUnknown,))
        scene.met(proxy.lost)
        scene.expect(in_use(store) == 0, "locks left", "a connection is in use")


def ended_sessions(scene: Scene) -> None:
    """An administrator ends all sessions again and again, while several threads commit."""
    place = _place(scene)
    with Broker.open(place.url) as store, _writing(scene, store) as names:
        for _ in range(5):
            _wait_for_more(names)
            scene.met(terminate_sessions(place))
    _expect_all(scene, place, names)


def restarted_server(scene: Scene) -> None:
    """The server ends, in order or as in a crash, while several threads commit, and comes back."""
    Broker.open(_place(scene).url).close()  # or it would have no time
    with running(synchronous_commit="on") as server:
        place = PostgresPlace(server.url)
        with Broker.open(place.url) as store, _writing(scene, store) as names:
            for how in (signal.SIGINT, signal.SIGQUIT):
                _wait_for_more(names)
                scene.met()
                server.stop(how)
                server.start()
            _wait_for_more(names)
        _expect_all(scene, place, names)
        for rule in broken(place):
            scene.expect(False, "rules broken", rule)


def timeouts(scene: Scene) -> None:
    """Another holds a row for longer than the store, or the server's settings, have patience."""
    place = _place(scene)
    patient = {"lock_timeout": "100ms", "statement_timeout": "300ms"}
    for name, value in patient.items():
        options = Options(busy_timeout_ms=150 if name == "lock_timeout" else 5_000)
        with Broker.open(with_settings(place, **{name: value}).url, options=options) as store:
            lease = acquire(store, name, name)
            scene.met()
            refused = scene.refused(DatabaseBusy, DatabaseUnavailable, what=f"{name} that is over")
            with held(place), refused:
                store.commit(commit_request(lease, name))
            scene.expect(in_use(store) == 0, "locks left", f"{name}: a connection is in use")
            scene.acknowledged(store.commit(commit_request(lease, name)))


def cut_off_server(scene: Scene) -> None:
    """No connection comes through for a time: calls end, and go on once one does."""
    place = _place(scene)
    with losing(place) as (proxy, through), Broker.open(through.url) as store:
        lease = acquire(store)
        proxy.keeps_losing = True
        proxy.lose("BEGIN", BEFORE)
        scene.met()
        with scene.refused(DatabaseUnavailable, what="a commit without a server"):
            store.commit(commit_request(lease))
        proxy.keeps_losing = False
        proxy.lose("", BEFORE)
        scene.acknowledged(store.commit(commit_request(lease)))
        scene.expect(in_use(store) == 0, "locks left", "a connection is in use")


def _place(scene: Scene) -> PostgresPlace:
    assert isinstance(scene.place, PostgresPlace)
    return scene.place


def _settled(
    scene: Scene,
    store: Broker,
    request: dict[str, Any],
    *,
    kinds: tuple[type[BrokerError], ...],
    tries: int = 200,
) -> CommitResult:
    """Commit until it is known to be stored; the answers agree with one another."""
    for _ in range(tries):
        try:
            result = store.commit(request)
        except kinds as error:
            scene.report.counts["of unknown outcome"] += isinstance(error, OutcomeUnknown)
            scene.report.counts["refused"] += not isinstance(error, OutcomeUnknown)
            threading.Event().wait(0.02)
        else:
            scene.acknowledged(result)
            again = store.commit(request) if not kinds else result
            scene.expect(again.event_ids == result.event_ids, "told otherwise", f"{result} {again}")
            return result
    raise AssertionError(f"{request['messageId']} cannot be stored")


@contextmanager
def _writing(scene: Scene, store: Broker) -> Iterator[list[str]]:
    """Several threads commit all the while; the names of what was acknowledged, once it is over."""
    names, errors, is_over = list[str](), list[BaseException](), threading.Event()
    leases = {f"writer-{number}": _lease(store, f"writer-{number}") for number in range(WRITERS)}

    def write(name: str, lease: Lease) -> None:
        revision = 0
        while not is_over.is_set():
            request = commit_request(lease, f"{name}-{revision}", expectedRevision=revision)
            result = _settled(scene, store, request, kinds=GONE)
            names.append(result.message_id)
            revision = result.revision

    threads = [
        threading.Thread(target=_noting(errors, write), args=each) for each in leases.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield names
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    for error in errors:
        scene.expect(False, "undocumented errors", repr(error))


def _wait_for_more(names: list[str]) -> None:
    """Let the threads commit something."""
    enough = len(names) + 20
    until(lambda: len(names) > enough)


def _noting(errors: list[BaseException], work: Callable[..., None]) -> Callable[..., None]:
    def run(*arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:
            errors.append(error)

    return run


def _lease(store: Broker, name: str) -> Lease:
    return acquire(store, name, name, ttlMs=60 * TTL_MS)


def _expect_all(scene: Scene, place: PostgresPlace, names: list[str]) -> None:
    found = {name for (name,) in rows(place, "SELECT message_id FROM inbox")}
    scene.expect(set(names) <= found, "lost", f"not there: {sorted(set(names) - found)[:3]}")
    scene.expect(found == set(names), "half stored", f"more: {sorted(found - set(names))[:3]}")
