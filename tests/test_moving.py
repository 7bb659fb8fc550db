"""Moving a store: all of it, to either backend and back, verified, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import schema
from broker.cli.demo import legacy
from broker.errors import ConfigurationError, DatabaseUnavailable, SchemaError
from broker.moving import move
from tests.moving_support import (
    LINEAGE,
    ODD_STREAM,
    dump,
    hash_of,
    is_empty,
    make_full,
    make_wide,
    put,
)
from tests.places import Place, PlaceOn, PostgresPlace, raw, rows, url_of
from tests.support import TTL_MS, ManualClock, acquire, commit_request, open_store


@pytest.fixture
def full(tmp_path: Path, clock: ManualClock) -> Path:
    """A store with rows of every kind, in a file."""
    return make_full(tmp_path / "full.db", clock)


@pytest.fixture(params=["empty sqlite", "empty postgresql"], ids=["to sqlite", "to postgresql"])
def target(request: pytest.FixtureRequest, place_on: PlaceOn) -> Iterator[Place]:
    """An empty database on each backend."""
    with place_on(request.param) as made:
        yield made


@pytest.fixture(params=["empty sqlite", "empty postgresql"], ids=["by sqlite", "by postgresql"])
def other(request: pytest.FixtureRequest, place_on: PlaceOn) -> Iterator[Place]:
    """One more empty database on each backend, for each of the first."""
    with place_on(request.param) as made:
        yield made


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------------------------- what is moved


def test_a_store_is_moved_there_and_on_and_back_with_every_row(
    full: Path, target: Place, other: Place, tmp_path: Path
) -> None:
    before = dump(full)
    first = move(url_of(full), url_of(target))
    assert dump(target) == before
    assert move(url_of(target), url_of(other)) == first
    assert dump(other) == before
    assert move(url_of(other), url_of(tmp_path / "back.db")) == first
    assert dump(tmp_path / "back.db") == before


def test_the_report_has_counts_and_hashes_that_anyone_can_make_again(
    full: Path, target: Place
) -> None:
    report = move(url_of(full), url_of(target))
    dumped = dump(target)
    for name, table in report.tables.items():
        assert table.rows == len(dumped[name]) - (name == "metadata")
        assert table.sha256 == hash_of(dumped, name)
    assert report.tables.keys() == dumped.keys()
    assert report.revisions.rows == len(dumped["streams"]) == 2
    assert report.epochs.rows == len({row[1] for row in dumped["actor_leases"]}) == 3
    assert report.last_cursor == 2000
    assert report.floor == 61_000


def test_cursors_keep_their_numbers_and_the_next_is_beyond_them(full: Path, target: Place) -> None:
    move(url_of(full), url_of(target))
    cursors = "SELECT event_id, rowid FROM events ORDER BY rowid"
    assert rows(target, cursors) == [
        *[("é-1", 1), ("é-2", 2), ("raw-1", 1000), ("raw-2", 1500), ("raw-3", 2000)]
    ]
    put(
        target,
        "INSERT INTO events (event_id, message_id, stream_id, revision, event_type, payload_json,"
        " producer_epoch, occurred_at) VALUES ('new', 'raw', 'raw', 4, 'note', '{}', 1, 0)",
    )
    assert rows(target, cursors)[-1] == ("new", 2001)


def test_a_lineage_is_marked_as_its_backend_does(full: Path, target: Place) -> None:
    move(url_of(full), url_of(target))
    hexed = ODD_STREAM.encode().hex().upper()
    query = "SELECT actor_id FROM actor_leases WHERE stream_id = ?"
    assert rows(full, query, ODD_STREAM) == [(LINEAGE + hexed,)]
    mark = "\0" if isinstance(target, Path) else "\1"
    assert rows(target, query, ODD_STREAM) == [(mark + LINEAGE[1:] + hexed,)]


def test_the_store_goes_on_where_it_was(full: Path, target: Place, clock: ManualClock) -> None:
    move(url_of(full), url_of(target))
    with open_store(target, clock) as store:
        clock.advance(TTL_MS)
        lease = acquire(store, "heir", ODD_STREAM)
        assert lease.epoch == 2  # its lineage had 1
        done = store.commit(commit_request(lease, "third", expectedRevision=2))
        assert done.revision == 3
        assert store.get_stream_revision({"streamId": ODD_STREAM}) == 3
        assert [each.outbox_id for each in store.list_pending_outbox({})] == ["out-1", "out-2"]
    assert rows(target, "SELECT max(rowid) FROM events") == [(2001,)]


def test_an_empty_store_is_moved(target: Place, clock: ManualClock, tmp_path: Path) -> None:
    schema.upgrade(url_of(tmp_path / "fresh.db"))
    report = move(url_of(tmp_path / "fresh.db"), url_of(target))
    counts = {name: table.rows for name, table in report.tables.items() if table.rows}
    assert counts == {"metadata": 1}
    assert (report.floor, report.last_cursor) == (0, 0)
    assert is_empty(target)


@pytest.mark.parametrize(("theirs", "ours", "after"), [(5, 900, 900), (900, 5, 900), (7, None, 7)])
def test_the_clock_floor_is_the_later_one(
    tmp_path: Path, target: Place, theirs: int, ours: int | None, after: int
) -> None:
    source = make_wide(tmp_path / "source.db", 3)
    schema.upgrade(url_of(target))
    floor = "INSERT INTO metadata VALUES ('logical_time_floor', ?)"
    put(source, floor, str(theirs))
    if ours is not None:
        put(target, floor, str(ours))
    assert move(url_of(source), url_of(target)).floor == after
    stored = "SELECT value FROM metadata WHERE key = 'logical_time_floor'"
    assert rows(target, stored) == [(str(after),)]


def test_what_is_committed_after_the_move_began_is_not_moved(
    tmp_path: Path, target: Place, other: Place
) -> None:
    source: Place = make_wide(tmp_path / "source.db", 1_500)
    put(source, "PRAGMA journal_mode = WAL")
    if isinstance(other, PostgresPlace):
        move(url_of(source), url_of(other))
        source = other
    before = dump(source)

    def write(doing: str, done: int, total: int) -> None:
        put(source, "INSERT INTO streams VALUES (?, 0, 0, 0, NULL)", f"late-{doing}-{done}")

    move(url_of(source), url_of(target), progress=write)
    assert dump(target) == before
    assert dump(source) != before


def test_two_stores_live_in_one_database_by_schema(
    full: Path, tmp_path: Path, place_on: PlaceOn
) -> None:
    small = make_wide(tmp_path / "small.db", 3)
    with place_on("empty postgresql") as target:
        move(url_of(full), url_of(target), schema="one")
        move(url_of(small), url_of(target), schema='the "other" ö')
        for name, source in {"one": full, 'the "other" ö': small}.items():
            back = tmp_path / "back.db"
            move(url_of(target), url_of(back), schema=name)
            assert dump(back) == dump(source)
            back.unlink()


def test_progress_goes_over_all_rows_twice(tmp_path: Path, target: Place) -> None:
    source = make_wide(tmp_path / "source.db", 1_200)
    seen: list[tuple[str, int, int]] = []
    move(url_of(source), url_of(target), progress=lambda *told: seen.append(told))
    total = 1_200 + 1_200 + 2
    assert seen == [
        (doing, done, total) for doing in ("copying", "verifying") for done in (1_000, 2_000, total)
    ]


# ------------------------------------------------------------------------------------- the source


def test_the_source_keeps_every_byte(tmp_path: Path, target: Place, clock: ManualClock) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    source = make_full(folder / "full.db", clock)
    before = bytes_of(folder)
    move(url_of(source), url_of(target))
    assert bytes_of(folder) == before


def test_the_source_may_be_open_and_have_a_log(
    tmp_path: Path, target: Place, clock: ManualClock
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    source = make_full(folder / "full.db", clock)
    with open_store(source, clock), raw(source) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("INSERT INTO metadata VALUES ('logged', 'only')")
        before = bytes_of(folder)
        move(url_of(source), url_of(target))
        after = bytes_of(folder)
    assert ("logged", "only") in dump(target)["metadata"]
    del before["full.db-shm"], after["full.db-shm"]  # the lock page of the readers
    assert after == before


def test_an_older_source_is_refused_and_no_target_made(tmp_path: Path, other: Place) -> None:
    legacy.make(tmp_path / "old.db")
    before = (tmp_path / "old.db").read_bytes()
    with pytest.raises(SchemaError, match="broker upgrade"):
        move(url_of(tmp_path / "old.db"), url_of(other))
    assert (tmp_path / "old.db").read_bytes() == before
    if isinstance(other, Path):
        assert not other.exists()


def test_a_source_that_is_not_there_is_refused_and_not_made(tmp_path: Path, other: Place) -> None:
    with pytest.raises(DatabaseUnavailable, match="there is no database at"):
        move(url_of(tmp_path / "none.db"), url_of(other))
    assert list(tmp_path.iterdir()) == []


def test_a_source_on_postgresql_without_a_store_is_refused(
    tmp_path: Path, place_on: PlaceOn
) -> None:
    with place_on("empty postgresql") as source, pytest.raises(SchemaError, match="upgrade"):
        move(url_of(source), url_of(tmp_path / "target.db"))
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------- the target


HELD: dict[str, tuple[str, str]] = {
    "a stream": ("streams", "INSERT INTO streams VALUES ('s', 0, 0, 0, NULL)"),
    "a receipt": ("mutation_receipts", "INSERT INTO mutation_receipts VALUES ('r', '', '', '', 0)"),
    "a fact of its own": ("metadata", "INSERT INTO metadata VALUES ('mine', '1')"),
}


@pytest.mark.parametrize("held", HELD)
def test_a_target_with_rows_of_a_store_is_refused(full: Path, target: Place, held: str) -> None:
    schema.upgrade(url_of(target))
    table, statement = HELD[held]
    put(target, statement)
    before = dump(target)
    with pytest.raises(SchemaError, match=f"there are rows in {table}") as caught:
        move(url_of(full), url_of(target))
    assert caught.value.details == {"table": table}
    assert dump(target) == before


def test_an_older_target_with_rows_is_not_even_migrated(full: Path, tmp_path: Path) -> None:
    legacy.make(tmp_path / "old.db")
    before = (tmp_path / "old.db").read_bytes()
    with pytest.raises(SchemaError, match="holds a store already"):
        move(url_of(full), url_of(tmp_path / "old.db"))
    assert (tmp_path / "old.db").read_bytes() == before


@pytest.mark.parametrize("revision", ["0001", "0003", "head"])
def test_an_older_or_a_fresh_target_without_rows_is_filled(
    full: Path, target: Place, revision: str
) -> None:
    schema.upgrade(url_of(target), revision)
    move(url_of(full), url_of(target))
    assert dump(target) == dump(full)


def test_a_target_with_tables_of_another_program_is_left_alone(full: Path, target: Place) -> None:
    put(target, "CREATE TABLE streams (id INTEGER)")
    with pytest.raises(SchemaError):
        move(url_of(full), url_of(target))
    assert rows(target, "SELECT * FROM streams") == []


@pytest.mark.parametrize("link", [False, True])
def test_a_store_is_not_moved_onto_itself(tmp_path: Path, link: bool) -> None:
    schema.upgrade(url_of(tmp_path / "one.db"))
    again = tmp_path / "link.db" if link else tmp_path / "one.db"
    if link:
        again.symlink_to(tmp_path / "one.db")
    with pytest.raises(ConfigurationError, match="the same file"):
        move(url_of(tmp_path / "one.db"), url_of(again))


@pytest.mark.parametrize("bad", ["nonsense", "mysql://u:secret@h/d", "sqlite://"])
@pytest.mark.parametrize("is_source", [True, False])
def test_a_url_that_is_none_is_refused(tmp_path: Path, bad: str, is_source: bool) -> None:
    good: Any = url_of(tmp_path / "good.db")
    with pytest.raises(ConfigurationError) as caught:
        move(*((bad, good) if is_source else (good, bad)))
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
