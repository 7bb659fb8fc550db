"""Results: their wire form, there and back."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from broker import ABSENT
from broker.messages import RESULTS, CommitResult, Lease, Result, StoredOutboxMessage
from broker.messages.results import make_lease
from tests.messages.examples import FULL_RESULTS, each_result


@each_result
def test_a_result_has_its_wire_form_and_comes_back_from_it(
    result: Result, form: dict[str, Any]
) -> None:
    assert result.to_json() == form
    assert type(result).from_json(json.loads(json.dumps(form))) == result


def test_every_kind_of_result_is_tried_above() -> None:
    assert {type(result) for result, _ in FULL_RESULTS} == set(RESULTS)


@pytest.mark.parametrize("reply", [None, False, 0, "", [], {}])
def test_a_reply_that_is_empty_is_still_a_reply(reply: Any) -> None:
    result = CommitResult("m", "s", 0, 0, (), (), (), 9, recovered=True, reply=reply)
    assert result.to_json()["reply"] == reply
    assert CommitResult.from_json(result.to_json()) == result


def test_a_commit_without_a_reply_has_none_on_the_wire() -> None:
    result = CommitResult("m", "s", 0, 0, (), (), (), 9, recovered=True)
    assert "reply" not in result.to_json()
    assert CommitResult.from_json(result.to_json()).reply is ABSENT


def test_an_undelivered_message_of_no_event_has_neither_on_the_wire() -> None:
    message = StoredOutboxMessage("o", "m", "mail", None, 1, 2, 0)
    assert {"eventId", "deliveredAt"}.isdisjoint(message.to_json())


@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize("form", [{}, {"surprise": 1}])
def test_a_form_that_is_no_result_is_refused(kind: type[Result], form: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        kind.from_json(form)


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_is_frozen_and_has_no_room_for_more(kind: type[Result]) -> None:
    (result,) = [result for result, _ in FULL_RESULTS if type(result) is kind]
    with pytest.raises((AttributeError, TypeError)):
        result.surprise = 1  # type: ignore[attr-defined]  # which is the point


def test_what_is_made_the_fast_way_is_the_same_as_what_is_made_the_usual_way() -> None:
    values = ("actor", "stream", "holder", 1, "nonce", 2, 3, 4)
    fast, usual = make_lease(*values), Lease(*values)
    assert type(fast) is Lease
    assert (fast, repr(fast), hash(fast)) == (usual, repr(usual), hash(usual))
    assert pickle.loads(pickle.dumps(fast)) == usual  # noqa: S301  # its own
    with pytest.raises(FrozenInstanceError):
        fast.epoch = 2  # type: ignore[misc]
