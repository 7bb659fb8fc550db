"""The verdict on a run: what its workers were told against what the store holds."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.proof.kill.evidence import Evidence, stored
from tests.proof.kill.ledger import Ask, Book, Kind

_GRANTS = {"acquire_lease", "takeover_lease", "compare_and_swap_lease"}


@dataclass
class Verdict:
    """What was seen, and what of it must not be: `faults` by the count that each adds to."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[str, str]] = field(default_factory=list)

    def find(self, kind: str, faults: Iterable[str]) -> None:
        """Note faults of a kind."""
        self.faults += [(kind, fault) for fault in faults]


def judge(verdict: Verdict, book: Book, base: Evidence, found: Evidence) -> None:
    """Whether a store that held `base` before holds what the asks in the book may have left."""
    commits = _commits(book)
    verdict.find("lost", _lost(commits, base, found))
    verdict.find("lost", _lost_mutations(book, found))
    verdict.find("lost", _wrong_projections(commits, base, found))
    verdict.find("doubled", _doubled(commits, base, found))
    verdict.find("doubled", _doubled_deliveries(book, base, found))
    verdict.find("half done", _half_done(commits, found))
    verdict.find("half done", _half_units(book, found))
    verdict.find("stale writes", _stale(book, commits, found))
    verdict.find("stale writes", _too_late(book, commits, found))
    verdict.find("epochs gone back", _epochs_gone_back(book, found))
    verdict.find("wrong answers", _wrong_answers(book, commits, found))
    verdict.counts["acknowledged"] = sum(ask.is_done for ask in book.asks if _changes(ask))
    for ask in book.asks:
        if ask.answer is not None and ask.answer.kind in _TOLD:
            verdict.counts[_TOLD[ask.answer.kind]] += 1
        if ask.is_open and _changes(ask) and not _is_answered(book, ask):
            verdict.counts[_UNACKNOWLEDGED[_is_stored(ask, found)]] += 1


_TOLD: dict[Kind, str] = {"undone": "told to try again", "unknown": "outcomes unknown"}


_UNACKNOWLEDGED = {
    True: "unacknowledged and stored",
    False: "unacknowledged and not stored",
    None: "unacknowledged without a key",
}


def _changes(ask: Ask) -> bool:
    return ask.operation != "get_stream_revision"


def _is_stored(ask: Ask, found: Evidence) -> bool | None:
    if ask.operation == "commit":
        return ask.key in found.inbox
    return None if ask.key is None else ask.key in found.receipts


def _is_answered(book: Book, ask: Ask) -> bool:
    """Whether it was asked again under the same id, and answered."""
    if ask.key is None:
        return False
    same = (other for other in book.asks if other.key == ask.key)
    return any(not other.is_open and other.at >= ask.at for other in same)


def _commits(book: Book) -> dict[str, list[Ask]]:
    """Asks by message, in their order."""
    grouped: dict[str, list[Ask]] = defaultdict(list)
    for ask in sorted(book.asks, key=lambda ask: ask.at):
        if ask.operation == "commit":
            grouped[ask.request["messageId"]].append(ask)
    return grouped


# ----------------------------------------------------------------------------------------- commits


def _lost(commits: dict[str, list[Ask]], base: Evidence, found: Evidence) -> Iterator[str]:
    for message, result in base.inbox.items():
        if found.inbox.get(message) != result:
            yield f"{message} was there before, and is {found.inbox.get(message)}"
    for message, asks in commits.items():
        for ask in asks:
            if ask.is_done:
                told = stored(_value(ask) | {"recovered": False})
                if found.inbox.get(message) != told:
                    yield f"{message} was told {told}, and is {found.inbox.get(message)}"


def _doubled(commits: dict[str, list[Ask]], base: Evidence, found: Evidence) -> Iterator[str]:
    for message in found.inbox.keys() - commits.keys() - base.inbox.keys():
        yield f"{message} is stored, and nobody asked for it"
    for message in (found.events.keys() | found.outbox.keys()) - found.inbox.keys():
        yield f"{message} left rows, and is not in the inbox"
    for message, asks in commits.items():
        fresh = [ask for ask in asks if ask.is_done and not _value(ask)["recovered"]]
        if len(fresh) > 1:
            yield f"{message} took effect {len(fresh)} times"
        refused = all(ask.answer is not None and ask.answer.kind != "unknown" for ask in asks)
        if refused and message in found.inbox and not any(ask.is_done for ask in asks):
            yield f"{message} was refused, and is stored"


