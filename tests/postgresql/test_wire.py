"""libpq's pipeline mode: order, errors, the end of a connection, more bytes than sockets take."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from broker import Broker
from broker.postgresql.wire import Wire
from tests.places import PostgresPlace, rows
from tests.postgresql.support_channel import connected
from tests.postgresql.support_failures import terminate_sessions
from tests.support import acquire, commit_request, event

BIG = 20_000_000  # far more than the buffers of a socket
LENGTH = b"SELECT length($1)"
REPEAT = b"SELECT repeat('x', $1)"


@pytest.fixture
def wire(empty_place: PostgresPlace) -> Iterator[Wire]:
    """A pipeline on a connection of its own."""
    with connected(empty_place) as connection:
        yield Wire(connection.pgconn)


def values(wire: Wire, count: int) -> list[bytes | None]:
    """The first value of each answer."""
    return [each.get_value(0, 0) for each in wire.answers(count)]


def test_answers_come_in_the_order_of_what_was_sent(wire: Wire) -> None:
    for number in range(50):
        wire.send(b"SELECT CAST($1 AS text)", [b"%d" % number])
    assert values(wire, 50) == [b"%d" % number for number in range(50)]


def test_no_answers_are_no_answers(wire: Wire) -> None:
    assert wire.answers(0) == []
    wire.send(b"SELECT 1", ())
    assert values(wire, 1) == [b"1"]


def test_a_prepared_statement_is_sent_by_its_name(wire: Wire) -> None:
    wire.prepare(b"twice", b"SELECT 2 * CAST($1 AS bigint)")
    wire.send_prepared(b"twice", [b"21"])
    wire.send_prepared(b"twice", [None])
    prepared, twice, nothing = wire.answers(3)
    assert (prepared.ntuples, twice.get_value(0, 0), nothing.get_value(0, 0)) == (0, b"42", None)


def test_after_an_error_the_rest_is_passed_over_and_the_next_batch_goes_on(wire: Wire) -> None:
    for sql in (b"SELECT 1", b"SELECT 1/0", b"SELECT 2"):
        wire.send(sql, ())
    good, bad, passed_over = map(wire.error_of, wire.answers(3))
    assert good is None
    assert bad == ("22012", "division by zero")
    assert passed_over is not None
    assert passed_over[0] is None
    wire.send(b"SELECT 3", ())
    assert values(wire, 1) == [b"3"]


def test_an_error_of_syntax_is_an_answer_too(wire: Wire) -> None:
    wire.send(b"SELEKT", ())
    (result,) = wire.answers(1)
    error = wire.error_of(result)
    assert error is not None
    assert error[0] == "42601"


def test_others_may_use_the_connection_between(empty_place: PostgresPlace) -> None:
    with connected(empty_place) as connection:
        wire = Wire(connection.pgconn)
        wire.leave()
        assert connection.execute("SELECT 1").fetchone() == (1,)
        connection.rollback()
        wire.enter()
        wire.send(b"SELECT 2", ())
        assert values(wire, 1) == [b"2"]


# -------------------------------------------------------------------------- more than buffers take


def test_a_value_larger_than_the_sockets_buffers_goes_there(wire: Wire) -> None:
    wire.send(LENGTH, [b"x" * BIG])
    assert values(wire, 1) == [b"%d" % BIG]


def test_and_another_comes_back(wire: Wire) -> None:
    wire.send(REPEAT, [b"%d" % BIG])
    assert values(wire, 1) == [b"x" * BIG]


def test_both_sides_may_send_much_at_once(wire: Wire) -> None:
    """The server stops to read while its answers are not taken: who only sends, waits for ever."""
    for _ in range(5):
        wire.send(REPEAT, [b"%d" % BIG])
        wire.send(LENGTH, [b"x" * BIG])
    answers = values(wire, 10)
    assert [len(each or b"") for each in answers[::2]] == [BIG] * 5
    assert answers[1::2] == [b"%d" % BIG] * 5


def test_events_larger_than_the_sockets_buffers(store: Broker, place: PostgresPlace) -> None:
    lease = acquire(store)
    payloads = ["x" * 900_000] * 20
    events = [event(f"event-{number}", text) for number, text in enumerate(payloads)]
    assert store.commit(commit_request(lease, events=events)).revision == len(payloads)
    read = store.read_events({"streamId": "stream"})
    assert [each.payload for each in read] == payloads


# -------------------------------------------------------------------------------- lost connections


def test_a_connection_that_ended_before_is_an_error(wire: Wire, empty_place: PostgresPlace) -> None:
    wire.require_connection()
    terminate_sessions(empty_place)
    with pytest.raises(psycopg.OperationalError):
        wire.require_connection()


def test_a_connection_that_ends_between_answers_is_an_error(
    wire: Wire, empty_place: PostgresPlace
) -> None:
    wire.send(b"SELECT 1", ())
    wire.send(b"SELECT pg_terminate_backend(pg_backend_pid())", ())
    wire.send(b"SELECT 2", ())
    with pytest.raises(psycopg.OperationalError):
        wire.answers(3)
    assert rows(empty_place, "SELECT 1") == [(1,)]


def test_more_answers_than_were_sent_are_not_waited_for(wire: Wire) -> None:
    wire.send(b"SELECT 1", ())
    with pytest.raises(psycopg.OperationalError, match="lost"):
        wire.answers(2)
