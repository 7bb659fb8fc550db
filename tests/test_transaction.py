"""One open transaction: one reading of the clock, persisted, and savepoints."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker.clock import LogicalClock
from broker.errors import SchemaError
from broker.sqlite.channel import SQLiteChannel
from broker.transaction import Spoilt, Transaction, parse_floor, read_time
from tests.support import ManualClock


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection in a transaction, on a file with an empty table `metadata`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("CREATE TABLE metadata (key TEXT PRIMARY KEY, value TEXT) STRICT")
        made.execute("BEGIN IMMEDIATE")
        yield made


@pytest.fixture
def begin(connection: sqlite3.Connection, clock: ManualClock) -> Callable[[], Transaction]:
    """Makes a transaction on the connection; all of them have one clock."""
    options = clock.options()
    logical = options.make_clock()
    return lambda: Transaction(SQLiteChannel(connection), logical, options)


@pytest.fixture
def transaction(begin: Callable[[], Transaction]) -> Transaction:
    return begin()


def stored(transaction: Transaction) -> str | None:
    return read_time(transaction)[0]


def test_the_first_reading_is_persisted_as_text(transaction: Transaction) -> None:
    assert stored(transaction) is None
    assert transaction.advance(None) == 1_000
    assert stored(transaction) == "1000"


def test_time_stands_still_within_a_transaction(
    transaction: Transaction, clock: ManualClock
) -> None:
    transaction.advance(None)
    clock.advance(500)
    assert transaction.advance(stored(transaction)) == 1_000
    assert transaction.observe(stored(transaction)) == 1_000
    assert transaction.peek(stored(transaction)) == 1_000


def test_the_next_transaction_reads_anew(
    begin: Callable[[], Transaction], clock: ManualClock
) -> None:
    begin().advance(None)
    clock.advance(500)
    assert begin().advance("1000") == 1_500


def test_the_floor_of_another_process_lifts_the_reading(transaction: Transaction) -> None:
    transaction.channel.connection.execute(
        "INSERT INTO metadata VALUES ('logical_time_floor', '7000')"
    )
    assert transaction.advance("7000") == 7_000
    assert stored(transaction) == "7000"


def test_a_reading_lower_than_a_floor_seen_later_is_given_up(transaction: Transaction) -> None:
    assert transaction.observe(None) == 1_000
    assert transaction.observe("3000") == 3_000


def test_observing_and_peeking_write_nothing(transaction: Transaction) -> None:
    transaction.observe(None)
    transaction.peek(None)
    assert stored(transaction) is None


def test_peeking_does_not_advance_the_clock(
    begin: Callable[[], Transaction], clock: ManualClock
) -> None:
    begin().advance(None)
    clock.advance(500)
    assert begin().peek("1000") == 1_500
    clock.wall_ms, clock.monotonic_ms = 1_000, 0
    assert begin().peek("1000") == 1_000


def test_a_reading_that_was_rolled_back_is_persisted_again(transaction: Transaction) -> None:
    transaction.channel.control("SAVEPOINT outer_one")
    transaction.advance(None)
    transaction.channel.control("ROLLBACK TO SAVEPOINT outer_one")
    assert stored(transaction) is None
    assert transaction.advance(stored(transaction)) == 1_000
    assert stored(transaction) == "1000"


def put(transaction: Transaction, key: str) -> None:
    transaction.channel.connection.execute("INSERT INTO metadata VALUES (?, '')", (key,))


def keys(transaction: Transaction) -> list[str]:
    found = transaction.channel.connection.execute("SELECT key FROM metadata ORDER BY key")
    return [key for (key,) in found]


def put_and_fail(transaction: Transaction, key: str, error: type[BaseException]) -> None:
    with transaction.savepoint():
        put(transaction, key)
        raise error


@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt])
def test_a_savepoint_undoes_what_happened_inside_it_and_nothing_else(
    transaction: Transaction, error: type[BaseException]
) -> None:
    put(transaction, "before")
    with pytest.raises(error):
        put_and_fail(transaction, "inside", error)
    put(transaction, "after")
    assert keys(transaction) == ["after", "before"]
    assert transaction.channel.connection.in_transaction


def test_savepoints_may_stand_in_each_other(transaction: Transaction) -> None:
    with transaction.savepoint():
        put(transaction, "outer")
        with pytest.raises(LookupError):
            put_and_fail(transaction, "inner", LookupError)
    assert keys(transaction) == ["outer"]


def test_without_savepoints_a_failure_in_an_inner_block_stays_its_own_cause(
    transaction: Transaction,
) -> None:
    first_try = Transaction(
        transaction.channel, transaction.clock, transaction.options, has_savepoints=False
    )

    with pytest.raises(Spoilt) as caught, first_try.savepoint():
        put_and_fail(first_try, "inner", LookupError)

    assert isinstance(caught.value.__cause__, LookupError)


def roll_back_and_fail(transaction: Transaction) -> None:
    with transaction.savepoint():
        transaction.channel.control("ROLLBACK")
        raise LookupError


def test_a_savepoint_hides_no_error_when_everything_is_rolled_back_already(
    transaction: Transaction,
) -> None:
    with pytest.raises(LookupError):
        roll_back_and_fail(transaction)


@pytest.mark.parametrize(
    "floor", ["01", "-1", "", "1.0", " 1", "1e3", "9007199254740992", "\u0661"]
)
def test_a_floor_that_is_not_canonical_is_a_schema_error(floor: str) -> None:
    with pytest.raises(SchemaError, match="logical_time_floor"):
        parse_floor(floor)


@pytest.mark.parametrize(
    ("floor", "number"), [(None, 0), ("0", 0), ("12", 12), ("9007199254740991", 2**53 - 1)]
)
def test_a_canonical_floor_is_its_number(floor: str | None, number: int) -> None:
    assert parse_floor(floor) == number


def test_two_transactions_share_the_clock_of_the_process(begin: Callable[[], Transaction]) -> None:
    first, second = begin(), begin()
    assert isinstance(first.clock, LogicalClock)
    assert first.clock is second.clock