def _half_done(commits: dict[str, list[Ask]], found: Evidence) -> Iterator[str]:
    for asks in commits.values():
        yield from found.differences(asks[0].request)


def _half_units(book: Book, found: Evidence) -> Iterator[str]:
    """Transactions of a session's of which a part is stored, before any of it is asked for again."""
    again = {ask.key for ask in book.asks if ask.unit is None}
    units: dict[str, set[bool | None]] = defaultdict(set)
    for ask in book.asks:
        if ask.unit is not None and ask.key not in again:
            units[ask.unit].add(_is_stored(ask, found))
    for unit, states in units.items():
        if len(states) != 1:
            yield f"of {unit}, one transaction, a part is stored"


def _wrong_projections(
    commits: dict[str, list[Ask]], base: Evidence, found: Evidence
) -> Iterator[str]:
    wanted = dict(base.projections)
    for message, asks in commits.items():
        if message not in found.inbox:
            continue
        result = json.loads(found.inbox[message])
        for each in asks[0].request.get("projections", ()):
            key, value = each["projectionId"], (result["revision"], stored(each["value"]))
            before = wanted.get(key)
            # A commit without events leaves the revision where it was: either may be the later.
            if before is None or before[0] < value[0] or found.projections.get(key) == value:
                wanted[key] = value
    for key in wanted.keys() | found.projections.keys():
        if wanted.get(key) != found.projections.get(key):
            yield f"projection {key} is {found.projections.get(key)}, not {wanted.get(key)}"


def _wrong_answers(book: Book, commits: dict[str, list[Ask]], found: Evidence) -> Iterator[str]:
    for ask in book.asks:
        if ask.answer is not None and ask.answer.kind == "unexpected":
            yield f"{ask.operation} raised {ask.answer.value}"
    for message, asks in commits.items():
        done_at = min((ask.answer.at for ask in asks if ask.is_done and ask.answer), default=None)
        for ask in asks:
            if done_at is not None and ask.at > done_at and not _recovers(ask):
                yield f"{message} was repeated, and got {ask.answer}"


def _recovers(ask: Ask) -> bool:
    if ask.answer is None or ask.answer.kind in {"undone", "unknown"}:
        return True  # it was not told otherwise
    return ask.answer.kind == "done" and _value(ask)["recovered"] is True


# -------------------------------------------------------------------------- mutations, deliveries


def _lost_mutations(book: Book, found: Evidence) -> Iterator[str]:
    for ask in book.asks:
        if ask.is_done and ask.request_id is not None:
            told = stored(_value(ask))
            if found.receipts.get(ask.request_id) != told:
                yield f"{ask.request_id} was told {told}: {found.receipts.get(ask.request_id)}"


def _doubled_deliveries(book: Book, base: Evidence, found: Evidence) -> Iterator[str]:
    yes: Counter[str] = Counter()
    perhaps = set()
    for ask in book.asks:
        if ask.operation == "mark_outbox_delivered":
            outbox_id = ask.request["outboxId"]
            yes[outbox_id] += ask.is_done and _value(ask) is True
            perhaps |= {outbox_id} if ask.is_open else set()
    for outbox_id, attempts in found.deliveries.items():
        told, made = yes[outbox_id], attempts - base.deliveries.get(outbox_id, 0)
        if told > 1 or not told <= made <= max(told, outbox_id in perhaps):
            yield f"{outbox_id} was marked {told} times, and attempted {made} times"


class _Grant(NamedTuple):
    """A lease that was granted: when that was first asked for, and when it was acknowledged."""

    lease: dict[str, Any]
    asked_at: int
    at: int

    @property
    def epoch(self) -> int:
        return int(self.lease["epoch"])


