"""Which server a URL means, and whether its driver is there."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator

from sqlalchemy import URL

from broker.errors import ConfigurationError

_DRIVER = "postgresql+psycopg"

#: Names of the driver that are taken as ours; an application may use its asynchronous form.
_NAMES = {"postgresql", _DRIVER, "postgresql+psycopg_async"}

# Where the driver would cut a text off, or raise errors of Python's.
_UNSENDABLE = re.compile("[\0\ud800-\udfff]")


def server_url(url: URL) -> URL:
    """The URL for the store's own driver, psycopg 3.

    A password among the options is where a password belongs, and nothing shows it.

    Raises ConfigurationError for another driver, where psycopg is not installed, and where a
    password that holds `@` would be taken for a part of the host.
    """
    if url.drivername not in _NAMES:
        raise ConfigurationError(
            f"{url.drivername} is not supported: write postgresql+psycopg://HOST/NAME"
        )
    if importlib.util.find_spec("psycopg") is None:
        raise ConfigurationError("PostgreSQL needs psycopg 3: install runtime-broker[postgres]")
    if "@" in (url.host or ""):
        raise ConfigurationError("there are two @ in this URL: write one in a password as %40")
    password = url.query.get("password")
    if isinstance(password, str):
        url = url.difference_update_query(["password"]).set(password=password)
    if any(map(_UNSENDABLE.search, _texts(url))):
        raise ConfigurationError("the URL of a server holds neither NUL nor surrogates")
    return url.set(drivername=_DRIVER)


def _texts(url: URL) -> Iterator[str]:
    yield from filter(None, (url.username, url.password, url.host, url.database))
    for name, given in url.query.items():
        yield name
        yield from (given,) if isinstance(given, str) else given
