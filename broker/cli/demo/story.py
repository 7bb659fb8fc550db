"""The demo's story, from a database of version 1 to the last check."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from broker import Broker, Options
from broker.cli.demo import legacy
from broker.cli.demo.claims import Checks, Claim
from broker.cli.demo.delivery import check_delivered, deliver
from broker.cli.demo.legacy import Legacy
from broker.cli.demo.migration import migrate
from broker.cli.demo.report import Display, Figures
from broker.cli.demo.scenario import Plan, Run, plan_runs
from broker.cli.demo.verify import check_file, check_store
from broker.cli.demo.window import SHORT_MS
from broker.cli.demo.windows import MovableClock, Windows
from broker.errors import BrokerError
from broker.messages import CommitResult


def tell(path: Path, plan: Plan, display: Display) -> tuple[Figures, Checks]:
    """Tell the story on a database of version 1 at `path`, and check everything it claims.

    An error of the store where there should be none ends the story, and is a claim that failed.
    """
    figures, checks = Figures(plan.windows, plan.runs), Checks()
    started = time.monotonic()
    try:
        _tell(path, plan, display, figures, checks)
    except BrokerError as error:
        checks.unexpected("the demo as a whole", error)
    figures.seconds = time.monotonic() - started
    return figures, checks


def _tell(path: Path, plan: Plan, display: Display, figures: Figures, checks: Checks) -> None:
    old = legacy.look(path)
    display.say("A database of version 1, migrated step by step")
    for step in migrate(path, old, checks):
        figures.steps.append(step)
        display.step(step)

    url, options = legacy.sqlite_url(path), Options(wall_clock=(clock := MovableClock()))
    runs = plan_runs(plan, old)
    with Broker.open(url, options=options) as broker:
        _retry_old_commits(broker, old, checks)
        _run(broker, plan, runs, clock, display, checks)
        _deliver(broker, old, runs, display, figures, checks)
    with Broker.open(url, migrate=False, options=options) as broker:
        display.say("Closed, opened again, and everything read back")
        check_store(broker, old, runs, checks)
    check_file(path, old, runs, checks)

    figures.commits = sum(len(run.commits) for run in runs)
    figures.events = sum(len(run.events) for run in runs)
    figures.takeovers = checks.counts[Claim.TAKEOVER]


def _retry_old_commits(broker: Broker, old: Legacy, checks: Checks) -> None:
    for request, result in old.commits:
        expected = replace(CommitResult.from_json(result), recovered=True)
        checks.equal(Claim.OLD_RETRY, expected.message_id, expected, broker.commit(request))


def _run(
    broker: Broker,
    plan: Plan,
    runs: list[Run],
    clock: MovableClock,
    display: Display,
    checks: Checks,
) -> None:
    display.say(f"{plan.windows} windows race for {plan.runs} runs, and work on those they got")
    with display.progress("racing", 2 * plan.runs) as tick:
        got = Windows(plan, broker, checks, tick).race(runs)
    with display.progress("working", plan.runs) as tick:
        Windows(plan, broker, checks, tick).work(got)

    abandoned = sum(run.is_abandoned for run in runs)
    display.say(
        f"{abandoned} runs were left lying; the clock is moved {SHORT_MS // 1000} s ahead, instead of"
        " waiting for their leases to expire, and other windows take them over"
    )
    clock.move(SHORT_MS)
    with display.progress("taking over", abandoned) as tick:
        Windows(plan, broker, checks, tick).rescue(got)


def _deliver(
    broker: Broker,
    old: Legacy,
    runs: list[Run],
    display: Display,
    figures: Figures,
    checks: Checks,
) -> None:
    display.say("The outbox is delivered to the screen")
    expected = len(old.pending) + sum(len(run.outbox) for run in runs)
    with display.progress("delivering", expected) as tick:
        delivered = deliver(broker, checks, lambda _: tick())
    display.delivered(delivered)
    check_delivered(delivered, old, runs, checks)
    figures.delivered = Counter(message.destination for message in delivered)
