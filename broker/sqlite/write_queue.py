"""Who writes when: requests that wait for one another share the next transaction.

SQLite lets one writer in, and every COMMIT waits for the disk. So whoever comes while a transaction
runs waits in a queue, and whoever is at its front when that ends leads the next one, on its own
thread and for all who wait by then. A lone caller meets nobody and hands nothing over.

After LevelDB's `DBImpl::Write`: leader and followers, leadership handed on by the front of the
queue, and a light leader that is not kept by heavy followers.

An interrupt may come between any two steps, even of the code that handles another error. So who
waits stands in the queue until it stands in a group, and what ends a turn can be done twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

from broker.clock import LogicalClock
from broker.errors import DatabaseBusy, StoreClosed
from broker.options import Options
from broker.sqlite.pending import Pending
from broker.sqlite.writer import Writer
from broker.transaction import Write

T = TypeVar("T")

MOST_IN_A_GROUP = 64
HEAVIEST_GROUP = 1_024 * 1_024
MOST_BEYOND_A_LIGHT_LEADER = 128 * 1_024


class WriteQueue:
    """Lets the writes of any number of threads share the transactions of a `Writer`.

    They run in the order in which they came. Each waits for those before it, and for those who come
    along in its group, which are few and for a light leader light.
    """

    def __init__(self, writer: Writer, options: Options, clock: LogicalClock) -> None:
        self._writer = writer
        self._capacity = options.queue_capacity
        self._patience = options.busy_timeout_ms / 1_000
        self._is_closed = False
        self.start_afresh(clock)

    def start_afresh(self, clock: LogicalClock) -> None:
        """Begin with nobody in it; also in the child of a fork, for who waited is not there."""
        self._writer.forget()
        self._clock = clock
        self._waiting: deque[Pending[Any]] = deque()  # not started; the leader in front, until then
        self._leader: Pending[Any] | None = None
        self._state = threading.Lock()
        self._nobody_leads = threading.Condition(self._state)
        self._is_paused = False

    def run(self, make: Callable[[], Write[T]]) -> T:
        """Do the write that `make` gives and commit it, with others; its own result or error.

        `make` is called on this thread, or on that of the leader for whom it waits.

        Raises DatabaseBusy for a full queue, and when other threads or processes do not let it
        start within the busy timeout; StoreClosed once the store is closed. Nothing was stored
        then. One that is interrupted while it waits was not done either, unless it was started:
        then its repetition by message id or request id gets the recorded result.
        """
        pending = Pending(make, self.deadline())
        if not self._is_led and not pending.prepare():
            return pending.outcome()
        try:
            if self.enter(pending) or self._wait(pending):
                self.lead(pending)
        except BaseException:
            self.abandon(pending)
            raise
        return pending.outcome()

    def deadline(self) -> float:
        """Until when a write that comes now may wait to be started."""
        return monotonic() + self._patience

    def enter(self, pending: Pending[Any]) -> bool:
        """Put a write into the queue; whether it is now to be led. Raises as `run`."""
        with self._state:
            if self._is_closed:
                raise _closed()
            self.require_room()
            is_to_wait = self._is_led or self._is_paused
            if is_to_wait:
                pending.expect_to_wait()
            self._waiting.append(pending)
            if not is_to_wait:
                self._leader = pending
            return not is_to_wait

    def require_room(self, *, beside: int = 0) -> None:
        """Raise DatabaseBusy if one more is too many, `beside` so many that wait elsewhere."""
        waiting = len(self._waiting) + beside
        if waiting >= self._capacity:
            raise DatabaseBusy(
                f"{waiting} writes wait already, which is the queue_capacity;"
                " nothing was stored, try again"
            )

    def abandon(self, pending: Pending[Any]) -> None:
        """Forget a write that nobody waits for any more, unless it was started."""
        with self._state:
            pending.is_abandoned = True
            self._withdraw(pending)
        self._leave(pending, [])

    def lead(self, pending: Pending[Any]) -> None:
        """Run the front of the queue, which `pending` is, and let the next one lead.

        To be called when `enter` or `wake` says that it is to be led.
        """
        if self._leader is not pending:  # it was woken twice
            return
        group: list[Pending[Any]] = []
        try:
            try:
                if pending.prepare():
                    timeout_ms = max(0, int((pending.deadline - monotonic()) * 1_000))
                    self._writer.run(pending, lambda: self._start(group), self._clock, timeout_ms)
            finally:
                self._leave(pending, group)
        except BaseException:
            self._leave(pending, group)
            raise

    # ------------------------------------------------------------------------- its ends, and forks

    def close(self) -> None:
        """Refuse those who wait, and wait for the group that is running. Can be repeated."""
        with self._state:
            self._is_closed = True
            self._refuse_waiting()
            self._nobody_leads.wait_for(lambda: not self._is_led)
            self._writer.disconnect()

    def pause(self, timeout: float) -> bool:
        """Let no group start, and wait for the one that is running; whether it has ended."""
        with self._state:
            self._is_paused = True
            if not self._nobody_leads.wait_for(lambda: not self._is_led, timeout):
                return False
            self._writer.disconnect()
            return True

    def resume(self) -> None:
        """Go on after a `pause`, whether or not it succeeded."""
        with self._state:
            self._is_paused = False
            if self._is_led:
                return
            self._appoint()
            following = self._leader
        if following is not None:
            following.wake()

    # ---------------------------------------------------------------------------------- one's turn

    @property
    def _is_led(self) -> bool:
        return self._leader is not None

    def _wait(self, pending: Pending[Any]) -> bool:
        """Wait until a write is settled, or is to be led by this thread; whether it is the latter."""
        if not pending.wait():
            with self._state:
                is_too_late = self._withdraw(pending)
            if is_too_late:
                raise kept_busy()
            pending.wait(patiently=True)  # it was started, or is to be led
        return self._leader is pending

    def _withdraw(self, pending: Pending[Any]) -> bool:
        """Take a write out of the queue; whether it was there, and not to be led yet."""
        if pending is self._leader or pending not in self._waiting:
            return False
        self._waiting.remove(pending)
        return True

    def _dismiss(self, pending: Pending[Any]) -> None:
        """Take one out of the queue that is settled without having been started."""
        with self._state:
            self._withdraw(pending)
        pending.wake()

    def _start(self, group: list[Pending[Any]]) -> list[Pending[Any]]:
        """Fill a group from the front of the queue; who is in it can no longer be withdrawn."""
        if len(self._waiting) > 1:
            self._prepare_followers()
        with self._state:
            self._take(group)
            if not self._waiting:
                return group
            weight, most = _weights(group[0])
            while self._waiting and len(group) < MOST_IN_A_GROUP:
                following = self._waiting[0]
                if not following.is_prepared:  # it came too late
                    break
                weight += following.write.weight
                if weight > most:
                    break
                self._take(group)
        return group

    def _prepare_followers(self) -> None:
        """Prepare those behind the leader, as many as a group can hold.

        Only now that the transaction has begun: so those whom the last one has woken are back.
        """
        with self._state:
            leader, *followers = islice(self._waiting, MOST_IN_A_GROUP)
        weight, most = _weights(leader)
        for each in followers:
            if each.prepare():
                weight += each.write.weight
            else:
                self._dismiss(each)
            if weight > most:
                break

    def _take(self, group: list[Pending[Any]]) -> None:
        group.append(self._waiting[0])
        self._waiting.popleft()

    def _leave(self, leader: Pending[Any], group: list[Pending[Any]]) -> None:
        """Hand leadership on, and wake those of a group that are settled; others wait again."""
        with self._state:
            if self._leader is leader:
                if self._waiting and self._waiting[0] is leader:  # there was no transaction for it
                    self._waiting.popleft()
                if len(group) > 1:
                    self._put_back([each for each in group if each is not leader])
                if self._is_closed:
                    self._refuse_waiting()
                self._appoint()
            following = self._leader
        if following is not None:
            following.wake()  # first, so that its transaction runs while the others wake up
        for each in group:
            if each is not leader and each.is_settled:
                each.wake()

    def _put_back(self, followers: list[Pending[Any]]) -> None:
        """Let those wait again whose leader was interrupted, for that is no business of theirs."""
        undone = [
            each
            for each in followers
            if not (each.is_settled or each.is_abandoned or each in self._waiting)
        ]
        if undone:
            self._waiting = deque([*undone, *self._waiting])

    def _appoint(self) -> None:
        """Let the front of the queue lead, if anybody waits and may."""
        following = self._waiting[0] if self._waiting and not self._is_paused else None
        if following is None and (self._is_paused or self._is_closed):  # who waits for that
            self._nobody_leads.notify_all()
        self._leader = following

    def _refuse_waiting(self) -> None:
        """Settle those who have not been started, and wake them."""
        for each in self._waiting:
            if each is not self._leader:
                each.fail(_closed())
                each.wake()
        self._waiting = deque(each for each in self._waiting if each is self._leader)


def _weights(leader: Pending[Any]) -> tuple[int, int]:
    """What a leader weighs, and what its group may weigh at the most."""
    weight = leader.write.weight
    if weight <= MOST_BEYOND_A_LIGHT_LEADER:
        return weight, weight + MOST_BEYOND_A_LIGHT_LEADER
    return weight, HEAVIEST_GROUP


def kept_busy() -> DatabaseBusy:
    """What to tell one that has waited past its deadline."""
    return DatabaseBusy("other writers kept the store busy; nothing was stored, try again")


def _closed() -> StoreClosed:
    return StoreClosed("this Broker was closed; nothing was stored: open another one")
