"""The models on PostgreSQL: the tables they make, queried where they are, and the read model's index."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import inspect, select, text
from sqlalchemy.orm import Session

from broker import schema
from broker.models import Base, Event, Stream
from broker.postgresql import tables
from tests.migrations.postgres_support import add_events, found, looking, recorded, run
from tests.migrations.support import payload
from tests.places import PostgresPlace

OBJECTS = """
SELECT n.nspname, count(*) FROM pg_namespace AS n JOIN pg_proc AS p ON p.pronamespace = n.oid
WHERE n.nspname IN ('public', 'store') GROUP BY 1
UNION ALL
SELECT n.nspname, count(*) FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid
WHERE n.nspname IN ('public', 'store') GROUP BY 1
"""


@pytest.fixture
def populated(empty_server: PostgresPlace) -> PostgresPlace:
    recorded(empty_server, "v1-empty")
    add_events(empty_server, "alpha", [payload("alpha", n, "w1") for n in range(1, 4)])
    add_events(empty_server, "beta", [payload("beta", 1, "w2")])
    schema.upgrade(empty_server.url)
    return empty_server


def test_the_cursor_is_queried_ordered_and_loaded(populated: PostgresPlace) -> None:
    with looking(populated) as connection, Session(connection) as session:
        last = session.scalars(select(Event).order_by(Event.cursor.desc())).first()
        after = session.scalars(select(Event.event_id).where(Event.cursor > 3)).all()
        streams = session.scalars(select(Stream).order_by(Stream.stream_id)).all()

        assert last is not None
        assert (last.event_id, last.cursor) == ("beta-1", 4)
        assert after == ["beta-1"]
        assert [[event.cursor for event in each.events] for each in streams] == [[1, 2, 3], [4]]


def test_an_entity_that_is_added_gets_its_cursor(populated: PostgresPlace) -> None:
    with looking(populated) as connection, Session(connection) as session:
        event = Event(
            event_id="new",
            message_id="m-beta",
            stream_id="beta",
            revision=2,
            event_type="t",
            payload_json="{}",
            producer_epoch=1,
            occurred_at=1,
        )
        session.add(event)
        session.flush()

        assert event.cursor == 5


def test_tables_can_be_made_and_queried_and_dropped_in_a_translated_schema(
    server: PostgresPlace,
) -> None:
    run(server, "CREATE SCHEMA store")
    before = found(server, OBJECTS)
    with looking(server) as connection:
        mapped = connection.execution_options(schema_translate_map={None: "store"})
        Base.metadata.create_all(mapped)
        connection.commit()
        assert mapped.execute(select(Event.cursor)).all() == []
        assert {name for name, _ in found(server, OBJECTS)} == {"public", "store"}

        Base.metadata.drop_all(mapped)
        connection.commit()

    assert found(server, OBJECTS) == before


def test_autogenerate_and_reflection_see_the_cursor_as_the_last_column(
    server: PostgresPlace,
) -> None:
    with looking(server) as connection:
        columns = inspect(connection).get_columns("events")

    assert columns[-1]["name"] == "rowid"
    assert columns[-1]["identity"]["maxvalue"] == 2**53 - 1


# --- The text of a payload ----------------------------------------------------------------------


def text_of(place: PostgresPlace, payload_json: str, *path: str) -> Any:
    with looking(place) as connection:
        return connection.execute(
            text("SELECT broker_payload_text(:payload, VARIADIC :path)"),
            {"payload": payload_json, "path": list(path)},
        ).scalar_one()


@pytest.mark.parametrize(
    ("payload_json", "wanted"),
    [
        ('{"a": {"b": "w"}}', "w"),
        (
            '{"a": {"b": "\u00e9\U0001f600 \\u00e9\\ud83d\\ude00"}}',
            "\u00e9\U0001f600 \u00e9\U0001f600",
        ),
        ('{"a": {"b": "w"}, "c": "\\ud800"}', "w"),
        ('{"a": {"b": "w"}, "c": "x\\udc00\\ud83d\\ude00"}', "w"),
        ('{"a": {"b": "w"}, "\\u0000": "\\u0000"}', "w"),
        ('{"a": {"b": "\\\\ud800"}, "c": "\\\\\\ud800"}', "\\ud800"),
        ('{"a": {"b": 5}}', None),
        ('{"a": {"b": null}}', None),
        ('{"a": {"b": {"c": "w"}}}', None),
        ('{"a": ["w"]}', None),
        ('{"a": "b"}', None),
        ('["a", "b"]', None),
        ('{"a": {"b": "w"}, ', None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_the_text_of_a_payload_is_found_or_there_is_none(
    payload_json: str, wanted: str | None, server: PostgresPlace
) -> None:
    assert text_of(server, payload_json, "a", "b") == wanted


def test_a_text_that_no_id_can_be_is_none_to_the_index(server: PostgresPlace) -> None:
    longest, longer = "\u00e9" * 512, "\u00e9" * 512 + "x"

    assert text_of(server, json.dumps({"a": longest}), "a") == longest
    assert text_of(server, json.dumps({"a": longer}), "a") is None


def test_payloads_that_cannot_be_indexed_are_neither_refused_nor_in_the_way(
    populated: PostgresPlace,
) -> None:
    odd = ['{"a":', "[" * 100_000, "", json.dumps({"eventType": "t" * 9_000}), '{"x": "\\u0000"}']
    with looking(populated) as connection:
        for place, stored in enumerate(odd, 2):
            connection.execute(
                text(
                    "INSERT INTO events VALUES (:id, 'm-beta', 'beta', :n, 'domain.event', :stored, 1, 1)"
                ),
                {"id": f"odd-{place}", "n": place, "stored": stored},
            )
        connection.commit()

    count = f"SELECT count(*) FROM events WHERE {tables.WORKSPACE_OF_PAYLOAD} = 'w2'"
    assert found(populated, count) == [(1,)]


def test_the_read_model_takes_its_index_with_a_range_of_cursors_and_no_sort(
    server: PostgresPlace,
) -> None:
    query = (
        f"EXPLAIN SELECT rowid FROM events WHERE event_type = 'domain.event'"
        f" AND {tables.WORKSPACE_OF_PAYLOAD} = 'w' AND {tables.EVENT_TYPE_OF_PAYLOAD} = 't'"
        " AND rowid > 0 ORDER BY rowid LIMIT 10"
    )
    with looking(server) as connection:
        connection.exec_driver_sql("SET enable_seqscan = off; SET enable_bitmapscan = off")
        plan = "\n".join(connection.exec_driver_sql(query).scalars())

    assert "Index Scan using events_read_model_idx" in plan
    assert "Filter" not in plan
    assert "Sort" not in plan
