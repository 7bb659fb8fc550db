"""Requests: their wire form, what may be left out, and that they stay as they were checked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from broker import ABSENT
from broker.errors import InvalidRequest
from broker.messages import (
    AcquireLeaseRequest,
    CommitRequest,
    Lease,
    ListPendingOutboxRequest,
    ReadAuthorizedEventsPageRequest,
    ReadEventsRequest,
    ReadJournalRequest,
    ReadModelEventsRequest,
    ReadModelSourcesRequest,
    Request,
    validate,
)
from tests.messages.examples import ACQUIRE, COMMIT, COMPLETE, CREDENTIAL, OPTIONAL, PAGE, changed
from tests.support import expect_refusal


@pytest.mark.parametrize("kind", COMPLETE)
def test_b57_the_wire_form_is_camel_case_and_can_be_loaded_again(kind: type[Request]) -> None:
    request = kind.model_validate(COMPLETE[kind])
    form = json.loads(json.dumps(request.to_json()))
    assert form == COMPLETE[kind]
    assert kind.model_validate(form) == request
    assert kind.model_validate_json(request.model_dump_json()) == request


@pytest.mark.parametrize("kind", COMPLETE)
def test_keywords_in_python_spelling_make_the_same_request(kind: type[Request]) -> None:
    request = kind.model_validate(COMPLETE[kind])
    assert kind(**{name: getattr(request, name) for name in kind.model_fields}) == request


@pytest.mark.parametrize("kind", OPTIONAL)
def test_null_for_an_optional_field_means_absent(kind: type[Request]) -> None:
    for name in OPTIONAL[kind]:
        absent = validate(kind, changed(COMPLETE[kind], (name,), ABSENT))
        null = validate(kind, changed(COMPLETE[kind], (name,), None))
        assert null == absent
        assert name not in null.to_json()


@pytest.mark.parametrize("name", ["occurredAt", "correlationId", "causationId", "traceId"])
def test_null_for_an_optional_field_of_an_event_means_absent(name: str) -> None:
    null = validate(CommitRequest, changed(COMMIT, ("events", 0, name), None))
    assert null == validate(CommitRequest, changed(COMMIT, ("events", 0, name), ABSENT))
    assert name not in null.to_json()["events"][0]


@pytest.mark.parametrize(
    ("kind", "required", "name"),
    [
        (ReadEventsRequest, {"streamId": "s"}, "afterRevision"),
        (ReadJournalRequest, {}, "afterCursor"),
        (ReadJournalRequest, {}, "limit"),
        (ReadModelEventsRequest, {"workspaceId": "w"}, "afterCursor"),
        (ReadModelEventsRequest, {"workspaceId": "w"}, "limit"),
        (ReadModelSourcesRequest, {"workspaceId": "w"}, "limit"),
        (ListPendingOutboxRequest, {}, "limit"),
    ],
)
def test_null_for_a_field_with_a_default_means_absent(
    kind: type[Request], required: dict[str, Any], name: str
) -> None:
    assert validate(kind, required | {name: None}) == validate(kind, required)
    wanted = kind.model_json_schema()["properties"][name]
    assert wanted["anyOf"][1] == {"type": "null"}


def test_null_is_a_reply_and_absence_is_none() -> None:
    null = validate(CommitRequest, COMMIT | {"inboxResult": None})
    absent = validate(CommitRequest, changed(COMMIT, ("inboxResult",), ABSENT))
    assert null.to_json()["inboxResult"] is None
    assert "inboxResult" not in absent.to_json()
    assert absent.inbox_result is ABSENT
    assert repr(ABSENT) == "ABSENT"


def test_a_request_is_frozen() -> None:
    request = AcquireLeaseRequest.model_validate(ACQUIRE)
    with pytest.raises(ValidationError, match="frozen"):
        request.ttl_ms = 9


@pytest.mark.parametrize(
    "update", [{"ttl_ms": True}, {"ttl_ms": 2**53}, {"actor_id": ""}, {"surprise": 1}]
)
def test_b57_a_copy_is_validated_like_any_other_request(update: dict[str, Any]) -> None:
    request = AcquireLeaseRequest.model_validate(ACQUIRE)
    with pytest.raises(ValidationError):
        request.model_copy(update=update)


def test_a_copy_has_the_changed_fields_and_the_others() -> None:
    request = AcquireLeaseRequest.model_validate(ACQUIRE)
    assert request.model_copy(update={"ttl_ms": 9}).to_json() == ACQUIRE | {"ttlMs": 9}
    assert request.model_copy() == request


def test_a_nonce_is_in_no_representation() -> None:
    lease = Lease("a", "s", "h", 1, "s3cret", 0, 0, 9)
    request = validate(CommitRequest, COMMIT | {"lease": {"epoch": 1, "nonce": "s3cret"}})
    for shown in (lease, lease.credential, request, str(request), f"{lease.credential}"):
        assert "s3cret" not in repr(shown)


def test_a_page_that_ends_before_it_begins_is_refused_by_field() -> None:
    with expect_refusal(InvalidRequest, field="throughRevision"):
        validate(ReadAuthorizedEventsPageRequest, PAGE | {"throughRevision": 1})
    assert validate(ReadAuthorizedEventsPageRequest, PAGE | {"throughRevision": 2})


def test_the_authorized_read_is_not_taken_for_the_plain_one() -> None:
    request = {"streamId": "s", "authorization": {"actorId": "a", "lease": CREDENTIAL}}
    with expect_refusal(InvalidRequest, field="authorization"):
        validate(ReadEventsRequest, request)
