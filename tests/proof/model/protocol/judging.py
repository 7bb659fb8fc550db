"""What must never happen, judged from outside of the protocol: by what was, what is, what was said."""

from __future__ import annotations

from typing import NamedTuple

from tests.proof.model.protocol.rules import Answer, Lease, Request, Stored


class Memory(NamedTuple):
    """What a judge remembers: the highest epoch of each stream, keys that had effect, what was told."""

    highest: frozenset[tuple[str, int]] = frozenset()
    effective: frozenset[str] = frozenset()
    told: frozenset[tuple[str, Answer]] = frozenset()


def judge(
    memory: Memory,
    before: Stored,
    after: Stored,
    request: Request,
    answer: Answer | None,
    *,
    is_told: bool,
) -> tuple[Memory, str]:
    """What to remember after a step, and what was wrong about it ("" if nothing)."""
    wrong = ""
    if after != before:
        memory, wrong = _judge_change(memory, before, after, request)
    if answer is not None:
        wrong = wrong or _wrong_answer(memory, request, answer)
        if is_told and request.key and not answer.is_refusal:
            memory = memory._replace(told=memory.told | {(request.key, answer)})
    return memory, wrong


def _judge_change(
    memory: Memory, before: Stored, after: Stored, request: Request
) -> tuple[Memory, str]:
    wrong = _wrong_leases(after)
    granted = _granted(before, after)
    if granted is not None:
        wrong = _wrong_grant(memory, before, granted, request) or wrong
        highest = dict(memory.highest) | {granted.stream: granted.epoch}
        memory = memory._replace(highest=frozenset(highest.items()))
    if after.writes != before.writes:
        wrong = wrong or _wrong_write(before, after, request)
    if request.key:
        memory = memory._replace(effective=memory.effective | {request.key})
    return memory, wrong


def _granted(before: Stored, after: Stored) -> Lease | None:
    known = {lease.nonce for lease in before.leases}
    new = [lease for lease in after.leases if lease.nonce not in known]
    return new[0] if new else None


def _wrong_grant(memory: Memory, before: Stored, granted: Lease, request: Request) -> str:
    for lease in before.leases:
        if lease.is_live and lease.stream == granted.stream and request.kind != "swap":
            return "a lease was granted while another on the stream was live"
        if lease.is_live and lease.actor == granted.actor and lease.stream != granted.stream:
            return "a lease was granted while its actor held another live one"
    if granted.epoch <= dict(memory.highest).get(granted.stream, 0):
        return "an epoch went back"
    return ""


def _wrong_write(before: Stored, after: Stored, request: Request) -> str:
    if after.writes[: len(before.writes)] != before.writes:
        return "a commit was lost"
    lease = before.lease_on(request.stream)
    holder = (request.actor, request.epoch, request.nonce, True)
    if lease is None or (lease.actor, lease.epoch, lease.nonce, lease.is_live) != holder:
        return "somebody wrote who did not hold the lease at that moment"
    messages = [written.message for written in after.writes]
    return "a commit took effect twice" if len(set(messages)) < len(messages) else ""


def _wrong_leases(stored: Stored) -> str:
    live = [lease for lease in stored.leases if lease.is_live]
    for one in ("stream", "actor"):
        if len({getattr(lease, one) for lease in live}) < len(live):
            return f"one {one} has two live leases"
    return ""


def _wrong_answer(memory: Memory, request: Request, answer: Answer) -> str:
    if answer.is_refusal:
        is_known = request.key in memory.effective
        return "a refusal was told of what took effect" if is_known else ""
    told = {each for key, each in memory.told if key == request.key}
    return "a repetition was told something else" if told - {answer} else ""
