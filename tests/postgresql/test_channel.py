"""Statements sent ahead of their answers: values, errors in the middle, prepared statements, COPY."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text

from broker.postgresql.channel import CursorChannel, PipelineChannel
from broker.statements import Channel, Statement, Violation
from tests.places import PostgresPlace, rows
from tests.postgresql.support_channel import (
    ADD,
    ALL,
    COPY,
    COUNT,
    ECHO,
    REMOVE,
    channel_to,
    connected,
)
from tests.postgresql.support_failures import terminate_sessions

BROKEN = Statement(text("SELECT nothing FROM nowhere"))
DIVIDE = Statement(text("SELECT 1 / CAST(:by AS bigint)"), "by")
TYPES = Statement(
    text(
        "SELECT CAST(1 AS bigint), CAST(2 AS int), CAST(3 AS smallint), CAST(4 AS oid), true, false,"
        " CAST('text' AS text), CAST('name' AS name), CAST('v' AS varchar), NULL,"
        " CAST(NULL AS bigint), CAST(NULL AS text), CAST('' AS text)"
    )
)
TEXTS = [
    "",
    "NULL",
    "null",
    "\\",
    '"',
    "'",
    "{}",
    "a,b",
    "%s %% $1 :x",
    "ä ß",
    "\U0001f40d",
    "\ufeff",
]
NUMBERS = [0, -1, 2**31, 2**53 - 1, -(2**63), 2**63 - 1, None]


@pytest.fixture(params=["pipeline", "pipeline, nothing prepared", "cursor"])
def channel(request: pytest.FixtureRequest, empty_place: PostgresPlace) -> Iterator[Channel]:
    """A channel of each kind, in a transaction."""
    if request.param == "cursor":
        with connected(empty_place) as connection:
            yield CursorChannel(connection, None)
            connection.rollback()
        return
    with channel_to(empty_place, {} if request.param == "pipeline" else None) as channel:
        channel.control("BEGIN")
        yield channel


@pytest.fixture
def pipeline(empty_place: PostgresPlace) -> Iterator[PipelineChannel]:
    """A channel that prepares what it sends, in a transaction."""
    with channel_to(empty_place, {}) as channel:
        channel.control("BEGIN")
        yield channel


# ------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize("value", TEXTS)
def test_texts_come_back_as_they_were(channel: Channel, value: str) -> None:
    assert channel.one(ECHO, value) == (value,)
    channel.put(ADD, value, 1)
    assert channel.all(ALL) == [(value, 1)]


@pytest.mark.parametrize("number", NUMBERS)
def test_integers_and_null_come_back_as_they_were(channel: Channel, number: int | None) -> None:
    channel.put(ADD, "id", number)
    assert channel.one(ALL) == ("id", number)


def test_types_are_those_of_python(channel: Channel) -> None:
    found = channel.one(TYPES)
    assert found is not None
    assert [*found] == [1, 2, 3, 4, True, False, "text", "name", "v", None, None, None, ""]
    assert [type(each) for each in found[:6]] == [int, int, int, int, bool, bool]


def test_what_is_asked_for_has_what_was_put_before(channel: Channel) -> None:
    channel.put_each(ADD, [(str(number), number) for number in range(10)])
    assert channel.one(COUNT) == (10,)
    assert channel.run(REMOVE, 7) == 3
    with channel.each(ALL) as found:
        assert [number for _, number in found] == [*range(7)]
    assert channel.one(Statement(text("SELECT id FROM tried WHERE id = 'none'"))) is None
    assert channel.run(REMOVE, 1_000) == 0


def test_a_violated_constraint_is_one_of_ours(channel: Channel) -> None:
    channel.put(ADD, "id", 1)
    with pytest.raises(Violation) as caught:
        channel.run(ADD, "id", 2)
    assert isinstance(caught.value.__cause__, psycopg.errors.UniqueViolation)
    assert caught.value.__cause__.sqlstate == "23505"


def test_any_other_error_is_the_drivers(channel: Channel) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"):
        channel.all(BROKEN)


def test_a_savepoint_makes_good_for_an_error(channel: Channel) -> None:
    channel.put(ADD, "before", 1)
    channel.control("SAVEPOINT here")
    with pytest.raises(psycopg.errors.DivisionByZero):
        channel.one(DIVIDE, 0)
    channel.control("ROLLBACK TO SAVEPOINT here")
    channel.put(ADD, "after", 2)
    assert channel.all(ALL) == [("after", 2), ("before", 1)]


# ------------------------------------------------------------------------------------------- NUL


def test_nul_in_a_text_is_refused_before_anything_is_sent(pipeline: PipelineChannel) -> None:
    pipeline.put(ADD, "id", 1)
    with pytest.raises(psycopg.DataError, match="NUL") as caught:
        pipeline.put(ADD, "a\0b", 2)
    assert caught.value.sqlstate == "22021"
    assert pipeline.all(ALL) == [("id", 1)]  # the transaction goes on


def test_a_statement_whose_first_values_hold_nul_is_not_taken_for_prepared(
    pipeline: PipelineChannel,
) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        pipeline.one(ECHO, "\0")
    assert pipeline.one(ECHO, "text") == ("text",)


# ------------------------------------------------------------------------- errors in the middle


def test_the_first_error_in_a_pipeline_is_the_one_that_is_raised(pipeline: PipelineChannel) -> None:
    pipeline.put(ADD, "id", 1)
    pipeline.put(DIVIDE, 0)
    pipeline.put(ADD, "id", 2)
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.all(ALL)


def test_nothing_behind_an_error_is_done_not_even_commit(
    pipeline: PipelineChannel, empty_place: PostgresPlace
) -> None:
    pipeline.put(ADD, "id", 1)
    pipeline.put(DIVIDE, 0)
    pipeline.control("COMMIT")
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.settle()
    pipeline.control("ROLLBACK")
    pipeline.settle()
    assert rows(empty_place, "SELECT * FROM tried") == []


def test_the_channel_is_good_for_another_transaction_after_an_error(
    pipeline: PipelineChannel, empty_place: PostgresPlace
) -> None:
    pipeline.put(DIVIDE, 0)
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.one(COUNT)
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        pipeline.one(COUNT)
    pipeline.control("ROLLBACK")
    pipeline.control("BEGIN")
    pipeline.put(ADD, "id", 1)
    pipeline.control("COMMIT")
    pipeline.settle()
    assert rows(empty_place, "SELECT * FROM tried") == [("id", 1)]


def test_settling_what_was_put_raises_what_it_has_to_say_once(pipeline: PipelineChannel) -> None:
    pipeline.put(ADD, "id", 1)
    pipeline.put(ADD, "id", 1)
    with pytest.raises(Violation):
        pipeline.settle()
    pipeline.settle()  # nothing is owed any more


def test_a_connection_that_is_lost_is_an_error_of_the_driver_without_a_state(
    pipeline: PipelineChannel, empty_place: PostgresPlace
) -> None:
    pipeline.put(ADD, "id", 1)
    pipeline.settle()
    terminate_sessions(empty_place)
    with pytest.raises(psycopg.OperationalError):
        pipeline.require_connection()
    with pytest.raises(psycopg.OperationalError):
        pipeline.one(COUNT)
    assert rows(empty_place, "SELECT * FROM tried") == []


def test_a_connection_that_is_there_is_not_taken_for_lost(pipeline: PipelineChannel) -> None:
    pipeline.put_each(ADD, [(str(number) * 1_000, number) for number in range(1_000)])
    pipeline.require_connection()
    assert pipeline.one(COUNT) == (1_000,)
    pipeline.require_connection()


# --------------------------------------------------------------------------- prepared statements


PREPARED = Statement(text("SELECT statement FROM pg_prepared_statements ORDER BY name"))


def test_a_statement_is_prepared_once(empty_place: PostgresPlace) -> None:
    prepared: dict[str, bytes] = {}
    with channel_to(empty_place, prepared) as channel:
        for number in range(5):
            channel.put(ADD, str(number), number)
        assert len(channel.all(PREPARED)) == len(prepared) == 2


def test_another_channel_on_the_same_connection_goes_on_with_them(
    empty_place: PostgresPlace,
) -> None:
    prepared: dict[str, bytes] = {}
    with connected(empty_place) as connection:
        for _ in range(3):
            channel = PipelineChannel(connection, None, prepared)
            channel.one(COUNT)
            channel.close()
    assert list(prepared.values()) == [b"broker_0"]


def test_those_that_failed_to_be_prepared_are_forgotten(empty_place: PostgresPlace) -> None:
    prepared: dict[str, bytes] = {}
    with channel_to(empty_place, prepared) as channel:
        channel.control("BEGIN")
        channel.put(ADD, "id", 1)
        channel.put(BROKEN)
        channel.put(DIVIDE, 1)
        with pytest.raises(psycopg.errors.UndefinedTable):
            channel.one(COUNT)
        assert len(prepared) == 1
        channel.control("ROLLBACK")
        assert channel.one(DIVIDE, 1) == (1,)
        assert channel.one(COUNT) == (0,)
        channel.put(ADD, "id", 1)
        with pytest.raises(psycopg.errors.UndefinedTable):
            channel.all(BROKEN)
        assert sorted(prepared.values()) == [b"broker_0", b"broker_1", b"broker_2"]


def test_without_leave_nothing_is_prepared(empty_place: PostgresPlace) -> None:
    with channel_to(empty_place, None) as channel:
        channel.put(ADD, "id", 1)
        assert channel.all(PREPARED) == []


# ------------------------------------------------------------------------------------------- COPY


def rows_to_copy(count: int) -> list[tuple[str, int]]:
    return [
        (f"{number:04} \\N \t\n {TEXTS[number % len(TEXTS)]}", number) for number in range(count)
    ]


def test_a_thousand_rows_are_copied_with_whatever_text_is_in_them(
    pipeline: PipelineChannel,
) -> None:
    pipeline.put(ADD, "before", -1)
    pipeline.copy(COPY, rows_to_copy(1_000))
    pipeline.put(ADD, "later", None)
    assert pipeline.all(ALL)[:-2] == rows_to_copy(1_000)
    assert pipeline.one(COUNT) == (1_002,)


def test_copied_rows_are_rolled_back_with_the_transaction(
    pipeline: PipelineChannel, empty_place: PostgresPlace
) -> None:
    pipeline.copy(COPY, rows_to_copy(1_000))
    pipeline.control("ROLLBACK")
    pipeline.settle()
    assert rows(empty_place, "SELECT * FROM tried") == []


def test_a_copy_that_a_constraint_objects_to_leaves_the_channel_usable(
    pipeline: PipelineChannel,
) -> None:
    pipeline.put(ADD, "0003", 1)
    pipeline.control("SAVEPOINT here")
    with pytest.raises(Violation):
        pipeline.copy(COPY, [(f"{number:04}", number) for number in range(1_000)])
    pipeline.control("ROLLBACK TO SAVEPOINT here")
    pipeline.copy(COPY, [("0004", 2)])
    assert pipeline.all(ALL) == [("0003", 1), ("0004", 2)]


def test_what_was_put_before_a_copy_raises_before_anything_is_copied(
    pipeline: PipelineChannel,
) -> None:
    pipeline.control("SAVEPOINT here")
    pipeline.put(DIVIDE, 0)
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipeline.copy(COPY, rows_to_copy(10))
    pipeline.control("ROLLBACK TO SAVEPOINT here")
    assert pipeline.one(COUNT) == (0,)


# ------------------------------------------------------------------------------ a session's channel


def test_the_cursor_of_an_async_driver_outside_of_its_greenlet_is_said_to_be_missing(
    place: PostgresPlace,
) -> None:
    engine = create_engine(place.url)
    with engine.connect() as connection:
        channel = CursorChannel(connection.connection.dbapi_connection, None)
        assert channel.one(ECHO, "100 %") == ("100 %",)
        assert channel.connection is connection.connection.dbapi_connection
        channel.close()
    engine.dispose()


def test_a_connection_goes_back_to_psycopg_when_the_channel_is_closed(
    empty_place: PostgresPlace,
) -> None:
    with connected(empty_place) as connection:
        channel = PipelineChannel(connection, None, {})
        channel.one(COUNT)
        channel.close()
        found: Any = connection.execute("SELECT 1").fetchone()
        assert found == (1,)
