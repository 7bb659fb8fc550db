"""Units of work on an AsyncSession of psycopg's asynchronous form, by run_sync."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import exc as sa_exc
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from broker import AsyncBroker, UnitOfWork, schema
from broker.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailable,
    IdempotencyConflict,
    RevisionConflict,
)
from broker.messages import Lease
from broker.models import Stream
from tests.async_support import on_a_loop
from tests.places import PostgresPlace, rows, url_of
from tests.postgresql.support_failures import many_events, terminate_sessions
from tests.support import (
    ManualClock,
    Order,
    UnitOn,
    acquire,
    commit_request,
    messages,
    open_store,
    operate,
    operation_requests,
    orders,
)

URLS = ["postgresql+psycopg", "postgresql+psycopg_async"]


def with_session(
    place: PostgresPlace,
    work: Callable[[AsyncSession], Awaitable[None]],
    scheme: str = URLS[0],
    **options: Any,
) -> None:
    """Do something with an asynchronous session of an application's."""

    async def run() -> None:
        engine = create_async_engine(place.url.replace(URLS[0], scheme))
        try:
            async with AsyncSession(engine.execution_options(**options)) as session:
                await work(session)
        finally:
            await engine.dispose()

    on_a_loop(run)


@pytest.mark.parametrize("scheme", URLS)
def test_the_applications_rows_and_the_stores_are_committed_together(
    database: PostgresPlace, unit_on: UnitOn, scheme: str
) -> None:
    async def work(session: AsyncSession) -> None:
        session.add(Order(name="mine"))
        lease = await session.run_sync(lambda s: acquire(unit_on(s)))
        await session.run_sync(lambda s: unit_on(s).commit(commit_request(lease)))
        assert (orders(database), messages(database)) == ([], [])
        await session.commit()

    with_session(database, work, scheme)
    assert (orders(database), messages(database)) == (["mine"], ["message"])


def test_every_operation_works(
    database: PostgresPlace, clock: ManualClock, unit_on: UnitOn
) -> None:
    with open_store(database, clock) as store:
        requests = operation_requests(store, clock)

    def operate_on(name: str, request: Any, session: Any) -> None:
        operate(unit_on(session), name, request)

    async def work(session: AsyncSession) -> None:
        for name, request in requests.items():
            await session.run_sync(partial(operate_on, name, request))
        await session.commit()

    with_session(database, work)
    assert messages(database) == ["first", "second"]


def test_a_refused_operation_leaves_the_transaction_usable(
    database: PostgresPlace, unit_on: UnitOn
) -> None:
    async def work(session: AsyncSession) -> None:
        def refused(s: Any, lease: Lease) -> None:
            unit = unit_on(s)
            unit.commit(many_events(lease, 150, "first"))
            with pytest.raises(RevisionConflict):
                unit.commit(commit_request(lease, "late"))
            request = many_events(lease, 150, "second", expectedRevision=150)
            request["events"][-1]["eventId"] = "first-0"
            with pytest.raises(IdempotencyConflict):
                unit.commit(request)
            assert s.get_one(Stream, "stream").revision == 150

        lease = await session.run_sync(lambda s: acquire(unit_on(s)))
        await session.run_sync(refused, lease)
        async with session.begin_nested() as nested:
            later = commit_request(lease, "undone", expectedRevision=150)
            await session.run_sync(lambda s: unit_on(s).commit(later))
            await nested.rollback()
        await session.commit()

    with_session(database, work)
    assert messages(database) == ["first"]


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "REPEATABLE READ", "SERIALIZABLE"])
def test_another_isolation_is_refused(database: PostgresPlace, unit_on: UnitOn, level: str) -> None:
    async def work(session: AsyncSession) -> None:
        with pytest.raises(ConfigurationError, match=level):
            await session.run_sync(lambda s: acquire(unit_on(s)))

    with_session(database, work, isolation_level=level)
    assert rows(database, "SELECT * FROM actor_leases") == []


def test_a_schema_by_the_engines_map(database: PostgresPlace, unit_on: UnitOn) -> None:
    schema.upgrade(database.url, schema="tenant")

    async def work(session: AsyncSession) -> None:
        await session.run_sync(lambda s: acquire(unit_on(s)))
        await session.commit()

    with_session(database, work, schema_translate_map={None: "tenant"})
    assert rows(database, "SELECT actor_id FROM tenant.actor_leases") == [("actor",)]
    assert rows(database, "SELECT actor_id FROM actor_leases") == []


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # which SQLAlchemy made
def test_without_run_sync_it_is_told_how(database: PostgresPlace, unit_on: UnitOn) -> None:
    async def work(session: AsyncSession) -> None:
        with pytest.raises(ConfigurationError, match="run_sync"):
            UnitOfWork(session)  # type: ignore[arg-type]  # what is refused
        with pytest.raises(ConfigurationError, match="run_sync"):
            acquire(unit_on(session.sync_session))

    with_session(database, work)
    assert rows(database, "SELECT * FROM actor_leases") == []


def test_a_transaction_that_has_failed_says_what_to_do(
    database: PostgresPlace, unit_on: UnitOn
) -> None:
    async def work(session: AsyncSession) -> None:
        with pytest.raises(sa_exc.DataError):
            await session.execute(text("SELECT 1/0"))
        with pytest.raises(DatabaseError, match="roll it back"):
            await session.run_sync(lambda s: acquire(unit_on(s)))
        await session.rollback()
        await session.run_sync(lambda s: acquire(unit_on(s)))
        await session.commit()

    with_session(database, work)
    assert rows(database, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_a_connection_that_died_is_told_and_the_next_transaction_has_another(
    database: PostgresPlace, unit_on: UnitOn
) -> None:
    async def work(session: AsyncSession) -> None:
        lease = await session.run_sync(lambda s: acquire(unit_on(s)))
        await asyncio.to_thread(terminate_sessions, database)
        with pytest.raises(DatabaseUnavailable):
            await session.run_sync(lambda s: unit_on(s).commit(commit_request(lease)))
        await session.rollback()
        await session.run_sync(lambda s: acquire(unit_on(s), "next", "next"))
        await session.commit()

    with_session(database, work)
    assert rows(database, "SELECT actor_id FROM actor_leases") == [("next",)]


def test_the_async_store_and_a_session_work_side_by_side(
    database: PostgresPlace, clock: ManualClock
) -> None:
    async def run() -> None:
        engine = create_async_engine(database.url)
        opening = AsyncBroker.open(url_of(database), options=clock.options())
        async with await opening as store, AsyncSession(engine) as session:
            lease = await session.run_sync(lambda s: acquire(store.unit_of_work(s)))
            await session.commit()
            assert (await store.commit(commit_request(lease))).revision == 1
        await engine.dispose()

    on_a_loop(run)
    assert messages(database) == ["message"]
