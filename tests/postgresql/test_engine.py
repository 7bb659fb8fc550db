"""Engines of the store's own, and what becomes of the driver's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import Engine, NullPool, make_url
from sqlalchemy import exc as sa_exc

from broker.errors import (
    BrokerError,
    ConfigurationError,
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    OutcomeUnknown,
    SchemaError,
    StaleLease,
)
from broker.postgresql.engine import (
    driver_error,
    is_lost,
    make_engine,
    set_up,
    sqlstate,
    translate,
    translate_commit,
)
from broker.statements import Violation
from tests.places import PostgresPlace
from tests.postgresql.support_failures import with_settings


@contextmanager
def engine_for(place: PostgresPlace, **options: object) -> Iterator[Engine]:
    engine = make_engine(place.url, **options)  # type: ignore[arg-type]
    try:
        yield engine
    finally:
        engine.dispose()


def shown(engine: Engine, setting: str) -> str:
    with engine.connect() as connection:
        return str(connection.exec_driver_sql(f"SHOW {setting}").scalar_one())


# ----------------------------------------------------------------------------------------- engines


def test_a_session_waits_for_locks_as_long_as_it_may_be_busy(place: PostgresPlace) -> None:
    with engine_for(place, busy_timeout_ms=1_234) as engine:
        assert shown(engine, "lock_timeout") == "1234ms"
        with engine.connect() as connection:  # the setting has outlasted the first transaction
            connection.rollback()
            assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "1234ms"


def test_not_to_wait_is_not_to_wait_for_ever(place: PostgresPlace) -> None:
    with engine_for(place, busy_timeout_ms=0) as engine:
        assert shown(engine, "lock_timeout") == "1ms"


def test_an_acknowledged_commit_survives_whatever_is_usual_on_the_server(
    place: PostgresPlace,
) -> None:
    careless = with_settings(place, synchronous_commit="off")
    with engine_for(careless) as engine:
        assert shown(engine, "synchronous_commit") == "on"
    careful = with_settings(place, synchronous_commit="remote_apply")
    with engine_for(careful) as engine:
        assert shown(engine, "synchronous_commit") == "remote_apply"


def test_settings_of_a_transaction_end_with_it(place: PostgresPlace) -> None:
    with engine_for(place, transaction_pooler=True) as engine, engine.connect() as connection:
        connection.exec_driver_sql(set_up(70))
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "70ms"
        connection.rollback()
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == "0"


def test_for_a_pooler_the_session_is_left_as_it_is(place: PostgresPlace) -> None:
    with engine_for(place, transaction_pooler=True) as engine:
        assert shown(engine, "lock_timeout") == "0"
        connection = engine.raw_connection()
        assert getattr(connection.dbapi_connection, "prepare_threshold", 1) is None
        connection.close()


def test_the_session_says_who_it_is_and_speaks_utf8(place: PostgresPlace) -> None:
    with engine_for(place) as engine:
        assert shown(engine, "application_name") == "broker"
        assert shown(engine, "client_encoding") == "UTF8"
        assert shown(engine, "transaction_isolation") == "read committed"


def test_what_the_url_says_is_kept(place: PostgresPlace) -> None:
    url = make_url(place.url).update_query_dict(
        {"application_name": "shop", "connect_timeout": "9", "options": "-c work_mem=7MB"}
    )
    other = PostgresPlace(url.render_as_string(hide_password=False))
    with engine_for(other, poolclass=NullPool) as engine:
        assert (shown(engine, "application_name"), shown(engine, "work_mem")) == ("shop", "7MB")


def test_nothing_is_opened_before_it_is_asked_for() -> None:
    engine = make_engine("postgresql://nobody@127.0.0.1:1/nowhere", pool_size=3)
    assert engine.pool.size() == 3  # type: ignore[attr-defined]
    with pytest.raises(sa_exc.OperationalError):
        engine.connect()


def test_an_option_that_is_none_is_refused(place: PostgresPlace) -> None:
    with pytest.raises(ConfigurationError, match="not supported"):
        make_engine("postgresql+asyncpg://host/name")


# ------------------------------------------------------------------------------------------ errors


STATES: dict[str, tuple[type[BrokerError], str]] = {
    "40001": (DatabaseBusy, "put in order"),
    "40P01": (DatabaseBusy, "waited for each other"),
    "40002": (DatabaseBusy, "rolled back"),
    "55P03": (DatabaseBusy, "busy_timeout_ms"),
    "57014": (DatabaseBusy, "statement_timeout"),
    "25P03": (DatabaseBusy, "idle in its transaction"),
    "53300": (DatabaseBusy, "no connection to spare"),
    "25006": (DatabaseUnavailable, "read-only"),
    "28P01": (DatabaseUnavailable, "password is wrong"),
    "28000": (DatabaseUnavailable, "let this user in"),
    "3D000": (DatabaseUnavailable, "createdb"),
    "42501": (DatabaseUnavailable, "privilege"),
    "57P01": (DatabaseUnavailable, "shutting down"),
    "57P03": (DatabaseUnavailable, "not ready"),
    "08006": (DatabaseUnavailable, "connection failed"),
    "53100": (DatabaseUnavailable, "run out of disk"),
    "58030": (DatabaseUnavailable, "system failed"),
    "XX001": (DatabaseUnavailable, "damaged"),
    "42P01": (SchemaError, "broker upgrade"),
    "3F000": (SchemaError, "broker upgrade"),
    "42703": (SchemaError, "broker upgrade"),
    "25P02": (DatabaseError, "roll it back"),
    "42P05": (DatabaseError, "transaction_pooler"),
    "26000": (DatabaseError, "transaction_pooler"),
    "22021": (DatabaseError, "refused"),
    "P0001": (DatabaseError, "refused"),
    "23505": (DatabaseError, "refused"),
    "99999": (DatabaseError, "refused"),
}


@pytest.mark.parametrize("state", STATES)
def test_an_answer_of_the_server_becomes_one_of_ours_by_its_state(state: str) -> None:
    kind, says = STATES[state]
    ours = translate(driver_error(state, "what the server\n  said"))
    assert type(ours) is kind
    assert says in str(ours)
    assert "what the server said" in str(ours)
    assert ours.details["sqlstate"] == state


def test_an_error_without_a_state_is_a_server_out_of_reach() -> None:
    assert type(translate(psycopg.OperationalError("gone"))) is DatabaseUnavailable
    assert type(translate(psycopg.InterfaceError("closed"))) is DatabaseUnavailable
    assert type(translate(psycopg.ProgrammingError("wrong"))) is DatabaseError
    assert str(translate(psycopg.OperationalError())).endswith("OperationalError")


def test_what_wraps_an_error_is_looked_into() -> None:
    inner = driver_error("55P03", "locked")
    assert type(translate(sa_exc.OperationalError("SQL", {}, inner))) is DatabaseBusy
    violation = Violation()
    violation.__cause__ = driver_error("23505", "twice")
    assert type(translate(violation)) is DatabaseError
    assert type(translate(sa_exc.TimeoutError("pool"))) is DatabaseBusy
    assert type(translate(sa_exc.InvalidRequestError("session"))) is DatabaseError


@pytest.mark.parametrize("error", [ValueError("a clock's"), StaleLease("ours"), KeyError("x")])
def test_any_other_error_stays_what_it_is(error: Exception) -> None:
    assert translate(error) is error
    assert not is_lost(error)


def test_a_state_that_psycopg_does_not_know_is_kept() -> None:
    assert sqlstate(driver_error("ZZ123", "strange")) == "ZZ123"
    assert sqlstate(driver_error("40001", "known")) == "40001"
    assert sqlstate(ValueError()) is None


@pytest.mark.parametrize("state", ["40001", "23505", "57014", "53100", "25006"])
def test_an_answer_to_commit_says_that_nothing_was_stored(state: str) -> None:
    error = driver_error(state, "no")
    assert not isinstance(translate_commit(error), OutcomeUnknown)
    assert type(translate_commit(error)) is type(translate(error))


@pytest.mark.parametrize(
    "error",
    [
        driver_error("57P01", "terminated"),
        driver_error("57P02", "crashed"),
        driver_error("08006", "broken"),
        driver_error("08P01", "a pooler's"),
        psycopg.OperationalError("the connection is lost"),
        sa_exc.OperationalError("COMMIT", {}, psycopg.OperationalError("lost")),
        KeyboardInterrupt(),
    ],
)
def test_a_session_that_ended_during_commit_leaves_the_outcome_open(error: BaseException) -> None:
    ours = translate_commit(error)
    assert type(ours) is OutcomeUnknown
    assert "messageId or requestId" in str(ours)


@pytest.mark.parametrize("state", [None, "57P01", "57P05", "08003", "26000", "0A000"])
def test_a_connection_that_is_of_no_use_is_lost(state: str | None) -> None:
    error = psycopg.OperationalError("gone") if state is None else driver_error(state, "gone")
    assert is_lost(error)


@pytest.mark.parametrize("state", ["40001", "23505", "57014", "55P03", "25006", "42P01"])
def test_a_connection_whose_server_answered_is_not_lost(state: str) -> None:
    assert not is_lost(driver_error(state, "no"))
