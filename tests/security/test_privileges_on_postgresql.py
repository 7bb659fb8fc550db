"""The rights that docs/threat_model.md gives to an application's role are enough, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url

from broker import Broker
from broker.errors import BrokerError
from tests.places import PostgresPlace, client, execute, rows, url_of
from tests.security.sql_in_source import ROOT
from tests.support import (
    ManualClock,
    acquire,
    commit_request,
    event,
    operate,
    operation_requests,
)

(BLOCK,) = re.findall(
    r"```sql\n(.*?)```", (ROOT / "docs/threat_model.md").read_text(encoding="utf-8"), re.DOTALL
)
GRANTS = [line for line in BLOCK.splitlines() if line.startswith("GRANT")]


@pytest.fixture
def app(place: PostgresPlace) -> Iterator[PostgresPlace]:
    """The place as a role of the application's has it, with no right but those granted."""
    name = f"app_{uuid4().hex[:12]}"
    execute(place, f"CREATE ROLE {name} LOGIN")
    execute(place, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    for grant in GRANTS:
        execute(place, _to(grant, name))
    url = make_url(place.url).set(username=name).render_as_string(hide_password=False)
    yield PostgresPlace(url)
    execute(place, f"DROP OWNED BY {name}")
    execute(place, f"DROP ROLE {name}")


def _to(grant: str, name: str) -> str:
    return grant.replace(" TO app;", f" TO {name}")


def do_everything(app: PostgresPlace) -> None:
    """Open the store as an application does, and do all that there is to do."""
    clock = ManualClock(wall_ms=10**13)  # later than any floor
    options = clock.options(receipt_capacity=1)
    with Broker.open(url_of(app), options=options) as store:
        for name, request in operation_requests(store, clock).items():
            operate(store, name, request)
        lease = acquire(store, "another", "another")
        for number in range(3):  # the first makes room for the next
            beat = {"actorId": "another", "lease": lease.credential, "ttlMs": 1_000}
            store.heartbeat_lease(beat, request_id=f"r{number}")
        many = [event(f"many-{number}") for number in range(1_000)]
        projection = {"projectionId": "p", "value": 1}
        store.commit(commit_request(lease, "many", events=many, projections=[projection]))
        store.commit(
            commit_request(lease, "again", expectedRevision=1_000, projections=[projection])
        )


def test_they_are_enough(app: PostgresPlace) -> None:
    do_everything(app)
    with Broker.open(url_of(app), migrate=False) as store:
        assert store.get_stream_revision({"streamId": "another"}) == 1_001


def single_rights() -> list[tuple[str, str]]:
    """Each right on each thing that is granted."""
    found = []
    for grant in GRANTS:
        match = re.fullmatch(r"GRANT (.*) ON ((?:SCHEMA |SEQUENCE )?)(.*) TO app;", grant)
        assert match is not None
        rights, kind, things = match.groups()
        found += [
            (right, f"{kind}{thing}")
            for right in rights.split(", ")
            for thing in things.split(", ")
        ]
    return found


EMPTY = """
SET session_replication_role = replica;
TRUNCATE actor_leases, events, inbox, mutation_receipts, outbox, projections, streams;
DELETE FROM metadata WHERE key = 'logical_time_floor'
"""
LACKING = r"lacks a privilege|permission denied|not where they should be|search path"


def test_each_is_needed(place: PostgresPlace, app: PostgresPlace) -> None:
    name = make_url(app.url).username
    for right, thing in single_rights():
        execute(place, EMPTY)
        execute(place, f"REVOKE {right} ON {thing} FROM {name}")
        with pytest.raises(BrokerError, match=LACKING):
            do_everything(app)
        execute(place, f"GRANT {right} ON {thing} TO {name}")
    execute(place, EMPTY)
    do_everything(app)


FORBIDDEN = [
    "UPDATE events SET payload_json = '1'",
    "DELETE FROM events",
    "TRUNCATE events CASCADE",
    "DELETE FROM streams",
    "DELETE FROM inbox",
    "UPDATE inbox SET result_json = '1'",
    "DELETE FROM actor_leases",
    "DELETE FROM metadata",
    "ALTER TABLE events DISABLE TRIGGER ALL",
    "DROP TRIGGER events_no_update ON events",
    "DROP TABLE outbox",
    "CREATE TABLE mine (id int)",
    "CREATE SCHEMA mine",
    "UPDATE broker_alembic_version SET version_num = '0001'",
    "SELECT setval('events_rowid_seq', 1)",
    "SET session_replication_role = replica",
    "COPY events TO PROGRAM 'true'",
]


def test_what_the_role_cannot_do(app: PostgresPlace) -> None:
    with client(app) as other:
        for statement in FORBIDDEN:
            with pytest.raises(psycopg.Error) as caught:
                other.execute(statement)
            assert caught.value.sqlstate == "42501", statement


def test_a_role_without_rights_sees_no_nonce(place: PostgresPlace, app: PostgresPlace) -> None:
    do_everything(app)
    name = f"reports_{uuid4().hex[:12]}"
    execute(place, f"CREATE ROLE {name} LOGIN")
    execute(place, f"GRANT USAGE ON SCHEMA public TO {name}")
    execute(place, f"GRANT SELECT ON events, streams, outbox, projections TO {name}")
    url = make_url(place.url).set(username=name).render_as_string(hide_password=False)
    reports = PostgresPlace(url)
    assert rows(reports, "SELECT count(*) FROM events") != [(0,)]
    for table in ("actor_leases", "mutation_receipts"):
        with pytest.raises(Exception, match="permission denied"):
            rows(reports, f"SELECT * FROM {table}")
    execute(place, f"DROP OWNED BY {name}")
    execute(place, f"DROP ROLE {name}")
