"""Cases about a session of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import (
    text,
)
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from broker import IMMEDIATE, Broker, UnitOfWork, configure_engine
from broker.errors import (
    ConfigurationError,
    StaleLease,
)
from broker.models import ActorLease
from tests.places import Place, async_url_of, rows
from tests.support import Application, Order, acquire, commit_request, is_write_locked, orders

# --------------------------------------------------------------------------------------------- B59


def with_async_session(
    place: Place, work: Callable[[AsyncSession, AsyncEngine], Any], *, configure: bool = True
) -> Any:
    """Do something with a session of an async engine; its pool must be whole afterwards."""

    async def run() -> Any:
        engine = create_async_engine(async_url_of(place))
        if configure:
            configure_engine(engine.sync_engine)
        async with AsyncSession(engine) as session:
            answer = await work(session, engine)
        async with engine.connect() as connection:
            assert (await connection.execute(text("SELECT 1"))).scalar() == 1
        assert engine.pool.status().endswith("Current Checked out connections: 0")
        await engine.dispose()
        return answer

    return asyncio.run(run())


def test_b59_an_async_session_is_refused_and_told_the_way(store: Broker, place: Place) -> None:
    async def misuse(session: AsyncSession, _engine: AsyncEngine) -> None:
        with pytest.raises(ConfigurationError, match=r"run_sync\(lambda s: UnitOfWork\(s\)"):
            UnitOfWork(session)  # type: ignore[arg-type]  # what is refused
        with pytest.raises(ConfigurationError, match="run_sync"):
            store.unit_of_work(session)  # type: ignore[arg-type]  # what is refused

    with_async_session(place, misuse)


@pytest.mark.parametrize("configure", [True, False])
def test_b59_through_run_sync_the_rows_of_both_are_committed_together(
    store: Broker, place: Place, configure: bool
) -> None:
    async def unit(session: AsyncSession, engine: AsyncEngine) -> int:
        async with engine.begin() as connection:
            await connection.run_sync(Application.metadata.create_all)
        session.add(Order(name="mine"))
        lease = await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        result = await session.run_sync(lambda sync: UnitOfWork(sync).commit(commit_request(lease)))
        await session.commit()
        return result.revision  # a plain record: nothing is expired by the commit

    assert with_async_session(place, unit, configure=configure) == 1
    assert orders(place) == ["mine"]
    assert rows(place, "SELECT revision FROM events") == [(1,)]


def test_b59_through_run_sync_a_rollback_undoes_both(store: Broker, place: Place) -> None:
    async def unit(session: AsyncSession, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.run_sync(Application.metadata.create_all)
        session.add(Order(name="mine"))
        await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        await session.rollback()

    with_async_session(place, unit)
    assert orders(place) == []
    assert rows(place, "SELECT * FROM actor_leases") == []
    assert not is_write_locked(place)


def test_b59_through_run_sync_a_refusal_leaves_the_transaction_usable(
    store: Broker, place: Place
) -> None:
    async def unit(session: AsyncSession, engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.run_sync(Application.metadata.create_all)
        session.add(Order(name="mine"))
        lease = await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        wrong = commit_request(lease) | {"lease": {"epoch": 9, "nonce": "no"}}
        with pytest.raises(StaleLease):
            await session.run_sync(lambda sync: UnitOfWork(sync).commit(wrong))
        await session.run_sync(lambda sync: UnitOfWork(sync).commit(commit_request(lease)))
        await session.commit()

    with_async_session(place, unit)
    assert orders(place) == ["mine"]
    assert rows(place, "SELECT message_id FROM inbox") == [("message",)]


@pytest.mark.filterwarnings("ignore:coroutine 'AsyncConnection.connect' was never awaited")
def test_b59_a_sync_session_on_an_async_engine_is_named_as_the_misuse(
    store: Broker, place: Place
) -> None:
    async def misuse(session: AsyncSession, _engine: AsyncEngine) -> None:
        with pytest.raises(ConfigurationError, match="run_sync"):
            acquire(UnitOfWork(session.sync_session))
        await session.rollback()
        lease = await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        assert lease.epoch == 1
        await session.commit()

    with_async_session(place, misuse)
    assert rows(place, "SELECT actor_id FROM actor_leases") == [("actor",)]


def test_b59_entities_loaded_through_run_sync_can_be_refreshed_after_a_write(
    store: Broker, place: Place
) -> None:
    async def unit(session: AsyncSession, _engine: AsyncEngine) -> int:
        await session.run_sync(lambda sync: acquire(UnitOfWork(sync)))
        row = await session.get_one(ActorLease, "actor")
        shown = {"epoch": row.epoch, "nonce": row.nonce}
        released = {"actorId": "actor", "lease": shown}
        await session.run_sync(lambda sync: UnitOfWork(sync).release_lease(released))
        await session.refresh(row)
        return row.expires_at - row.heartbeat_at

    assert with_async_session(place, unit) == 0


def test_b59_many_tasks_write_through_run_sync(store: Broker, place: Place) -> None:
    async def work() -> None:
        engine = create_async_engine(async_url_of(place))
        configure_engine(engine.sync_engine)
        writing = engine.execution_options(**IMMEDIATE)

        async def one(name: str) -> None:
            async with AsyncSession(writing) as session, session.begin():
                await session.run_sync(lambda sync: acquire(UnitOfWork(sync), name, name))

        await asyncio.gather(*(one(str(number)) for number in range(8)))
        await engine.dispose()

    asyncio.run(work())
    assert rows(place, "SELECT count(*) FROM actor_leases") == [(8,)]
