"""Fixtures: all that is said, and a store whose secrets must not be in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker import Broker
from tests.places import Place
from tests.security.support import NONCE, Told, with_password
from tests.support import ManualClock, open_store


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Told:
    """Collects what is said in a test."""
    return Told(caplog, capsys)


@pytest.fixture
def guarded(place: Place, clock: ManualClock, told: Told) -> Iterator[Broker]:
    """A store whose nonces and whose password, if it has one, are the secrets; told of from here."""
    assert told.texts == []
    with open_store(with_password(place), clock, nonce=lambda: NONCE) as store:
        yield store
