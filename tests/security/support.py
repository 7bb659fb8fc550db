"""Secrets to look for, and all that is said while a test runs."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import make_url

from broker.errors import BrokerError
from tests.places import Place, PostgresPlace

NONCE = "nonce-that-nobody-may-see"
PASSWORD = "password-that-nobody-may-see"  # noqa: S105  # to look for

LOGGERS = (None, "alembic", "broker", "psycopg", "sqlalchemy", "sqlalchemy.engine")


class Told:
    """All that is said: to logs at DEBUG, to stdout and stderr, and whatever is added."""

    def __init__(
        self, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._caplog, self._capsys = caplog, capsys
        self.texts: list[str] = []
        for name in LOGGERS:
            caplog.set_level(logging.DEBUG, logger=name)

    def add(self, *things: object) -> None:
        """How Python shows these."""
        for each in things:
            self.texts += [repr(each), str(each)]

    def error(self, error: BaseException) -> None:
        """All that an error says, to a program or in a traceback."""
        self.add(error, error.args, *traceback.format_exception(error))
        if isinstance(error, BrokerError):
            self.add(error.message, error.details, error.to_json())

    def refusal(self, kind: type[BrokerError], work: Callable[..., object], *given: Any) -> None:
        """The error of this kind that some work raises."""
        with pytest.raises(kind) as caught:
            work(*given)
        self.error(caught.value)

    def secrets(self) -> set[str]:
        """Those that were told."""
        out, err = self._capsys.readouterr()
        said = "\n".join([*self.texts, self._caplog.text, out, err])
        return {secret for secret in (NONCE, PASSWORD) if secret in said}

    def logged(self) -> str:
        """What was said to logs."""
        return self._caplog.text


def with_password(place: Place) -> Place:
    """A place by a URL with the secret password, which the tests' server does not ask for."""
    if not isinstance(place, PostgresPlace):
        return place
    url = make_url(place.url).set(password=PASSWORD).render_as_string(hide_password=False)
    return PostgresPlace(url, place.is_at_head)
