"""Fixtures: a real database, a clock that the test moves, a store on both.

A test that asks for `place`, or for a store or an engine on it, runs on both backends, or on those
in BROKER_TEST_BACKENDS. One that asks for `path`, the place as a file, is about SQLite alone, and so
are those in `tests/sqlite`; those in `tests/postgresql` and in modules `…_on_postgresql` are about
PostgreSQL.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, Pool, event

from broker import Broker, UnitOfWork, schema
from tests.places import BACKENDS, Databases, Place, PlaceOn, backend_of, copied, url_of
from tests.postgres_server import HOW_TO_GET_IT, URL_VARIABLE, Keeper, find_binaries
from tests.support import ENGINES, NESTING, ManualClock, UnitOn, create_orders, open_store

# Tests commit thousands of times, and on a disk each waits for a flush, which no test can see.
IN_MEMORY = Path("/dev/shm")  # noqa: S108  # pytest makes folders of its own there


def _has_room_in_memory() -> bool:
    is_usable = IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK)
    return is_usable and shutil.disk_usage(IN_MEMORY).free > 2**30


if "TMPDIR" not in os.environ and _has_room_in_memory():
    os.environ["TMPDIR"] = str(IN_MEMORY)
    tempfile.tempdir = None  # to be looked up again


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is there before the first test stays to the end: no collection of garbage looks at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


# ------------------------------------------------------------------------------------- backends


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test on a place runs on each backend, and one on an engine with each kind of engine."""
    if "backend" not in metafunc.fixturenames:
        return
    backends = _backends(metafunc)
    for name, engines in {"engine": ENGINES, "nesting": NESTING}.items():
        if name in metafunc.fixturenames:
            kinds = [(each, kind) for each in backends for kind in engines[each]]
            metafunc.parametrize(("backend", name), kinds, indirect=True)
            return
    metafunc.parametrize("backend", backends, indirect=True)


def _backends(metafunc: pytest.Metafunc) -> Sequence[str]:
    module = metafunc.module.__name__
    if module.startswith("tests.sqlite."):
        return ["sqlite"]
    if module.startswith("tests.postgresql.") or module.endswith("_on_postgresql"):
        return ["postgresql"]
    return ["sqlite"] if "path" in metafunc.fixturenames else BACKENDS


_kept: list[Keeper] = []


def pytest_configure(config: pytest.Config) -> None:
    """Processes that run tests side by side share one server, so it is there before them."""
    if "postgresql" in BACKENDS and getattr(config.option, "dist", "no") != "no":
        _start_server()


def pytest_unconfigure() -> None:
    """Stop the server if it is ours."""
    while _kept:
        _kept.pop().end()
        del os.environ[URL_VARIABLE]


def _start_server() -> None:
    if URL_VARIABLE not in os.environ and find_binaries() is not None:
        _kept.append(Keeper.start())
        os.environ[URL_VARIABLE] = _kept[-1].url


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """A PostgreSQL server, by a URL of a superuser; the tests skip where there is none to be had."""
    _start_server()
    if URL_VARIABLE in os.environ:
        return os.environ[URL_VARIABLE]
    if "CI" in os.environ:
        pytest.fail(HOW_TO_GET_IT)
    pytest.skip(HOW_TO_GET_IT)


@pytest.fixture(scope="session")
def postgres_databases(postgres_url: str) -> Iterator[Databases]:
    """Makes databases on the server, which are to be dropped."""
    databases = Databases(postgres_url)
    yield databases
    databases.close()


@pytest.fixture(autouse=True)
def _pooled_connections_are_closed() -> Iterator[None]:
    """Close what the engines of a test have left open, for Python 3.13 warns of it."""
    made: list[Any] = []

    def remember(connection: Any, _record: Any) -> None:
        made.append(connection)

    event.listen(Pool, "connect", remember)
    yield
    event.remove(Pool, "connect", remember)
    for connection in made:
        if isinstance(connection, (sqlite3.Connection, psycopg.Connection)):
            connection.close()  # an async driver's closes by itself


