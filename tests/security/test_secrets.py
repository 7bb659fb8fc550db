"""Nonces and passwords are nowhere but in the answers that they are: not in logs, errors or reprs."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from broker import Broker, Options, UnitOfWork, schema
from broker.commits import prepare
from broker.errors import (
    BrokerError,
    ConfigurationError,
    CorruptRow,
    DatabaseBusy,
    DatabaseError,
    IdempotencyConflict,
    InvalidRequest,
    LeaseUnavailable,
    OutcomeUnknown,
    RevisionConflict,
    StaleLease,
    StoreClosed,
)
from broker.messages import Lease
from broker.options import random_nonce
from tests.migrations.support import version_2
from tests.places import Place, backend_of, execute, url_of
from tests.security.support import NONCE, Told, with_password
from tests.support import (
    TTL_MS,
    ManualClock,
    Order,
    acquire,
    break_commit,
    commit_request,
    credential,
    open_store,
    operate,
    operation_names,
    operation_requests,
)

# ------------------------------------------------------------------------------------------ nonces


def test_nonces_are_128_bits_of_the_systems_secure_source(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def token_hex(count: int) -> str:
        asked.append(count)
        return "00" * count

    assert len({random_nonce() for _ in range(1_000)}) == 1_000
    monkeypatch.setattr("secrets.token_hex", token_hex)
    assert random_nonce() == "00" * 16
    assert asked == [16]


def test_nonces_are_compared_in_a_time_that_tells_nothing(
    store: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    lease = acquire(store)
    monkeypatch.setattr("hmac.compare_digest", compare)
    for work in credential_shown_to(store, lease):
        work(credential(lease))
        with pytest.raises(StaleLease):
            work({"epoch": lease.epoch, "nonce": "wrong"})
    expected = [(lease.nonce.encode(), lease.nonce.encode()), (lease.nonce.encode(), b"wrong")]
    assert set(compared) == set(expected)
    assert len(compared) >= 2 * len(credential_shown_to(store, lease))


def credential_shown_to(store: Broker, lease: Lease) -> list[Callable[[Any], object]]:
    """Every operation that asks for one and leaves it as it is."""
    reading = {"streamId": lease.stream_id}
    shown = {"actorId": lease.actor_id}
    commit = commit_request(lease, "once", events=[])
    return [
        lambda given: store.heartbeat_lease(shown | {"lease": given, "ttlMs": TTL_MS}),
        lambda given: store.commit(commit | {"lease": given, "messageId": str(given)}),
        lambda given: store.read_authorized_events(
            reading | {"authorization": shown | {"lease": given}}
        ),
        lambda given: store.read_authorized_events_page(
            reading | shown | {"lease": given, "afterRevision": 0, "limit": 1}
        ),
    ]


# -------------------------------------------------------------------------------------- reprs, logs


def test_no_operation_tells_a_secret_to_logs_and_no_repr_shows_one(
    guarded: Broker, clock: ManualClock, told: Told
) -> None:
    requests = operation_requests(guarded, clock)
    assert requests.keys() == operation_names()
    results = {name: operate(guarded, name, request) for name, request in requests.items()}
    leases = [each for each in results.values() if isinstance(each, Lease)]
    assert {lease.nonce for lease in leases} == {NONCE}
    told.add(requests, results, *[lease.credential for lease in leases])
    told.add(guarded, guarded.engine, guarded.engine.url, guarded.engine.pool, guarded.options)
    assert told.secrets() == set()
    told.add(leases[0].to_json())  # where it is the answer
    assert told.secrets() == {NONCE}


def test_what_a_commit_is_prepared_into_does_not_show_its_nonce(told: Told) -> None:
    lease = Lease("actor", "stream", "holder", 1, NONCE, 0, 0, 1)
    prepared = prepare(commit_request(lease), 1_000)
    told.add(prepared, [prepared], {"lease": prepared.lease}, lease)
    assert prepared.lease.nonce == NONCE
    assert told.secrets() == set()


def test_a_look_at_a_store_tells_no_secret(empty_place: Place, told: Told) -> None:
    with Broker.open(url_of(with_password(empty_place))) as store:
        acquire(store)
    execute(empty_place, "UPDATE actor_leases SET nonce = ?", NONCE)
    with Broker.open(url_of(with_password(empty_place)), migrate=False):
        assert "FROM" in told.logged()  # what the engine was asked was logged
    assert told.secrets() == set()


def test_a_migration_tells_no_nonce(path: Path, told: Told) -> None:
    version_2(path)
    execute(path, "UPDATE actor_leases SET nonce = ?", NONCE)
    told.add(schema.upgrade(url_of(path)), schema.downgrade(url_of(path), "0001", lose_data=True))
    assert "INSERT INTO actor_leases" in told.logged()
    assert told.secrets() == set()


def test_what_a_session_on_the_stores_engine_writes_is_not_logged(
    guarded: Broker, told: Told
) -> None:
    with Session(guarded.engine) as session, session.begin():
        session.execute(text("UPDATE actor_leases SET nonce = :nonce"), {"nonce": NONCE})
        with pytest.raises(Exception, match="nowhere") as caught:
            session.execute(text("SELECT * FROM nowhere WHERE a = :nonce"), {"nonce": NONCE})
        told.error(caught.value)
        session.rollback()
    assert "hidden due to hide_parameters" in told.logged()
    assert told.secrets() == set()


def test_the_check_can_fail(place: Place, clock: ManualClock, told: Told) -> None:
    open_store(place, clock).close()
    engine = create_engine(url_of(place))  # without hide_parameters
    with engine.begin() as connection:
        connection.execute(text("UPDATE actor_leases SET nonce = :nonce"), {"nonce": NONCE})
    engine.dispose()
    assert told.secrets() == {NONCE}


# ------------------------------------------------------------------------------------------- errors


def misshapen(lease: Lease) -> list[dict[str, Any]]:
    """Credentials that are none, each with the nonce in it."""
    return [
        {"epoch": lease.epoch, "nonce": f"{NONCE}\0"},
        {"epoch": lease.epoch, "nonce": NONCE * 100},
        {"epoch": lease.epoch, "nonce": [NONCE]},
        {"epoch": NONCE, "nonce": NONCE},
        {"epoch": lease.epoch, "nonce": NONCE, "more": NONCE},
        {"nonce": NONCE},
    ]


def test_no_refusal_shows_a_nonce(guarded: Broker, told: Told) -> None:
    lease = acquire(guarded)
    commit = commit_request(lease)
    guarded.commit(commit)
    beat = {"actorId": "actor", "ttlMs": TTL_MS}
    guarded.heartbeat_lease(beat | {"lease": credential(lease)}, request_id="r")

    told.refusal(LeaseUnavailable, acquire, guarded)
    told.refusal(RevisionConflict, guarded.commit, commit | {"messageId": "late", "events": []})
    told.refusal(IdempotencyConflict, guarded.commit, commit | {"expectedRevision": 1})
    told.refusal(
        IdempotencyConflict,
        lambda: guarded.heartbeat_lease(
            {"actorId": "actor", "ttlMs": 1, "lease": credential(lease)}, request_id="r"
        ),
    )
    for given in ({"epoch": 1, "nonce": f"{NONCE}-of-another"}, {"epoch": 2, "nonce": NONCE}):
        told.refusal(StaleLease, guarded.heartbeat_lease, beat | {"lease": given})
        told.refusal(StaleLease, guarded.commit, commit | {"lease": given, "messageId": "stale"})
    for lacking in (*misshapen(lease), NONCE, [NONCE], None):
        told.refusal(InvalidRequest, guarded.heartbeat_lease, beat | {"lease": lacking})
        told.refusal(InvalidRequest, guarded.commit, commit | {"lease": lacking})
    assert told.secrets() == set()


def test_a_nonce_of_the_applications_that_is_none_is_not_shown(
    place: Place, clock: ManualClock, told: Told
) -> None:
    with open_store(place, clock, nonce=lambda: f"{NONCE}\0") as store:
        told.refusal(InvalidRequest, acquire, store)
    assert told.secrets() == set()


# What the database says when a rule of its own is broken; a server adds the whole row.
OBJECTIONS = {
    "sqlite": "CREATE TRIGGER rule BEFORE INSERT ON actor_leases"
    " WHEN NEW.holder_id = 'bad' BEGIN SELECT RAISE(ABORT, 'a rule of the database'); END",
    "postgresql": "ALTER TABLE actor_leases ADD CONSTRAINT rule CHECK (holder_id <> 'bad')",
}


@pytest.mark.parametrize("road", ["store", "session", "engine of the application's"])
def test_what_the_database_says_of_a_lease_it_refuses_is_not_shown(
    guarded: Broker, place: Place, told: Told, road: str
) -> None:
    execute(place, OBJECTIONS[backend_of(place)])
    engine = create_engine(url_of(place)) if road.startswith("engine") else guarded.engine
    with Session(engine) as session:
        unit = UnitOfWork(session, guarded.options)
        told.refusal(
            BrokerError,  # of SQLite's, a session is told before anything is written
            lambda: acquire(guarded if road == "store" else unit, holderId="bad"),
        )
    if engine is not guarded.engine:
        engine.dispose()
    assert "rule" in "".join(told.texts)
    assert told.secrets() == set()


def test_a_receipt_that_was_damaged_is_not_shown(guarded: Broker, place: Place, told: Told) -> None:
    request = {"actorId": "actor", "holderId": "holder", "ttlMs": TTL_MS}
    guarded.acquire_lease(request, request_id="r")
    whole = f'{{"actorId":"actor","nonce":"{NONCE}","epoch":1'
    for damaged in (f"{whole}", f"{whole}}}", f'"{NONCE}"', f'["{NONCE}"]'):
        execute(place, "UPDATE mutation_receipts SET response_json = ?", damaged)
        told.refusal(CorruptRow, lambda: guarded.acquire_lease(request, request_id="r"))
    assert told.secrets() == set()


def test_a_receipt_of_which_a_byte_was_damaged_is_not_shown(
    path: Path, clock: ManualClock, told: Told
) -> None:
    request = {"actorId": "actor", "holderId": "holder", "ttlMs": TTL_MS}
    with open_store(path, clock, nonce=lambda: NONCE) as store:
        store.acquire_lease(request, request_id="r")
        damaged = f'{{"nonce":"{NONCE}","holderId":"'.encode() + b'\xff"}'
        execute(path, "UPDATE mutation_receipts SET response_json = CAST(? AS TEXT)", damaged)
        told.refusal(CorruptRow, lambda: store.acquire_lease(request, request_id="r"))
    assert told.secrets() == set()


def test_a_database_that_fails_is_told_of_without_secrets(
    path: Path, clock: ManualClock, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(path, clock, nonce=lambda: NONCE, busy_timeout_ms=0)
    lease = acquire(store)
    beat = {"actorId": "actor", "ttlMs": TTL_MS, "lease": credential(lease)}
    lost = sqlite3.OperationalError("disk I/O error")
    lost.sqlite_errorcode = sqlite3.SQLITE_IOERR  # as the driver sets it
    with monkeypatch.context() as patch:
        break_commit(patch, lost, takes_effect=True)
        told.refusal(OutcomeUnknown, store.heartbeat_lease, beat)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        told.refusal(DatabaseBusy, store.heartbeat_lease, beat)
    other.close()
    execute(path, "DROP TABLE mutation_receipts")
    told.refusal(BrokerError, store.heartbeat_lease, beat)
    store.close()
    told.refusal(StoreClosed, store.heartbeat_lease, beat)
    assert told.secrets() == set()


def test_an_error_does_not_repeat_what_a_session_could_not_write(
    database: Place, told: Told
) -> None:
    engine = create_engine(url_of(database))
    logging.getLogger("sqlalchemy.engine").setLevel(logging.CRITICAL)  # it is the application's
    with Session(engine) as session:
        session.add_all([Order(name="one", note=NONCE), Order(name="one", note=NONCE)])
        with pytest.raises(IntegrityError, match=NONCE):
            session.flush()
        with pytest.raises(
            DatabaseError, match="rolled back due to a previous exception"
        ) as caught:
            acquire(UnitOfWork(session))
        told.texts += [caught.value.message, str(caught.value.to_json())]
    engine.dispose()
    assert told.secrets() == set()


def test_a_nonce_given_where_a_function_belongs_is_not_shown(told: Told) -> None:
    told.refusal(ConfigurationError, lambda: Options(nonce=NONCE))  # type: ignore[arg-type]  # is none
    told.add(Options(nonce=lambda: NONCE))
    assert told.secrets() == set()
