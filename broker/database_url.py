"""Which backend a URL means; what the rest asks of one is asked here."""

from __future__ import annotations

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from broker.errors import ConfigurationError
from broker.postgresql.server_url import server_url
from broker.sqlite.database_file import file_url

SQLITE = "sqlite"
POSTGRESQL = "postgresql"


def database_url(given: str | URL) -> URL:
    """The URL of a database for the store's own driver: a file of SQLite, or a PostgreSQL server.

    Raises ConfigurationError for what is none; never with the URL itself, for there may be a
    password in it.
    """
    try:
        url = make_url(given)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise ConfigurationError(
            "this is not a database URL: write sqlite:///FILE or postgresql+psycopg://HOST/NAME"
        ) from None
    return server_url(url) if is_postgresql(url) else file_url(url)


def is_postgresql(url: URL) -> bool:
    """Whether a URL is that of a PostgreSQL server."""
    return url.get_backend_name() == POSTGRESQL
