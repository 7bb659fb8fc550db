"""Values that do not belong into their columns are found where they are read, by table and row."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker import Broker, schema
from broker.errors import CorruptRow, SchemaError
from broker.models import ActorLease, OutboxMessage
from broker.shapes import Shape
from tests.places import url_of
from tests.proof.files.schemas import damage, value
from tests.sqlite.test_corruption import (
    Read,
    fill,
    get_lease,
    pending,
    projection,
    read_events,
    repeat_acquire,
)
from tests.support import ManualClock, open_store

SPOILT: list[tuple[str, str, str, Read]] = [
    ("events", "message_id", "x'ff'", read_events),
    ("events", "event_type", "CAST(event_type AS BLOB)", read_events),
    ("events", "payload_json", "7", read_events),
    ("events", "payload_json", "x'6e756c6c'", lambda store: list(store.walk_journal({}))),
    ("events", "trace_id", "1.5", read_events),
    ("events", "event_type", "NULL", read_events),
    ("events", "revision", "9007199254740992", read_events),
    ("events", "producer_epoch", "0", read_events),
    ("events", "occurred_at", "-1", read_events),
    ("events", "occurred_at", "1.0", read_events),
    ("actor_leases", "nonce", "x'00'", get_lease),
    ("actor_leases", "expires_at", "NULL", get_lease),
    ("actor_leases", "epoch", "-3", get_lease),
    ("outbox", "destination", "1", pending),
    ("outbox", "attempts", "'many'", pending),
    ("outbox", "available_at", "-1", pending),
    ("projections", "value_json", "x'31'", projection),
    ("projections", "revision", "1e300", projection),
    ("mutation_receipts", "response_json", "x'7b7d'", repeat_acquire),
]


@pytest.mark.parametrize(("table", "column", "expression", "read"), SPOILT)
def test_a_value_of_another_type_or_out_of_range_is_named(
    path: Path, clock: ManualClock, table: str, column: str, expression: str, read: Read
) -> None:
    with open_store(path, clock) as store:
        fill(store)
    damage(path, value(table, column, expression))
    with open_store(path, clock) as store, pytest.raises(CorruptRow) as caught:
        read(store)
    assert (caught.value.details["table"], caught.value.details["column"]) == (table, column)


def test_a_commit_to_a_stream_whose_revision_is_none_is_refused(
    path: Path, clock: ManualClock
) -> None:
    with open_store(path, clock) as store:
        request = fill(store)
    damage(path, value("streams", "revision", "'one'"))
    again = request | {"messageId": "another", "expectedRevision": 1}
    with open_store(path, clock) as store:
        for ask in (
            lambda: store.commit(again),
            lambda: store.get_stream_revision({"streamId": "stream"}),
        ):
            with pytest.raises(CorruptRow) as caught:
                ask()
            assert caught.value.details == {
                "table": "streams",
                "row": "stream",
                "column": "revision",
            }


def test_a_recorded_result_that_is_no_text_is_named(path: Path, clock: ManualClock) -> None:
    with open_store(path, clock) as store:
        request = fill(store)
    damage(path, value("inbox", "result_json", "x'7b7d'"))
    with open_store(path, clock) as store, pytest.raises(CorruptRow) as caught:
        store.commit(request)
    assert caught.value.details == {"table": "inbox", "row": "message", "column": "result_json"}


def test_a_version_that_is_null_is_a_schema_error(path: Path) -> None:
    schema.upgrade(url_of(path))
    damage(path, value("metadata", "value", "NULL"))
    with pytest.raises(SchemaError, match="NULL"):
        Broker.open(url_of(path))


def test_the_first_row_that_does_not_fit_is_named() -> None:
    shape = Shape(OutboxMessage.outbox_id, OutboxMessage.delivered_at)
    shape.require([])
    shape.require([("a", None), ("b", 0), ("c", 2**53 - 1)])
    with pytest.raises(CorruptRow) as caught:
        shape.require([("a", None), ("b", -1), ("c", -1)])
    assert caught.value.details == {"table": "outbox", "row": "b", "column": "delivered_at"}


def test_a_key_that_is_no_text_is_shown_with_its_bytes() -> None:
    with pytest.raises(CorruptRow) as caught:
        Shape(ActorLease.actor_id, ActorLease.epoch).require([(b"a\xff", 1)])
    assert caught.value.details["row"] == r"a\xff"
