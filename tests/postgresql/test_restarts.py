"""A server that goes and comes back, one that is not there, and one that has no room."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
import pytest
from sqlalchemy import make_url

from broker import Broker
from broker.errors import DatabaseError, DatabaseUnavailable
from tests.places import PostgresPlace, client, contents, execute, rows
from tests.postgres_server import HOW_TO_GET_IT, Server, find_binaries, running
from tests.postgresql.support_failures import in_use, warm_up
from tests.support import ManualClock, acquire, commit_request, in_threads, messages, open_store

FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT
PASSWORD = "open-sesame"  # noqa: S105  # of nobody


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of our own, to be stopped and started; with few connections."""
    if find_binaries() is None and "CI" not in os.environ:
        pytest.skip(HOW_TO_GET_IT)
    settings = {"max_connections": "12", "superuser_reserved_connections": "0"}
    with running(synchronous_commit="on", **settings) as server:  # a crash must not undo a commit
        yield server


@pytest.fixture
def own(server: Server) -> Iterator[PostgresPlace]:
    """An empty store on that server, which runs when the test begins."""
    place = PostgresPlace(server.url)
    yield place
    execute(place, "DROP SCHEMA public CASCADE")
    execute(place, "CREATE SCHEMA public")


# ------------------------------------------------------------------------------------- restarted


@pytest.mark.parametrize("how", [FAST, IMMEDIATE])
def test_after_a_restart_the_next_calls_succeed_by_themselves(
    server: Server, own: PostgresPlace, clock: ManualClock, how: signal.Signals
) -> None:
    with open_store(own, clock, pool_size=5) as store:
        lease = acquire(store)
        warm_up(store, 5)
        server.stop(how)
        server.start()
        calls = [store.commit(commit_request(lease))]
        calls += [store.commit(commit_request(lease, "two", expectedRevision=1))]
        assert [each.revision for each in calls] == [1, 2]
        assert store.get_stream_revision({"streamId": "stream"}) == 2
        assert in_use(store) == 0
    assert messages(own) == ["message", "two"]


def test_after_a_restart_all_threads_go_on(
    server: Server, own: PostgresPlace, clock: ManualClock
) -> None:
    with open_store(own, clock, pool_size=5) as store:
        warm_up(store, 5)
        server.stop(IMMEDIATE)
        server.start()
        names = [str(number) for number in range(8)]
        in_threads(*[lambda name=name: acquire(store, name, name) for name in names])
        assert in_use(store) == 0
    assert rows(own, "SELECT actor_id FROM actor_leases ORDER BY 1") == [(each,) for each in names]


# ---------------------------------------------------------------------------------- not there


@pytest.mark.parametrize("how", [FAST, IMMEDIATE])
def test_while_the_server_is_gone_calls_say_so_and_nothing_is_half_done(
    server: Server, own: PostgresPlace, clock: ManualClock, how: signal.Signals
) -> None:
    with open_store(own, clock) as store:
        lease = acquire(store)
        before = contents(own)
        server.stop(how)
        try:
            with pytest.raises(DatabaseUnavailable, match="out of reach") as writing:
                store.commit(commit_request(lease))
            with pytest.raises(DatabaseUnavailable, match="out of reach"):
                store.get_stream_revision({"streamId": "stream"})
        finally:
            server.start()
        assert "\n" not in str(writing.value)
        assert contents(own) == before
        assert store.commit(commit_request(lease)).revision == 1


def test_the_server_ends_in_the_middle_of_a_call_before_commit(
    server: Server, own: PostgresPlace, clock: ManualClock
) -> None:
    def nonce() -> str:
        server.stop(FAST)
        return "nonce"

    with open_store(own, clock, nonce=nonce) as store:
        before = contents(own)
        try:
            with pytest.raises(DatabaseUnavailable, match="out of reach"):
                acquire(store)
        finally:
            server.start()
        assert contents(own) == before
        assert in_use(store) == 0


def test_no_error_has_the_password_in_it(server: Server, clock: ManualClock) -> None:
    url = make_url(server.url).set(password=PASSWORD, database="nowhere")
    broken = {
        "no such database": url,
        "nobody listens": url.set(host="127.0.0.1", port=1, query={}),
        "no such option": url.update_query_dict({"no_such_option": "1"}),
        "bad value": url.update_query_dict({"sslmode": "sometimes"}),
        "no such host": url.set(host="nowhere.invalid", query={}),
    }
    for what, each in broken.items():
        with pytest.raises(Exception) as caught:  # noqa: PT011  # what it says is looked at
            Broker.open(each, options=clock.options())
        said = f"{type(caught.value).__name__}: {caught.value}"
        assert PASSWORD not in said, what
        assert "\n" not in said, what
        assert isinstance(caught.value, DatabaseError) or "ConfigurationError" in said, said


def test_a_missing_database_is_named(server: Server) -> None:
    url = make_url(server.url).set(database="nowhere")
    with pytest.raises(DatabaseUnavailable, match='"nowhere" does not exist'):
        Broker.open(url)


# ------------------------------------------------------------------------------------- no room


@contextmanager
def no_room(place: PostgresPlace) -> Iterator[None]:
    """All connections that the server has are taken by others."""
    with ExitStack() as taken:
        with suppress(psycopg.OperationalError):
            while True:
                taken.enter_context(client(place))
        yield


def test_too_many_connections_is_an_error_and_nothing_is_stored(
    own: PostgresPlace, clock: ManualClock
) -> None:
    with open_store(own, clock) as store:
        lease = acquire(store)
        store.engine.dispose()
        with no_room(own), pytest.raises(DatabaseUnavailable, match="too many clients") as caught:
            store.commit(commit_request(lease))
        assert "\n" not in str(caught.value)
        assert store.commit(commit_request(lease)).revision == 1
    assert messages(own) == ["message"]
