"""Which server a URL means, and whether its driver is there."""

from __future__ import annotations

import importlib.util

from sqlalchemy import URL

from broker.errors import ConfigurationError

_DRIVER = "postgresql+psycopg"

#: Names of the driver that are taken as ours; an application may use its asynchronous form.
_NAMES = {"postgresql", _DRIVER, "postgresql+psycopg_async"}


def server_url(url: URL) -> URL:
    """The URL for the store's own driver, psycopg 3.

    Raises ConfigurationError for another driver, and where psycopg is not installed.
    """
    if url.drivername not in _NAMES:
        raise ConfigurationError(
            f"{url.drivername} is not supported: write postgresql+psycopg://HOST/NAME"
        )
    if importlib.util.find_spec("psycopg") is None:
        raise ConfigurationError("PostgreSQL needs psycopg 3: install runtime-broker[postgres]")
    return url.set(drivername=_DRIVER)
