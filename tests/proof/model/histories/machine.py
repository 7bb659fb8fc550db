"""The state machine that makes histories, and shrinks those that tell the stores apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, assume, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from tests.places import Place
from tests.proof.model.histories.doors import AsyncProcess, Process
from tests.proof.model.histories.draws import REQUEST_IDS, Dice, Draws
from tests.proof.model.histories.faulty import spoilt
from tests.proof.model.histories.world import GRANTING, Asked, Difference, World
from tests.proof.model.plain.store import MUTATIONS, Limits
from tests.proof.model.protocol.traces import first_impossible
from tests.proof.task import Task

STEPS = 50
WALLS = (1_000, 1_000, 1_007, 500, 40_000)
CAPACITIES = (4_096, 4_096, 1, 2, 3)
PAGES = (1_044_480, 620, 620, 1_400)
READS = (
    "get_lease",
    "get_stream_revision",
    "read_events",
    "walk_events",
    "read_authorized_events",
    "read_authorized_events_page",
    "list_streams",
    "read_journal",
    "walk_journal",
    "read_model_events",
    "walk_read_model_events",
    "read_model_sources",
    "read_projection",
    "list_pending_outbox",
)
OPERATIONS = (*MUTATIONS, "commit", *READS, "mark_outbox_delivered")

SHARING = (
    "commit",
    "commit",
    "commit",
    "heartbeat_lease",
    "release_lease",
    "mark_outbox_delivered",
)
BAD_REQUEST_IDS = ("", "x" * 257, "é" * 128, "\0", "\1", 5)

some_data = st.data()


class Histories(RuleBasedStateMachine):
    """Steps of three processes on one database; each is done by both stores and compared."""

    def __init__(self, task: Task, counts: Counter[str], kept: list[World]) -> None:
        super().__init__()
        self._task, self._counts, self._kept = task, counts, kept
        self._stack = ExitStack()
        self._is_whole = False
        self._world: World
        self._draws: Draws

    @initialize(data=some_data, is_chosen=st.integers(0, 2**20))
    def begin(self, data: st.DataObject, is_chosen: int) -> None:
        assume(is_chosen)  # Hypothesis begins with the simplest of all, which is not random
        dice = Dice(data)
        walls = [dice.pick(WALLS) for _ in range(3)]
        limits = Limits(dice.pick(CAPACITIES), dice.pick(PAGES), dice.pick(PAGES))
        place: AbstractContextManager[Place] = self._task.place()
        self._world = World.begin(self._stack.enter_context(place), self._counts, walls, limits)
        self._stack.callback(self._world.end)
        self._kept.append(self._world)
        self._draws = Draws(self._world.database)
        for operation in ("acquire_lease", "acquire_lease"):
            self._drawn(dice, self._process(dice), operation)
        self._is_whole = True

    def teardown(self) -> None:
        try:
            if self._is_whole:
                self._world.compare_tables()
                self._follow_protocol()
        finally:
            self._stack.close()

    def _follow_protocol(self) -> None:
        """Whether the protocol can do what was answered; it never forgets a receipt."""
        past = self._world.past
        if self._world.limits.receipt_capacity < len(past):
            return
        place = first_impossible(past)
        if place is not None:
            raise Difference(f"the protocol cannot do step {place}: {past[place]}")
        self._counts["traces accepted by the protocol"] += 1

    def _process(self, dice: Dice) -> Process:
        return dice.pick(self._world.processes)

    def _drawn(
        self, dice: Dice, process: Process, operation: str, unit: Any = None, *, bad: bool = False
    ) -> None:
        request: Any = self._draws.request(operation, dice)
        request_id: Any = self._draws.request_id(dice) if operation in MUTATIONS else None
        if bad:
            request = spoilt(request, dice)
            if request_id is not None and dice.one_in(3):
                request_id = dice.pick(BAD_REQUEST_IDS)
        is_message = not bad and dice.one_in(5)
        self._ask(process, operation, request, request_id, unit, is_message=is_message)

    def _ask(
        self,
        process: Process,
        operation: str,
        request: Any,
        request_id: Any,
        unit: Any = None,
        *,
        is_message: bool = False,
    ) -> None:
        with self._whole_afterwards():
            answer = self._world.ask(
                process, operation, request, request_id, unit, is_message=is_message
            )
        if operation in GRANTING and "result" in answer:
            self._draws.granted.append(answer["result"])

    @contextmanager
    def _whole_afterwards(self) -> Iterator[None]:
        """The tables are compared at last, unless something was different before."""
        was_whole, self._is_whole = self._is_whole, False
        yield
        self._is_whole = was_whole

    # -------------------------------------------------------------------------------------- steps

    @rule(data=some_data)
    def commit(self, data: st.DataObject) -> None:
        dice = Dice(data)
        process = self._process(dice)
        if not self._draws.live:
            self._drawn(dice, process, "acquire_lease")
        self._drawn(dice, process, "commit")

    @rule(data=some_data)
    def commit_and_read(self, data: st.DataObject) -> None:
        self.commit(data)
        self.read(data)

    @rule(data=some_data)
    def acquire(self, data: st.DataObject) -> None:
        dice = Dice(data)
        self._drawn(dice, self._process(dice), "acquire_lease")

    @rule(data=some_data)
    def use_a_lease(self, data: st.DataObject) -> None:
        dice = Dice(data)
        self._drawn(dice, self._process(dice), dice.pick(tuple(MUTATIONS)))

    @rule(data=some_data)
    def read(self, data: st.DataObject) -> None:
        dice = Dice(data)
        self._drawn(dice, self._process(dice), dice.pick(READS))

    @rule(data=some_data)
    def deliver(self, data: st.DataObject) -> None:
        dice = Dice(data)
        self._drawn(dice, self._process(dice), "mark_outbox_delivered")

    @rule(data=some_data)
    def err(self, data: st.DataObject) -> None:
        dice = Dice(data)
        self._drawn(dice, self._process(dice), dice.pick(OPERATIONS), bad=True)

    @rule(data=some_data)
    def repeat(self, data: st.DataObject) -> None:
        """What was asked before is asked again; now and then under an id of another's."""
        dice = Dice(data)
        keyed = [each for each in self._world.past if _is_keyed(each)]
        if not keyed:
            return
        before = dice.pick(keyed[::-1])
        request, request_id = before.request, before.request_id
        if dice.one_in(4):
            request = spoilt(request, dice)
        if before.request_id is not None and dice.one_in(4):
            request_id = dice.pick(REQUEST_IDS)
        self._counts["repetitions"] += 1
        self._ask(self._process(dice), before.operation, request, request_id)

    @rule(data=some_data)
    def work_in_a_unit(self, data: st.DataObject) -> None:
        dice = Dice(data)
        process = self._process(dice)
        with (
            self._whole_afterwards(),
            self._world.unit(process, is_kept=not dice.one_in(3)) as unit,
        ):
            for _ in range(1 + dice.number(3)):
                if dice.one_in(4):
                    with self._world.savepoint(unit, is_kept=not dice.one_in(2)):
                        self._some_work(dice, process, unit)
                else:
                    self._some_work(dice, process, unit)

    def _some_work(self, dice: Dice, process: Process, unit: Any) -> None:
        for _ in range(1 + dice.number(2)):
            self._drawn(dice, process, dice.pick((*OPERATIONS, "commit", "commit")), unit)
        if dice.one_in(3):
            self._world.pass_time(dice.pick((1, 30)))

    @rule(data=some_data)
    def write_together(self, data: st.DataObject) -> None:
        """Of writes that draw no nonce, for a shared transaction that is done again draws another."""
        dice = Dice(data)
        process = self._world.processes[-1]
        if self._task.backend == "postgresql" or not isinstance(process, AsyncProcess):
            return  # there they run side by side, in no order
        chosen = [dice.pick(SHARING) for _ in range(2 + dice.number(4))]
        asks = [(operation, self._draws.request(operation, dice)) for operation in chosen]
        with self._whole_afterwards():
            self._world.ask_together(process, asks)

    @rule(ms=st.sampled_from((1, 5, 20, 101, 2_500)))
    def pass_time(self, ms: int) -> None:
        self._world.pass_time(ms)

    @rule(data=some_data)
    def set_a_clock(self, data: st.DataObject) -> None:
        dice = Dice(data)
        by_ms = dice.pick((30, -20, 3_000, -5_000))
        self._world.set_clock(self._process(dice), by_ms)

    @rule(data=some_data)
    def restart(self, data: st.DataObject) -> None:
        dice = Dice(data)
        self._world.restart(self._process(dice), is_crash=dice.one_in(2))


