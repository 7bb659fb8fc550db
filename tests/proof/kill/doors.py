"""Who asks a store, by one of its doors, and enters what was asked and answered in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker import Broker, Options
from tests.places import Place
from tests.proof.doors import Door, Tasks, Threads, Units
from tests.proof.kill.ledger import Answer, Ledger
from tests.support import ManualClock, open_store


class SystemClock(ManualClock):
    """The clocks that a store has unless it is told otherwise, for `open_store`."""

    def options(self, **others: Any) -> Options:
        """Options on them."""
        return Options(**others)


DOORS: dict[str, Callable[[Broker], Door]] = {"threads": Threads, "units": Units, "tasks": Tasks}


def opened(place: Place, door: str = "threads", **options: Any) -> Door:
    """A door to the store at a place; one that is at head for certain is opened without a look."""
    return DOORS[door](open_store(place, SystemClock(), **options))


class Client:
    """Somebody who asks through a door, and enters it in the ledger; `pass_by` before an answer is."""

    def __init__(
        self, door: Door, ledger: Ledger, pass_by: Callable[[], None] = lambda: None
    ) -> None:
        self.door = door
        self.ledger = ledger
        self._pass_by = pass_by

    def ask(self, operation: str, request: dict[str, Any], request_id: str | None = None) -> Answer:
        """What an operation answers, be it an error."""
        number = self.ledger.ask(operation, request, request_id)
        try:
            answer = Answer.result(self.door.do(operation, request, request_id))
        except Exception as error:  # the ledger tells those that may come from the others
            answer = Answer.error(error)
        self._pass_by()
        self.ledger.answer(number, answer)
        return answer
