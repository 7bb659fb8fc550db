"""Options: what a store may be told, and what each of them does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from broker import Broker, Options, UnitOfWork
from broker.errors import ConfigurationError
from broker.options import MAX_RECEIPT_CAPACITY, random_nonce
from tests.places import Place, rows, url_of
from tests.support import ManualClock, acquire, open_store


def test_the_defaults_are_those_of_the_protocol() -> None:
    options = Options()
    assert options.receipt_capacity == 4_096
    assert options.page_max_bytes == 1_044_480
    assert options.read_model_max_bytes == 524_288
    assert options.read_model_event_type == "teammate.runtime-read-model.frame.v2"
    assert MAX_RECEIPT_CAPACITY == 65_536


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in (
            "receipt_capacity",
            "busy_timeout_ms",
            "page_max_bytes",
            "read_model_max_bytes",
        )
        for value in (-1, 1.0, True, "1", None, 2**31)
    ]
    + [
        ("receipt_capacity", 0),
        ("receipt_capacity", MAX_RECEIPT_CAPACITY + 1),
        ("page_max_bytes", 0),
        ("read_model_max_bytes", 0),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} must be an integer"):
        Options(**{name: value})


@pytest.mark.parametrize("name", ["nonce", "wall_clock", "monotonic_clock"])
@pytest.mark.parametrize("value", [5, "time", 1.5, [], {}, True], ids=ascii)
def test_an_option_that_is_no_function_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name} must be a function"):
        Options(**{name: value})


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("value", [10**5_000, Unshowable()], ids=["5,001 digits", "raises"])
@pytest.mark.parametrize("name", ["receipt_capacity", "nonce"])
def test_an_option_that_cannot_be_shown_is_refused_like_any_other(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name} must be .*, not an? \w+$"):
        Options(**{name: value})


def test_there_is_no_store_without_nonces() -> None:
    with pytest.raises(ConfigurationError, match=r"^nonce must be a function"):
        Options(nonce=None)  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("value", ["", "a\0b", "\ud800", "x" * 1_025, 5, None, b"type"], ids=ascii)
def test_an_event_type_that_is_no_id_is_refused_by_name(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^read_model_event_type must be"):
        Options(read_model_event_type=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("receipt_capacity", 1),
        ("receipt_capacity", MAX_RECEIPT_CAPACITY),
        ("busy_timeout_ms", 0),
        ("page_max_bytes", 1),
        ("read_model_max_bytes", 1),
    ],
)
def test_the_ends_of_a_range_belong_to_it(name: str, value: Any) -> None:
    assert getattr(Options(**{name: value}), name) == value


def test_options_are_frozen() -> None:
    with pytest.raises(AttributeError, match="receipt_capacity"):
        Options().receipt_capacity = 5  # type: ignore[misc]  # which is the point


def test_a_random_nonce_is_32_hex_digits_and_never_the_same() -> None:
    nonces = {random_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", nonce) for nonce in nonces)


def test_the_nonce_source_makes_the_secret_of_each_lease(place: Place) -> None:
    with Broker.open(url_of(place), options=Options(nonce=lambda: "chosen")) as store:
        assert acquire(store).nonce == "chosen"
    assert rows(place, "SELECT nonce FROM actor_leases") == [("chosen",)]


def test_a_given_wall_clock_alone_stands_with_a_monotonic_clock_that_stands_still() -> None:
    moved = ManualClock()
    clock = Options(wall_clock=lambda: moved.wall_ms).make_clock()
    assert [clock.read(0), clock.read(0)] == [1_000, 1_000]
    moved.wall_ms = 4_000
    assert clock.read(0) == 4_000
    moved.wall_ms = 1_000
    assert [clock.read(0), clock.read(0)] == [4_000, 4_000]


def test_without_clocks_the_systems_are_used() -> None:
    clock = Options().make_clock()
    assert 1_600_000_000_000 < clock.read(0) <= clock.read(0)


def test_the_clocks_of_a_unit_of_work_are_those_of_its_options(
    place: Place, clock: ManualClock
) -> None:
    open_store(place, clock).close()
    clock.advance(5_000)
    engine = create_engine(url_of(place))
    with Session(engine) as session:
        lease = acquire(UnitOfWork(session, clock.options()))
        session.commit()
    engine.dispose()
    assert (lease.acquired_at, lease.nonce) == (6_000, "nonce-1")
