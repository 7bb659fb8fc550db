"""Delivering the outbox: to the screen, as other programs would to theirs."""

from __future__ import annotations

from collections.abc import Callable

from broker import Broker
from broker.cli.demo.claims import Checks, Claim
from broker.cli.demo.legacy import Legacy
from broker.cli.demo.scenario import Run
from broker.messages import StoredOutboxMessage

PAGE = 64

Screen = Callable[[StoredOutboxMessage], None]


def deliver(broker: Broker, checks: Checks, screen: Screen) -> list[StoredOutboxMessage]:
    """Show every message that is due and mark it, until there is none; what was delivered."""
    delivered: list[StoredOutboxMessage] = []
    seen: set[str] = set()
    while page := broker.list_pending_outbox({"limit": PAGE}):
        for message in page:
            mark = {"outboxId": message.outbox_id}
            first = (message.outbox_id not in seen, broker.mark_outbox_delivered(mark))
            checks.equal(Claim.DELIVERY, message.outbox_id, (True, True), first)
            if message.outbox_id in seen:
                return delivered  # it would come again and again
            seen.add(message.outbox_id)
            screen(message)
            delivered.append(message)
            again = broker.mark_outbox_delivered(mark)
            checks.equal(Claim.DELIVERY, f"{message.outbox_id}, marked again", False, again)
    return delivered


def check_delivered(
    delivered: list[StoredOutboxMessage], old: Legacy, runs: list[Run], checks: Checks
) -> None:
    """Nothing was left out or made up, and the oldest came first."""
    claimed = [*old.pending, *(outbox_id for run in runs for outbox_id in run.outbox)]
    found = [message.outbox_id for message in delivered]
    checks.equal(Claim.DELIVERY, "all messages", sorted(claimed), sorted(found))
    ordered = sorted(delivered, key=lambda message: (message.created_at, message.outbox_id))
    in_order = [message.outbox_id for message in ordered]
    checks.equal(Claim.DELIVERY, "their order", in_order, found)
