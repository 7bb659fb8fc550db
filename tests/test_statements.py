"""Statements on the driver's cursor: compiled once, parameters in order, nothing left half read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import bindparam, delete, insert, literal, select, text, update

from broker.models import MetadataEntry
from broker.sqlite.channel import SQLiteChannel
from broker.statements import SQLITE, Channel, Statement, Undecodable
from tests.places import raw, rows

ALL = Statement(select(MetadataEntry.key, MetadataEntry.value).order_by(MetadataEntry.key))
GET = Statement(select(MetadataEntry.value).where(MetadataEntry.key == bindparam("k")), "k")
PUT = Statement(insert(MetadataEntry), "key", "value")
SET = Statement(
    update(MetadataEntry).where(MetadataEntry.key == bindparam("k")).values(value=bindparam("v")),
    "k",
    "v",
)
PAGE = Statement(
    select(MetadataEntry.key)
    .where(MetadataEntry.key > bindparam("after"))
    .order_by(MetadataEntry.key)
    .limit(bindparam("most"))
    .offset(literal(1)),
    "most",
    "after",
)


@pytest.fixture
def channel(path: Path) -> Iterator[Channel]:
    """A channel to a file with an empty table `metadata`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT) STRICT")
        connection.execute("PRAGMA journal_mode=WAL")
        yield SQLiteChannel(connection)


def fill(channel: Channel, *pairs: tuple[str, str]) -> None:
    channel.put_each(PUT, pairs)


def test_a_statement_is_compiled_once_a_dialect() -> None:
    statement = Statement(select(MetadataEntry.key))
    assert statement.compiled[SQLITE] is statement.compiled[SQLITE]


def test_parameters_are_given_in_the_order_of_the_names_not_of_the_text(channel: Channel) -> None:
    fill(channel, ("a", "1"), ("b", "2"))
    sql, _ = SET.compiled[SQLITE]
    assert sql.index("SET value") < sql.index("WHERE")
    assert channel.run(SET, "a", "one") == 1
    assert channel.all(ALL) == [("a", "one"), ("b", "2")]


def test_what_the_compiler_binds_by_itself_finds_its_place(channel: Channel) -> None:
    fill(channel, *((key, "") for key in "abcde"))
    assert channel.all(PAGE, 2, "a") == [("c",), ("d",)]


def test_one_parameter_may_stand_in_several_places(channel: Channel) -> None:
    both = Statement(
        select(MetadataEntry.key).where(
            (MetadataEntry.key == bindparam("x")) | (MetadataEntry.value == bindparam("x"))
        ),
        "x",
    )
    fill(channel, ("a", "b"), ("b", "c"), ("c", "a"))
    assert set(channel.all(both, "b")) == {("a",), ("b",)}


def test_one_gives_the_row_or_none(channel: Channel) -> None:
    fill(channel, ("a", "1"))
    assert channel.one(GET, "a") == ("1",)
    assert channel.one(GET, "b") is None


def test_each_gives_the_rows_one_by_one(channel: Channel) -> None:
    fill(channel, ("a", "1"), ("b", "2"))
    with channel.each(ALL) as rows:
        found = iter(rows)
        assert next(found) == ("a", "1")
        assert list(found) == [("b", "2")]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_put_each_does_a_change_for_each_row(channel: Channel, count: int) -> None:
    keys = [str(number) for number in range(count)]
    channel.put_each(PUT, [(key, "x") for key in keys])
    channel.put_each(SET, [(key, "y") for key in keys])
    assert channel.all(ALL) == [(key, "y") for key in keys]


def test_run_counts_the_rows_that_were_met(channel: Channel) -> None:
    fill(channel, ("a", "1"), ("b", "1"))
    assert channel.run(SET, "none", "x") == 0
    assert channel.run(Statement(delete(MetadataEntry))) == 2


def test_a_colon_in_a_value_is_data(channel: Channel) -> None:
    fill(channel, (":k", '{"a":true, ":b": "?"}'))
    assert channel.one(GET, ":k") == ('{"a":true, ":b": "?"}',)


def test_a_query_that_was_read_pins_neither_the_log_nor_the_transaction(
    channel: Channel, path: Path
) -> None:
    fill(channel, ("a", "1"))
    channel.one(GET, "a")
    channel.all(ALL)
    assert not channel.connection.in_transaction
    with raw(path) as other:
        other.execute("INSERT INTO metadata VALUES ('b', '2')")
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)


def test_b06_a_returning_that_was_read_lets_the_transaction_commit(
    channel: Channel, path: Path
) -> None:
    claim = Statement(
        update(MetadataEntry)
        .where(MetadataEntry.key == bindparam("k"), MetadataEntry.value == bindparam("old"))
        .values(value=bindparam("new"))
        .returning(MetadataEntry.key),
        "k",
        "old",
        "new",
    )
    fill(channel, ("fence", "1"))
    channel.control("BEGIN IMMEDIATE")
    won, lost = channel.one(claim, "fence", "1", "2"), channel.one(claim, "fence", "1", "2")
    channel.control("COMMIT")
    assert (won, lost) == (("fence",), None)
    assert rows(path, "SELECT value FROM metadata") == [("2",)]


def test_text_that_is_not_utf8_is_told_from_other_errors(channel: Channel) -> None:
    channel.connection.execute("INSERT INTO metadata VALUES ('a', CAST(x'6162ff63' AS TEXT))")
    with pytest.raises(Undecodable):
        channel.one(GET, "a")
    with pytest.raises(Undecodable):
        channel.all(ALL)
    fill(channel, ("b", "fine"))
    assert channel.one(GET, "b") == ("fine",)


def test_a_drivers_error_comes_through_as_it_is(channel: Channel) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        channel.all(Statement(text("SELECT x FROM nowhere")))
    fill(channel, ("a", "1"))
    with pytest.raises(sqlite3.IntegrityError):
        channel.run(PUT, "a", "1")


def test_closing_a_channel_leaves_the_connection(channel: Channel) -> None:
    channel.close()
    assert channel.connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(sqlite3.ProgrammingError):
        channel.all(ALL)
