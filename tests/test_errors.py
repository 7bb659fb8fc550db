"""Errors: codes that clients rely on, their JSON form, and that they survive another process."""

from __future__ import annotations

import pickle

import pytest

from broker import Broker, errors
from broker.errors import BrokerError, IdempotencyConflict, InvalidRequest, Refusal
from tests.places import Place, PostgresPlace, client
from tests.support import commit_request

CODES_OF_THE_PROTOCOL = {
    "InvalidRequest": "invalid_request",
    "IdempotencyConflict": "idempotency_conflict",
    "LeaseUnavailable": "lease_unavailable",
    "StaleLease": "stale_lease",
    "RevisionConflict": "revision_conflict",
}
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BrokerError)
]


def test_the_five_codes_of_the_protocol_belong_to_the_five_refusals() -> None:
    refusals = {kind.__name__: kind.code for kind in KINDS if issubclass(kind, Refusal)}
    refusals.pop("Refusal")
    assert refusals == CODES_OF_THE_PROTOCOL


@pytest.mark.parametrize(
    "name", ["SchemaError", "StoreClosed", "DatabaseUnavailable", "DatabaseBusy", "CorruptRow"]
)
def test_an_error_of_the_store_itself_is_outside_the_codes_of_the_protocol(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, BrokerError)
    assert not issubclass(kind, Refusal)
    assert kind.code not in CODES_OF_THE_PROTOCOL.values()


def test_no_two_kinds_of_error_share_a_code() -> None:
    codes = [kind.code for kind in KINDS if kind is not Refusal]
    assert len(set(codes)) == len(codes)


def test_the_json_form_has_code_message_and_details() -> None:
    error = InvalidRequest("streamId: must not contain NUL", field="streamId")
    assert str(error) == error.message == "streamId: must not contain NUL"
    assert error.to_json() == {
        "code": "invalid_request",
        "message": "streamId: must not contain NUL",
        "details": {"field": "streamId"},
    }


def test_the_json_form_of_an_error_without_details_has_none() -> None:
    assert InvalidRequest("too small").to_json() == {
        "code": "invalid_request",
        "message": "too small",
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling(kind: type[BrokerError]) -> None:
    error = kind("what happened", field="a", id="b")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, as multiprocessing does
    assert type(copy) is kind
    assert copy.to_json() == error.to_json()


def test_a_detail_may_have_any_name() -> None:
    details = {"message": "m", "self": "s", "code": "c"}
    assert IdempotencyConflict("conflict", **details).details == details


def test_a_driver_error_is_the_cause_of_ours_and_never_comes_bare(
    store: Broker, place: Place
) -> None:
    with client(place) as other:
        other.execute("DROP TABLE outbox")
    with pytest.raises(BrokerError) as caught:
        store.list_pending_outbox()
    is_named = isinstance(place, PostgresPlace)  # by a state of its own, so it can be told apart
    assert caught.value.code == ("schema_error" if is_named else "database_error")
    assert caught.value.__cause__ is not None


def test_a_message_tells_who_and_what_without_the_nonce(store: Broker) -> None:
    lease = store.acquire_lease({"actorId": "ann", "holderId": "h", "ttlMs": 5})
    request = commit_request(lease) | {"lease": {"epoch": 1, "nonce": "s3cret"}}
    with pytest.raises(Refusal) as caught:
        store.commit(request)
    assert "'ann'" in caught.value.message
    assert "s3cret" not in caught.value.message
    assert lease.nonce not in caught.value.message