# --------------------------------------------------------------------------------------- places


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's database is, or will be, as a file of SQLite's."""
    return tmp_path / "broker.db"


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> str:
    """`sqlite` or `postgresql`."""
    return str(request.param)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the store's tables, to be copied: that is faster than to make them each time."""
    template = tmp_path_factory.mktemp("template") / "template.db"
    schema.upgrade(url_of(template))
    return template


@pytest.fixture(scope="session")
def place_on(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> PlaceOn:
    """Makes a new place on a backend, for as long as a `with` lasts.

    The store's tables are there, unless the backend is `empty sqlite` or `empty postgresql`, and
    those of an application too on a `postgresql with orders`.
    """

    @contextmanager
    def make(backend: str) -> Iterator[Place]:
        if backend.endswith("sqlite"):
            file = tmp_path_factory.mktemp("place") / "broker.db"
            yield copied(sqlite_template, file) if backend == "sqlite" else file
            return
        databases: Databases = request.getfixturevalue("postgres_databases")
        makers: dict[str, Callable[[], AbstractContextManager[Place]]] = {
            "postgresql": databases.one,
            "postgresql with orders": partial(databases.one, create_orders),
            "empty postgresql": databases.one_empty,
        }
        with makers[backend]() as made:
            yield made

    return make


@pytest.fixture
def place(
    request: pytest.FixtureRequest,
    backend: str,
    tmp_path: Path,
    sqlite_template: Path,
    place_on: PlaceOn,
) -> Iterator[Place]:
    """Where the test's store will be, on each backend: its tables are there. A file is `path`."""
    if backend == "sqlite":
        yield copied(sqlite_template, tmp_path / "broker.db")
        return
    has_orders = "database" in request.fixturenames
    with place_on("postgresql with orders" if has_orders else backend) as made:
        yield made


@pytest.fixture
def empty_place(backend: str, tmp_path: Path, place_on: PlaceOn) -> Iterator[Place]:
    """A place in which nothing is, not even the store's tables."""
    if backend == "sqlite":
        yield tmp_path / "empty.db"
        return
    with place_on("empty postgresql") as made:
        yield made


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, as it does not in a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def clock() -> ManualClock:
    """Broker time, moved by the test: 1,000 ms to begin with."""
    return ManualClock()


@pytest.fixture
def store(place: Place, clock: ManualClock) -> Iterator[Broker]:
    """An empty store."""
    with open_store(place, clock) as opened:
        yield opened


@pytest.fixture
def database(place: Place, clock: ManualClock) -> Place:
    """A database with the store's tables and the application's."""
    open_store(place, clock).close()
    if backend_of(place) == "sqlite":  # on a server they are in what was copied
        create_orders(url_of(place))
    return place


@pytest.fixture
def engine(request: pytest.FixtureRequest, database: Place) -> Iterator[Engine]:
    """The application's engine, of every kind."""
    made = ENGINES[backend_of(database)][request.param](url_of(database))
    yield made
    made.dispose()


@pytest.fixture
def nesting(request: pytest.FixtureRequest, database: Place) -> Iterator[Engine]:
    """The application's engine, of each kind on which savepoints nest."""
    made = NESTING[backend_of(database)][request.param](url_of(database))
    yield made
    made.dispose()


@pytest.fixture
def configured(database: Place) -> Iterator[Engine]:
    """The application's engine, deferred."""
    made = ENGINES[backend_of(database)]["configured"](url_of(database))
    yield made
    made.dispose()


@pytest.fixture
def unit_on(clock: ManualClock) -> UnitOn:
    """Makes units of work; all of them share the test's clock and options."""
    options = clock.options()
    logical = options.make_clock()
    return lambda session: UnitOfWork(session, options, clock=logical)
