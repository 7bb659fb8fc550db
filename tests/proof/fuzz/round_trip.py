"""Any JSON value that is accepted comes back byte for byte, from wherever it was put."""

from __future__ import annotations

from typing import Any

from broker.canonical import encode
from broker.errors import InvalidRequest
from tests.places import rows
from tests.proof.fuzz import independent
from tests.proof.fuzz.bench import Bench
from tests.proof.fuzz.checks import require
from tests.support import commit_request, event, outbox_message

_FIELDS = ("events[0].payload", "outbox[0].payload", "projections[0].value", "inboxResult")
_PLACES = (
    "SELECT payload_json FROM events WHERE message_id = ?",
    "SELECT payload_json FROM outbox WHERE message_id = ?",
    "SELECT value_json FROM projections WHERE projection_id = ?",
)


def round_trip(bench: Bench, values: tuple[Any, Any, Any, Any]) -> bool:
    """A commit with a value in each place for one; refused for the first that is no JSON."""
    name = f"m{next(bench.numbers)}"
    request = commit_request(
        bench.lease,
        name,
        expectedRevision=bench.revision,
        events=[event(f"{name}-e", values[0])],
        outbox=[outbox_message(name, payload=values[1])],
        projections=[{"projectionId": name, "value": values[2]}],
        inboxResult=values[3],
    )
    wanted = _stored_texts(values)
    try:
        result = bench.broker.commit(request)
    except InvalidRequest as error:
        faulty = next((f for f, text in zip(_FIELDS, wanted, strict=True) if text is None), None)
        require(error.details == {"field": faulty}, f"{error.details} instead of {faulty}")
        return False
    bench.revision = result.revision
    require(None not in wanted, "what is no JSON was accepted")
    again = bench.broker.commit(request)
    require(again.recovered and again.revision == result.revision, "the retry was not recovered")
    _require_stored(bench, name, wanted)
    _require_read(bench, name, wanted, (result.reply, again.reply))
    _require_hash(bench, name, request)
    return True


def _stored_texts(values: tuple[Any, ...]) -> list[str | None]:
    return [_stored_text(value) for value in values]


def _stored_text(value: Any) -> str | None:
    try:
        return independent.stored_text(value)
    except independent.NotAllowed:
        return None


def _require_stored(bench: Bench, name: str, wanted: list[str | None]) -> None:
    found = [rows(bench.place, query, name)[0][0] for query in _PLACES]
    require(found == wanted[:3], f"stored as {found!a} instead of {wanted!a}")


def _require_read(
    bench: Bench, name: str, wanted: list[str | None], replies: tuple[Any, Any]
) -> None:
    after = {"streamId": bench.lease.stream_id, "afterRevision": bench.revision - 1}
    (read,) = bench.broker.read_events(after)
    projection = bench.broker.read_projection({"projectionId": name})
    message = next(
        m for m in bench.broker.list_pending_outbox({"limit": 10**6}) if m.outbox_id == name
    )
    bench.broker.mark_outbox_delivered({"outboxId": name})
    assert projection is not None
    found = [read.payload, message.payload, projection.value, replies[0]]
    require([encode(each).stored for each in found] == wanted, "read as another value")
    require(encode(replies[1]).stored == wanted[3], "the retry's reply is another")


def _require_hash(bench: Bench, name: str, request: dict[str, Any]) -> None:
    query = "SELECT request_hash FROM inbox WHERE message_id = ?"
    ((found,),) = rows(bench.place, query, name)
    require(found == independent.request_hash(request), "the hash is another")
