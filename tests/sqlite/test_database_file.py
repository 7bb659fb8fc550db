"""Which file a URI means: the one that SQLite opens, or none."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from broker import Broker
from broker.database_url import database_url
from broker.errors import ConfigurationError
from broker.sqlite.database_file import file_of


@pytest.mark.parametrize(
    "uri",
    [
        "file:{}/plain.db",
        "file://{}/plain.db",
        "file://localhost{}/plain.db",
        "file:{}/up%2541.db",
        "file:{}/name.db%23fragment",
        "file:{}/a%2520b%253Fc.db",
        "file:{}/gr%25C3%25B6sse.db",
    ],
)
def test_the_file_of_a_uri_is_the_one_that_sqlite_opens(tmp_path: Path, uri: str) -> None:
    url = f"sqlite:///{uri.format(tmp_path)}?uri=true"
    with Broker.open(url) as store, store.engine.connect() as connection:
        ((_, _, opened),) = connection.exec_driver_sql("PRAGMA database_list")
    assert str(file_of(database_url(url))) == opened
    (made,) = tmp_path.iterdir()
    assert (str(made), made.stat().st_mode & 0o777) == (opened, 0o600)


def test_a_uri_may_hold_bytes_that_are_no_text(tmp_path: Path) -> None:
    uri = f"file:{tmp_path}/a%ff.db"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.execute("CREATE TABLE made (by_sqlite)")
    path = file_of(database_url(f"sqlite:///{uri.replace('%', '%25')}?uri=true"))
    assert os.fsencode(path) == os.fsencode(tmp_path) + b"/a\xff.db"
    assert path.is_file()


@pytest.mark.parametrize(
    "uri", ["file:a%2500b.db", "file://host/a.db", "file://localhost", "file://a"]
)
def test_a_uri_that_names_no_file_of_this_machine_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="names a file of this machine"):
        database_url(f"sqlite:///{uri}?uri=true")
