"""Who may read and write a store's file, and that whoever opens one of anybody's is told."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event

from broker import Broker, configure_engine, schema
from broker.cli.demo.legacy import make
from broker.database_url import database_url
from broker.moving import move
from broker.sqlite import file_modes
from broker.sqlite.engine import make_engine
from tests.cli.support import run
from tests.migrations.support import on
from tests.places import url_of

MASKS = [0o000, 0o022, 0o077]


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in a folder that everybody may enter."""
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o755)
    return folder / "broker.db"


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_modes, "_told", set())


# ---------------------------------------------------------------------------------- a file is made


@pytest.mark.parametrize("mask", MASKS, ids=oct)
def test_a_new_file_with_its_log_and_folders_is_its_owners_alone(path: Path, mask: int) -> None:
    nested = path.parent / "a" / "b" / "broker.db"
    with umask(mask), Broker.open(url_of(nested)) as store:
        store.acquire_lease({"actorId": "actor", "holderId": "holder", "ttlMs": 1_000})
        assert {each.name: mode(each) for each in nested.parent.iterdir()} == {
            "broker.db": 0o600,
            "broker.db-wal": 0o600,
            "broker.db-shm": 0o600,
        }
    assert [mode(nested.parent), mode(nested.parent.parent)] == [0o700, 0o700]


def _open_store(path: Path) -> None:
    Broker.open(url_of(path)).close()


def _open_as_uri(path: Path) -> None:
    Broker.open(f"sqlite:///file:{path}?uri=true").close()


def _use_an_engine_of_the_applications(path: Path) -> None:
    engine = configure_engine(create_engine(url_of(path)))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (name TEXT)")
    engine.dispose()


def _move_into(path: Path) -> None:
    source = path.with_name("source.db")
    _open_store(source)
    move(url_of(source), url_of(path))


def _alembic(path: Path) -> None:
    assert on(path, "upgrade", "head").returncode == 0


ROADS: dict[str, Callable[[Path], object]] = {
    "Broker.open": _open_store,
    "a URI": _open_as_uri,
    "schema.upgrade": lambda path: schema.upgrade(url_of(path)),
    "alembic upgrade": _alembic,
    "an engine of the application's": _use_an_engine_of_the_applications,
    "the target of a move": _move_into,
    "the demo's database": make,
}


@pytest.mark.parametrize("road", ROADS)
def test_on_every_road_a_file_is_made_for_its_owner_alone(path: Path, road: str) -> None:
    with umask(0):
        ROADS[road](path)
    assert mode(path) == 0o600


def test_there_is_no_moment_in_which_it_is_anybody_elses(path: Path) -> None:
    seen: list[int] = []
    engine = make_engine(url_of(path))
    event.listen(engine, "do_connect", lambda *_: seen.append(mode(path)))  # SQLite comes next
    with umask(0), engine.connect():
        assert seen == [0o600]
    engine.dispose()


def test_without_it_sqlite_makes_a_file_for_everybody_to_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_modes, "_make", lambda _path: None)
    with umask(0o022):
        _open_store(path)
    assert mode(path) == 0o644


def test_where_a_node_may_not_be_made_the_file_is_made_by_opening_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mknod", refuse)
    with umask(0):
        _open_store(path)
    assert mode(path) == 0o600


def test_the_target_of_a_link_is_made_for_its_owner_alone(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    with umask(0):
        _open_store(link)
    assert mode(path) == 0o600


@pytest.mark.parametrize("given", [0o600, 0o640, 0o660, 0o644])
def test_a_file_that_is_there_keeps_its_mode(path: Path, given: int) -> None:
    path.touch()
    path.chmod(given)
    _open_store(path)
    assert mode(path) == given


def test_a_url_that_asks_for_a_file_that_is_there_makes_none(path: Path) -> None:
    for asked in ("ro", "rw"):
        file_modes.make_file(database_url(f"sqlite:///file:{path}?mode={asked}&uri=true"))
    assert not path.exists()


# -------------------------------------------------------------------------------- who opens is told


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "broker"]


@pytest.mark.parametrize(
    ("of_folder", "of_file", "told"),
    [
        (0o700, 0o600, None),
        (0o755, 0o600, None),
        (0o775, 0o660, None),  # the group is somebody's decision
        (0o700, 0o666, None),  # nobody else gets to it
        (0o777, 0o600, "and so replace it"),
        (0o1777, 0o600, "and so make its log before SQLite does"),
        (0o755, 0o644, "everybody may read it"),
        (0o755, 0o602, "everybody may write to it"),
        (0o755, 0o666, "everybody may read and write to it"),
    ],
)
def test_a_file_that_is_not_its_owners_alone_is_warned_of_once(
    path: Path, caplog: pytest.LogCaptureFixture, of_folder: int, of_file: int, told: str | None
) -> None:
    path.touch()
    path.chmod(of_file)
    path.parent.chmod(of_folder)
    for _ in range(2):
        _open_store(path)
    said = warnings(caplog)
    assert len(said) == (told is not None)
    assert all(str(told) in each and str(path) in each for each in said)


def test_a_link_in_a_folder_of_everybodys_is_warned_of(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "everybody's"
    folder.mkdir()
    folder.chmod(0o777)
    link = folder / "link.db"
    link.symlink_to(path)
    _open_store(link)
    (said,) = warnings(caplog)
    assert "and so replace it" in said


def test_a_name_cannot_forge_a_line_of_the_log(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.chmod(0o777)
    _open_store(path.with_name("a\nERROR forged\x1b[2J.db"))
    (said,) = warnings(caplog)
    assert said.isprintable()


def test_the_library_adds_no_handler_that_prints() -> None:
    handlers = logging.getLogger("broker").handlers
    assert {type(each) for each in handlers} == {logging.NullHandler}


def test_the_command_prints_the_warning(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.parent.chmod(0o777)
    code, _, said = run(capsys, "upgrade", "--url", url_of(path))
    assert code == 0
    assert said.startswith(f"warning: the store '{path}' is not its owner's alone")
    assert said.count("\n") == 1
