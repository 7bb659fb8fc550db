"""The operations: the same names at both doors, each documented, each taking its message."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from sqlalchemy.orm import Session

from broker import Broker, UnitOfWork
from broker.errors import InvalidRequest
from broker.operations import Operations
from tests.support import ManualClock, expect_refusal, operation_requests

MUTATIONS = (
    "acquire_lease",
    "heartbeat_lease",
    "compare_and_swap_lease",
    "takeover_lease",
    "release_lease",
)
WALKS = ("walk_events", "walk_journal", "walk_read_model_events")
REQUESTS = (
    *MUTATIONS,
    "get_lease",
    "commit",
    "get_stream_revision",
    "read_events",
    "read_authorized_events",
    "read_authorized_events_page",
    "list_streams",
    "read_journal",
    "read_model_events",
    "read_model_sources",
    *WALKS,
    "read_projection",
    "list_pending_outbox",
    "mark_outbox_delivered",
)
ALL = {*REQUESTS, "table_names", "journal_mode"}
OF_THE_OWNER_OF_CONNECTIONS = {"open", "close", "engine", "unit_of_work"}


def public_names(kind: type) -> set[str]:
    """What a class offers beside the data of its instances."""
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_both_doors_offer_exactly_the_operations() -> None:
    assert public_names(Operations) == ALL
    assert public_names(UnitOfWork) == ALL
    assert public_names(Broker) == ALL | OF_THE_OWNER_OF_CONNECTIONS


@pytest.mark.parametrize("kind", [Operations, Broker, UnitOfWork])
def test_every_one_of_them_is_documented(kind: type) -> None:
    for name in public_names(kind):
        assert inspect.getdoc(getattr(kind, name)), name


@pytest.mark.parametrize("name", REQUESTS)
def test_an_operation_takes_one_request_and_lease_mutations_an_id(name: str) -> None:
    parameters = inspect.signature(getattr(Operations, name)).parameters
    assert list(parameters)[:2] == ["self", "request"]
    assert ("request_id" in parameters) == (name in MUTATIONS)
    if name in MUTATIONS:
        assert parameters["request_id"].kind is inspect.Parameter.KEYWORD_ONLY


def test_a_walk_is_an_iterator_that_asks_nothing_of_the_database_by_itself(
    store: Broker, clock: ManualClock
) -> None:
    requests = operation_requests(store, clock)
    with Session(store.engine) as session:
        for door, name in product((store, store.unit_of_work(session)), WALKS):
            walk = getattr(door, name)(requests[name])
            assert isinstance(walk, Iterator)
        assert not session.in_transaction()


@pytest.mark.parametrize("given", [5, "text", []])
def test_what_is_no_request_is_refused_before_the_database_is_asked(
    store: Broker, given: Any
) -> None:
    with Session(store.engine) as session:
        for door, name in product((store, store.unit_of_work(session)), REQUESTS):
            with expect_refusal(InvalidRequest, field="request"):
                getattr(door, name)(given)
        assert not session.in_transaction()


def test_the_database_is_named_alike_at_both_doors(store: Broker) -> None:
    with Session(store.engine) as session:
        work = store.unit_of_work(session)
        assert work.table_names() == store.table_names()
        assert work.journal_mode == store.journal_mode == "wal"


def test_the_tables_are_the_eight_and_the_version_table(store: Broker) -> None:
    assert store.table_names() == [
        "actor_leases",
        "broker_alembic_version",
        "events",
        "inbox",
        "metadata",
        "mutation_receipts",
        "outbox",
        "projections",
        "streams",
    ]
