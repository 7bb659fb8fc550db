"""Which backend a URL means."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from broker.database_url import database_url, is_postgresql
from broker.errors import ConfigurationError

PASSWORD = "open-sesame"  # noqa: S105  # of nobody


def test_a_file_is_sqlite(tmp_path: Path) -> None:
    url = database_url(f"sqlite:///{tmp_path / 'broker.db'}")
    assert url.drivername.startswith("sqlite")
    assert not is_postgresql(url)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgresql+psycopg_async"])
def test_a_server_is_postgresql_by_the_stores_own_driver(scheme: str) -> None:
    url = database_url(f"{scheme}://user:{PASSWORD}@host:5433/name?sslmode=require")
    assert is_postgresql(url)
    assert (url.drivername, url.username, url.password) == ("postgresql+psycopg", "user", PASSWORD)
    assert (url.host, url.port, url.database) == ("host", 5433, "name")
    assert url.query == {"sslmode": "require"}


def test_a_url_of_sqlalchemys_is_taken_as_it_is() -> None:
    url = make_url("postgresql+psycopg://user@/name?host=/run")
    assert database_url(url) == url


@pytest.mark.parametrize(
    "given",
    [
        "",
        "broker.db",
        f"postgresql://user:{PASSWORD}@host:port/name",
        f"//user:{PASSWORD}@host/name",
        f"user:{PASSWORD}@host",
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(ConfigurationError, match="not a database URL") as caught:
        database_url(given)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("scheme", ["mysql", "mysql+pymysql", "oracle", "postgresql+asyncpg", "x"])
def test_another_backend_or_driver_is_refused(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match=r"postgresql\+psycopg://HOST/NAME") as caught:
        database_url(f"{scheme}://user:{PASSWORD}@host/name")
    assert PASSWORD not in str(caught.value)


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def find_all_but_psycopg(name: str, package: str | None = None) -> Any:
        return None if name == "psycopg" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_all_but_psycopg)
    with pytest.raises(ConfigurationError, match=r"install runtime-broker\[postgres\]"):
        database_url("postgresql://host/name")
