"""A group of writes against the same writes one after another: the same answers, the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from broker import Broker, journal, leases, outbox
from broker.errors import BrokerError
from broker.transaction import Transaction, Write
from tests.group_support import grouped, outcome_of, queue_of, ready
from tests.journal_support import projection
from tests.places import contents
from tests.support import TTL_MS, ManualClock, acquire, event, open_store, outbox_message

NONCE = "nonce"  # of every lease, so that two stores can have the same rows

EMPTY: list[bytes] = []


def an_empty_store(folder: Path, name: str, clock: ManualClock) -> Broker:
    """A store on a copy of an empty database."""
    path = folder / name
    if not EMPTY:
        open_store(path, clock).close()
        EMPTY.append(path.read_bytes())
    path.write_bytes(EMPTY[0])
    return open_store(path, clock, nonce=lambda: NONCE, receipt_capacity=3)


NAMES = st.sampled_from("ab")
REQUEST_IDS = st.none() | st.sampled_from("rst")
CREDENTIALS = st.sampled_from(
    [{"epoch": 1, "nonce": NONCE}] * 5 + [{"epoch": 2, "nonce": NONCE}, {"epoch": 1, "nonce": "no"}]
)
TTLS = st.sampled_from([1, TTL_MS])

Making = Callable[[Broker], Write[Any]]


@st.composite
def commits(draw: st.DrawFn, revisions: dict[str, int]) -> Making:
    """A commit at the revision at which its stream is if all before it were done, mostly.

    Ids are few, so that they are used again.
    """
    actor = draw(NAMES)
    stream = draw(st.sampled_from([actor] * 5 + ["a"]))
    events = draw(st.lists(st.sampled_from("efghij"), max_size=2))
    revision = revisions.get(stream, 0)
    if draw(st.integers(0, 4)):
        revisions[stream] = revision + len(events)
    messages = [draw(st.sampled_from("uvwx"))] if draw(st.booleans()) else []
    projections = [draw(st.sampled_from("yz"))] if draw(st.booleans()) else []
    about = draw(st.sampled_from([{}, {}, {"eventId": "e"}]))
    request: dict[str, Any] = {
        "messageId": draw(st.sampled_from("klmnopqr")),
        "actorId": actor,
        "streamId": stream,
        "lease": draw(CREDENTIALS),
        "expectedRevision": revision,
        "events": [event(each) for each in events],
        "outbox": [outbox_message(each, **about) for each in messages],
        "projections": [projection(each) for each in projections],
    }
    return lambda store: journal.commit(request, store.options)


@st.composite
def lease_mutations(draw: st.DrawFn) -> Making:
    actor, request_id, ttl_ms = draw(NAMES), draw(REQUEST_IDS), draw(TTLS)
    shown = {"actorId": actor, "lease": draw(CREDENTIALS)}
    taking = {"actorId": actor, "streamId": draw(NAMES), "holderId": "holder", "ttlMs": ttl_ms}
    kind = draw(st.sampled_from(["acquire"] * 3 + ["takeover", "heartbeat", "swap", "release"]))
    if kind == "acquire":
        return lambda _store: leases.acquire(taking, request_id)
    if kind == "takeover":
        return lambda _store: leases.takeover(taking, request_id)
    if kind == "heartbeat":
        return lambda _store: leases.heartbeat(shown | {"ttlMs": ttl_ms}, request_id)
    if kind == "swap":
        swap = shown | {"ttlMs": ttl_ms, "nextHolderId": "next"}
        return lambda _store: leases.compare_and_swap(swap, request_id)
    return lambda _store: leases.release(shown, request_id)


def spoilt(make: Making) -> Making:
    """What does its work and fails at the end, for no reason of the protocol's."""

    def made(store: Broker) -> Write[Any]:
        inner = make(store)

        def apply(transaction: Transaction) -> None:
            with transaction.savepoint():
                inner.apply(transaction)
                raise ZeroDivisionError

        return Write(apply)

    return made


def marks() -> st.SearchStrategy[Making]:
    return st.sampled_from("uvwx").map(
        lambda each: lambda _store: outbox.mark_delivered({"outboxId": each})
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Making]:
    revisions: dict[str, int] = {}
    writes: list[Making] = []
    for _ in range(draw(st.integers(2, 24))):
        kind = draw(st.sampled_from(["commit"] * 6 + ["lease", "lease", "mark", "spoilt"]))
        if kind == "lease":
            writes.append(draw(lease_mutations()))
        elif kind == "mark":
            writes.append(draw(marks()))
        elif kind == "commit":
            writes.append(draw(commits(revisions)))
        else:
            writes.append(spoilt(draw(commits(dict(revisions)))))
    return writes


def comparable(answer: Any) -> Any:
    if isinstance(answer, BrokerError):
        return type(answer), answer.to_json()
    return type(answer) if isinstance(answer, Exception) else answer


@settings(max_examples=80, deadline=None)
@given(makings=histories(), cut=st.integers(1, 24))
def test_a_group_goes_as_its_writes_would_one_after_another(
    makings: list[Making], cut: int
) -> None:
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        with (
            patch("secrets.token_hex", return_value="0" * 32),  # for the epochs left behind
            an_empty_store(Path(folder), "grouped.db", clock) as one,
            an_empty_store(Path(folder), "single.db", clock) as other,
        ):
            for store in (one, other):
                acquire(store, "a", "a")
                acquire(store, "b", "b")
            for part in (makings[:cut], makings[cut:]):
                clock.advance(2)
                answers = grouped(queue_of(one), [make(one) for make in part]) if part else []
                singly = [
                    outcome_of(partial(other._connections.write, ready(make(other))))
                    for make in part
                ]
                assert list(map(comparable, answers)) == list(map(comparable, singly))
        assert contents(Path(folder) / "grouped.db") == contents(Path(folder) / "single.db")
