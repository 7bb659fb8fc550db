"""Which server a URL means."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url

from broker.errors import ConfigurationError
from broker.postgresql.server_url import server_url


@pytest.mark.parametrize("name", ["postgresql", "postgresql+psycopg", "postgresql+psycopg_async"])
def test_names_of_psycopg_mean_the_stores_own_form_of_it(name: str) -> None:
    url = server_url(make_url(f"{name}://user:secret@host/name?host=/run&options=-c%20a%3Db"))
    assert url.drivername == "postgresql+psycopg"
    assert url.render_as_string(hide_password=False).endswith(
        "://user:secret@host/name?host=%2Frun&options=-c+a%3Db"
    )


@pytest.mark.parametrize(
    "name",
    ["postgresql+asyncpg", "postgresql+psycopg2", "postgresql+pg8000", "postgres", "cockroachdb"],
)
def test_other_drivers_are_refused_by_name(name: str) -> None:
    url = make_url(f"{name}://user:secret@host/name")
    with pytest.raises(ConfigurationError) as caught:
        server_url(url)
    assert str(caught.value).startswith(f"{name} is not supported")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("bad", ["%00", "\0", "\ud800"], ids=["escaped NUL", "NUL", "surrogate"])
@pytest.mark.parametrize(
    "url",
    ["{}:secret@host/n", "u:{}@host/n", "host/n{}", "host/n?sslmode={}", "host/n?host={}&host=b"],
)
def test_what_no_server_can_be_told_is_refused(url: str, bad: str) -> None:
    with pytest.raises(ConfigurationError, match="neither NUL nor surrogates") as caught:
        server_url(make_url(f"postgresql://{url.format(bad)}"))
    assert "secret" not in str(caught.value)


def test_a_password_among_the_options_is_put_where_passwords_are() -> None:
    url = server_url(make_url("postgresql://user:other@host/name?password=secret&sslmode=require"))
    assert url.password == "secret"  # noqa: S105  # which libpq would have taken
    assert url.render_as_string() == "postgresql+psycopg://user:***@host/name?sslmode=require"


def test_a_password_with_a_sign_that_ends_it_is_not_taken_for_a_host() -> None:
    with pytest.raises(ConfigurationError, match="two @ in this URL") as caught:
        server_url(make_url("postgresql://user:pass@secret@host/name"))
    assert "secret" not in str(caught.value)