def _grants(book: Book) -> dict[str, list[_Grant]]:
    """Leases that were granted, by stream."""
    grants: dict[str, list[_Grant]] = defaultdict(list)
    first_asked: dict[str | None, int] = {}
    for ask in sorted(book.asks, key=lambda ask: ask.at):
        if ask.operation in _GRANTS:
            asked_at = first_asked.setdefault(ask.key, ask.at)
            if ask.is_done and ask.answer is not None:
                lease = ask.answer.value
                grants[lease["streamId"]].append(_Grant(lease, asked_at, ask.answer.at))
    return grants


def _epochs_gone_back(book: Book, found: Evidence) -> Iterator[str]:
    for stream, grants in _grants(book).items():
        nonces: dict[int, str] = {}
        for grant in grants:
            if nonces.setdefault(grant.epoch, grant.lease["nonce"]) != grant.lease["nonce"]:
                yield f"epoch {grant.epoch} of {stream} was granted twice"
        yield from _fallen(stream, grants)
        highest = max(grant.epoch for grant in grants)
        if found.leases.get(stream, 0) < highest:
            yield f"{stream} is at epoch {found.leases.get(stream)}, and granted {highest}"


def _fallen(stream: str, grants: list[_Grant]) -> Iterator[str]:
    """A grant that was first asked for after one with an epoch as high was acknowledged."""
    waiting = sorted(grants, key=lambda grant: grant.at, reverse=True)
    highest = 0
    for grant in sorted(grants, key=lambda grant: grant.asked_at):
        while waiting and waiting[-1].at < grant.asked_at:
            highest = max(highest, waiting.pop().epoch)
        if grant.epoch <= highest:
            yield f"{stream} granted epoch {grant.epoch} after {highest}"


def _stale(book: Book, commits: dict[str, list[Ask]], found: Evidence) -> Iterator[str]:
    """Commits that took effect although their lease was over before they were asked for."""
    grants = _grants(book)
    over = _ends(book)
    for message, asks in commits.items():
        if message not in found.inbox:
            continue
        first = asks[0]
        stream, epoch = first.request["streamId"], first.request["lease"]["epoch"]
        newer = [each for each in grants[stream] if each.epoch > epoch]
        if (
            any(each.at < first.at for each in newer)
            or over.get((stream, epoch), first.at) < first.at
        ):
            yield f"{message} was written to {stream} under epoch {epoch}, which was over"
        elif any(each.lease["acquiredAt"] < found.applied_at[message] for each in newer):
            yield f"{message} was written under epoch {epoch} after a newer lease began"


def _too_late(book: Book, commits: dict[str, list[Ask]], found: Evidence) -> Iterator[str]:
    """Commits at a time at which their lease had expired, as far as its end is known."""
    ends: dict[tuple[str, int], int] = defaultdict(int)
    unknown = set()
    for ask in book.asks:
        if ask.operation in _GRANTS | {"heartbeat_lease"} and ask.is_done:
            lease = _value(ask)
            key = lease["streamId"], lease["epoch"]
            ends[key] = max(ends[key], lease["expiresAt"])
        elif ask.operation == "heartbeat_lease" and ask.is_open:
            unknown.add((ask.request["actorId"], ask.request["lease"]["epoch"]))
    for message, asks in commits.items():
        request, at = asks[0].request, found.applied_at.get(message)
        epoch = request["lease"]["epoch"]
        end = ends.get((request["streamId"], epoch))
        if at is None or end is None or (request["actorId"], epoch) in unknown:
            continue
        if at >= end:
            yield f"{message} was written at {at}, and its lease had ended at {end}"


def _ends(book: Book) -> dict[tuple[str, int], int]:
    """When the release of a lease was acknowledged, by stream and epoch."""
    streams = {
        (each.lease["actorId"], each.epoch, each.lease["nonce"]): stream
        for stream, grants in _grants(book).items()
        for each in grants
    }
    ends = {}
    for ask in book.asks:
        if ask.operation == "release_lease" and ask.is_done and ask.answer is not None:
            lease = ask.request["lease"]
            stream = streams.get((ask.request["actorId"], lease["epoch"], lease["nonce"]))
            if stream is not None:
                ends[stream, lease["epoch"]] = ask.answer.at
    return ends


def _value(ask: Ask) -> Any:
    assert ask.answer is not None
    return ask.answer.value
