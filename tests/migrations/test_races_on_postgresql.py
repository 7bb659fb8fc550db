"""Several processes upgrade one database at once; a process that dies; a journal of any length."""

from __future__ import annotations

import gc
import os
import signal
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

from broker import schema
from tests.migrations.postgres_support import (
    add_events,
    connected,
    dump,
    found,
    looking,
    recorded,
    run,
    version_1,
)
from tests.migrations.support import payload
from tests.migrations.test_races import finish, reach_the_middle, start, start_together
from tests.places import PlaceOn, PostgresPlace

TABLES = ["streams", "events", "actor_leases", "metadata"]


def test_b16_of_processes_that_start_together_on_an_empty_database_one_does_the_work(
    empty_server: PostgresPlace,
) -> None:
    processes = start_together(empty_server.url)

    done = sorted(finish(process) for process in processes)

    assert done == [[], [], [], ["0001", "0002", "0003", "0004"]]
    with looking(empty_server) as connection:
        assert schema.drift(connection) == []


def test_b16_processes_that_start_together_make_one_schema(empty_server: PostgresPlace) -> None:
    processes = start_together(empty_server.url, "store")

    done = sorted(finish(process) for process in processes)

    assert done == [[], [], [], ["0001", "0002", "0003", "0004"]]
    assert schema.current(empty_server.url, schema="store").at_head


def test_b16_processes_wait_for_a_slow_backfill_and_find_it_done(
    empty_server: PostgresPlace,
) -> None:
    url = version_1(empty_server).url
    slow = start(url, "slow")
    reach_the_middle(slow)
    others = [start(url), start(url)]
    assert [other.poll() for other in others] == [None, None]

    done = [finish(slow), *(finish(other) for other in others)]

    assert done == [["0002", "0003", "0004"], [], []]


def test_b15_a_process_killed_in_the_middle_leaves_the_old_version_to_the_next(
    empty_server: PostgresPlace,
) -> None:
    place = version_1(empty_server)
    before = dump(place, TABLES)
    killed = start(place.url, "slow")
    reach_the_middle(killed)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()

    assert dump(place, TABLES) == before
    assert finish(start(place.url)) == ["0002", "0003", "0004"]


WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted"


def test_a_migration_and_a_writer_that_wait_for_each_other_both_succeed(
    server: PostgresPlace,
) -> None:
    run(server, "INSERT INTO actor_leases VALUES ('a', 's', 'h', 1, 'n', 1, 1, 1)")
    with connected(server) as writer, ThreadPoolExecutor() as threads:
        writer.execute("SET LOCAL deadlock_timeout = '60s'")  # the other is to notice it first
        writer.execute("SELECT * FROM streams FOR UPDATE")
        migration = threads.submit(schema.downgrade, server.url, "0003")
        while writer.execute(WAITING).fetchone() == (0,):
            assert not migration.done()
        writer.execute("UPDATE actor_leases SET epoch = 2")  # which the migration has locked
        writer.commit()
        reports = migration.result()

    assert [report.revision for report in reports] == ["0004"]
    assert found(server, "SELECT epoch FROM actor_leases") == [(2,)]


def version_1_with(place: PostgresPlace, events: int, size: int) -> PostgresPlace:
    recorded(place, "v1-empty")
    text = payload("s", 1, "w").replace('"revision"', f'"note": "{"x" * size}", "revision"', 1)
    add_events(place, "s", [text])
    return run(
        place,
        "INSERT INTO events SELECT 's-' || n, message_id, stream_id, n, event_type, payload_json, 1, 1"
        f" FROM events, generate_series(2, {events}) AS n",
    )


def peak_of_upgrade(place: PostgresPlace) -> int:
    gc.collect()
    tracemalloc.start()
    schema.upgrade(place.url)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_b24_memory_does_not_grow_with_the_journal(place_on: PlaceOn) -> None:
    with (
        place_on("empty postgresql") as warm,
        place_on("empty postgresql") as small,
        place_on("empty postgresql") as large,
    ):
        assert isinstance(warm, PostgresPlace)
        assert isinstance(small, PostgresPlace)
        assert isinstance(large, PostgresPlace)
        schema.upgrade(version_1_with(warm, 10, 2_000).url)

        least = peak_of_upgrade(version_1_with(small, 1_000, 2_000))
        growth = peak_of_upgrade(version_1_with(large, 10_000, 2_000)) - least

        assert growth < 500_000
        assert found(large, "SELECT workspace_id FROM streams") == [("w",)]