def _is_keyed(asked: Asked) -> bool:
    return asked.operation == "commit" or asked.request_id is not None


def difference(task: Task, number: int, counts: Counter[str], *, shrink: bool = True) -> str | None:
    """What tells the stores apart in the history that a seed gives, with its steps; None if nothing.

    Those are the fewest and simplest that Hypothesis finds, if it may `shrink` them.
    """
    world, error = made(task, number, counts, shrink=shrink)
    if error is None:
        return None
    name = "" if isinstance(error, Difference) else f"{type(error).__name__}: "
    steps = [] if world is None else world.steps
    return "\n    ".join([f"{name}{error}", *steps])


def made(
    task: Task, number: int, counts: Counter[str], *, shrink: bool = True
) -> tuple[World | None, Exception | None]:
    """The last history that was made of a seed, and what was raised in it."""
    worlds: list[World] = []

    @seed(number)
    class Made(Histories):
        def __init__(self) -> None:
            super().__init__(task, counts, worlds)

    phases = [Phase.generate, *([Phase.shrink] if shrink else [])]
    chosen = settings(
        max_examples=1,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    error = None
    try:
        run_state_machine_as_test(Made, settings=chosen)
    except Exception as raised:  # whatever it is, the store should not have raised it
        error = raised
    return (worlds[-1] if worlds else None), error
