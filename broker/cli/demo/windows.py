"""The windows together: threads at one `Broker`, and the clock that they live by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from broker import Broker
from broker.cli.demo.claims import Checks, Claim
from broker.cli.demo.scenario import Plan, Run
from broker.cli.demo.window import Window
from broker.clock import wall_clock
from broker.errors import BrokerError
from broker.messages import Lease

Tick = Callable[[], None]


class MovableClock:
    """The system's clock, which the demo moves ahead where a real one would have to wait."""

    def __init__(self) -> None:
        self._ahead = 0

    def __call__(self) -> int:
        return wall_clock() + self._ahead

    def move(self, milliseconds: int) -> None:
        """Set the clock ahead."""
        self._ahead += milliseconds


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows, side by side; `tick` is called for each run that one of them is done with."""

    plan: Plan
    broker: Broker
    checks: Checks
    tick: Tick

    def race(self, runs: list[Run]) -> dict[int, list[Run]]:
        """Let two windows want each run at once, and say which window got which."""
        with self._pool() as pool:
            attempts = [
                (run, number, pool.submit(self._attempt, self._window(number), run))
                for run in runs
                for number in (run.number, run.number + 1)
            ]
        got: dict[int, list[Run]] = {}
        winners = Counter[str]()
        for run, number, attempt in attempts:
            if (lease := attempt.result()) is not None:
                self.checks.equal(Claim.EPOCHS, run.actor_id, run.epoch + 1, lease.epoch)
                run.lease, run.epoch = lease, run.epoch + 1
                run.receipts.append(f"{run.stream_id}/{lease.holder_id}")
                got.setdefault(number % self.plan.windows, []).append(run)
                winners[run.stream_id] += 1
        for run in runs:
            self.checks.equal(Claim.RACE, run.actor_id, 1, winners[run.stream_id])
        return got

    def work(self, got: dict[int, list[Run]]) -> None:
        """Let every window work on its runs, one after another."""
        with self._pool() as pool:
            list(pool.map(self._each, [self._window(number).work for number in got], got.values()))

    def rescue(self, got: dict[int, list[Run]]) -> None:
        """Let every window take over the runs that the one before it has abandoned."""
        abandoned = {
            number + 1: [run for run in runs if run.is_abandoned] for number, runs in got.items()
        }
        rescues = [self._window(number).rescue for number in abandoned]
        with self._pool() as pool:
            list(pool.map(self._each, rescues, abandoned.values()))

    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.plan.windows, thread_name_prefix="window")

    def _window(self, number: int) -> Window:
        return Window(number % self.plan.windows, self.plan, self.broker, self.checks)

    def _attempt(self, window: Window, run: Run) -> Lease | None:
        try:
            return window.want(run)
        except BrokerError as error:
            self.checks.unexpected(run.actor_id, error)
            return None
        finally:
            self.tick()

    def _each(self, act: Callable[[Run], None], runs: list[Run]) -> None:
        for run in runs:
            try:
                act(run)
            except BrokerError as error:
                self.checks.unexpected(run.actor_id, error)
            else:
                self.checks.holds(Claim.NO_ERROR, run.actor_id, truth=True)
            self.tick()
