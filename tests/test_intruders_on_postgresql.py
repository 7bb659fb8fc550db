"""What of a schema on a server could deceive the store, and is refused."""

from __future__ import annotations

import pytest

from broker import Broker
from broker.errors import SchemaError
from tests.places import Place, execute, url_of

PAYLOAD_TEXT = """
    CREATE OR REPLACE FUNCTION broker_payload_text(payload text, VARIADIC path text[])
    RETURNS text LANGUAGE sql IMMUTABLE
"""
HOSTILE = {
    "rule hostile on outbox": "CREATE RULE hostile AS ON INSERT TO outbox DO INSTEAD NOTHING",
    "row security of events": "ALTER TABLE events ENABLE ROW LEVEL SECURITY",
    "inheritance of projections": "CREATE TABLE more () INHERITS (projections)",
    "trigger events_no_delete on events": """
        CREATE OR REPLACE FUNCTION events_no_delete() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RETURN OLD; END $$
    """,
    "function broker_payload_text": f"{PAYLOAD_TEXT} AS $$ SELECT 'w' $$",
}


@pytest.mark.parametrize(("named", "statement"), HOSTILE.items())
def test_it_is_refused_by_its_name(place: Place, named: str, statement: str) -> None:
    Broker.open(url_of(place)).close()
    execute(place, statement)
    with pytest.raises(SchemaError) as caught:
        Broker.open(url_of(place))
    assert named in caught.value.details["intruders"][0]


def test_a_function_whose_body_is_no_text_is_refused_too(place: Place) -> None:
    execute(place, f"{PAYLOAD_TEXT} BEGIN ATOMIC SELECT 'w'; END")
    with pytest.raises(SchemaError) as caught:
        Broker.open(url_of(place))
    assert "function broker_payload_text" in caught.value.details["intruders"][0]
