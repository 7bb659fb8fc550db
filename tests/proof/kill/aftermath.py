"""After the kill: what is stored is looked at, then the store is opened, used, and asked again."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg

from broker.errors import BrokerError, DatabaseBusy
from broker.options import BUSY_TIMEOUT_MS
from tests.places import Place, client
from tests.proof.invariants import UNSOUND, broken_for
from tests.proof.kill import requests
from tests.proof.kill.doors import Client, opened
from tests.proof.kill.evidence import Evidence, stored
from tests.proof.kill.ledger import Ask, Book
from tests.proof.kill.stages import HEAD, NOTHING, half_made, version_of
from tests.proof.kill.verdict import Verdict, judge

_REPEATED = 12  # of what was acknowledged; all that is open is repeated


def examine(
    place: Place,
    deed: str | None,
    book: Book,
    base: Evidence,
    name: str,
    patience_ms: int = BUSY_TIMEOUT_MS,
) -> Verdict:
    """The verdict on a store after a kill, and again after it was opened and asked again.

    `patience_ms` is for locks: a server may notice a little later that its client has gone.
    """
    verdict, found = _look(place, deed, book, base)
    if verdict.faults:
        return verdict
    try:
        with closing(opened(place, busy_timeout_ms=patience_ms)) as door:
            after = Client(door, book.ledger("after"))
            verdict.find("locks left", _locks_left(after, name))
            verdict.find("wrong answers", _wrong_repetitions(after, book, found, name))
    except DatabaseBusy as error:
        verdict.find("locks left", [str(error)])
    except BrokerError as error:
        verdict.find("wrong answers", [f"{type(error).__name__}: {error}"])
    verdict.faults += _look(place, None, book, base)[0].faults
    return verdict


def _look(place: Place, deed: str | None, book: Book, base: Evidence) -> tuple[Verdict, Evidence]:
    """The verdict on what a plain client sees, and what that is."""
    verdict, found = Verdict(), NOTHING
    if isinstance(place, Path) and not place.exists():  # a client would make it
        verdict.find("half done", half_made(None, deed))
        return verdict, found
    was_opened = any(ask.answer is not None for ask in book.asks)
    try:
        with client(place) as other:
            version = version_of(other, place)
            verdict.find("half done", half_made(version, deed))
            rules = broken_for(other, place, was_opened=was_opened) if version == HEAD else []
            verdict.find("rules broken", rules)
            if version == HEAD and not any(UNSOUND in rule for rule in rules):
                found = Evidence.seen_by(other, place)
                judge(verdict, book, base, found)
    except (sqlite3.Error, psycopg.Error) as error:
        verdict.find("rules broken", [f"it cannot be read: {error}"])
    return verdict, found


def _locks_left(after: Client, name: str) -> Iterator[str]:
    """A new writer gets on."""
    wanted = requests.acquire(f"{name}-after", f"{name}-after/stream")
    taken = after.ask("acquire_lease", wanted, f"{name}/after")
    if taken.kind != "done":
        yield f"a new actor could not have a lease: {taken.value}"
        return
    request = requests.commit(taken.value, f"{name}/after", 0, random.Random(name))
    done = after.ask("commit", request)
    if done.kind != "done":
        yield f"a new actor could not commit: {done.value}"


def _wrong_repetitions(after: Client, book: Book, found: Evidence, name: str) -> Iterator[str]:
    """Whatever has a key is asked again: what is stored is recovered, the rest done now or refused."""
    keyed = [ask for ask in book.asks if ask.key is not None and ask.worker != "after"]
    acknowledged = [ask for ask in keyed if ask.is_done]
    chosen = random.Random(name).sample(acknowledged, min(_REPEATED, len(acknowledged)))
    for ask in [ask for ask in keyed if ask.is_open] + chosen:
        first = after.ask(ask.operation, ask.request, ask.request_id)
        again = after.ask(ask.operation, ask.request, ask.request_id)
        key, recorded = ask.key or "", _recorded(ask, found)
        for answer in (first, again) if recorded is not None else ():
            told = answer.value
            if ask.operation == "commit" and answer.kind == "done":
                told = answer.value | {"recovered": not answer.value["recovered"]}
            if answer.kind != "done" or stored(told) != recorded:
                yield f"{key} is recorded as {recorded}, and was answered {answer}"
        if recorded is None and first.kind not in {"done", "refused"}:
            yield f"{key} was answered {first}"
        if first.kind == "done" != again.kind:
            yield f"{key} was done, and then answered {again}"


def _recorded(ask: Ask, found: Evidence) -> str | None:
    recorded = found.inbox if ask.operation == "commit" else found.receipts
    return recorded.get(ask.key or "")
