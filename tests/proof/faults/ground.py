"""What an operation finds when its fault comes: a store with a history, on a clock that stands."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from broker import Broker
from broker.messages import CommitResult, Lease
from tests.journal_support import owned, projection
from tests.places import raw, url_of
from tests.support import Application, ManualClock, acquire, commit_request, outbox_message

BUSY_TIMEOUT_MS = 500
STREAMS = tuple(f"stream-{number}" for number in range(12))


Row = tuple[str, str]


@dataclass
class Call:
    """One call of the store, which can be repeated.

    `stored` are the rows that it makes: a query and its parameter, which finds something once the
    call has taken effect, and nothing before. `agrees` tells whether a repetition answered as it should, given both answers.
    `is_keyed` says that it may be told that its outcome is unknown.
    """

    name: str
    do: Callable[[Broker], Any]
    stored: Sequence[Row] = ()
    agrees: Callable[[Any, Any], bool] = lambda first, second: _plain(first) == _plain(second)
    is_keyed: bool = True


def _plain(result: Any) -> Any:
    """A result but for whether it was recovered."""
    if isinstance(result, CommitResult):
        return result.to_json() | {"recovered": False}
    return result


@dataclass
class Ground:
    """A store's file, the clock that it runs on, the leases held in it, and what it has promised."""

    path: Path
    clock: ManualClock
    leases: dict[str, Lease]
    kept: list[tuple[Call, Any]] = field(default_factory=list)
    store: Broker | None = None

    def open(self) -> Broker:
        """Open the store here; time goes on between one opening and the next."""
        self.clock.advance(1)
        return Broker.open(url_of(self.path), options=self.options())

    def options(self) -> Any:
        """Options on the clock."""
        return self.clock.options(busy_timeout_ms=BUSY_TIMEOUT_MS)


class Template:
    """A store with a history, to be copied for each fault."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "template.db"
        self._folder = folder
        self._count = 0
        self._ground = Ground(self._path, ManualClock(), {})
        self._make()

    @contextmanager
    def ground(self) -> Iterator[Ground]:
        """A copy of its own, not open yet."""
        self._count += 1
        folder = self._folder / f"store-{self._count}"
        folder.mkdir()
        path = folder / "broker.db"
        shutil.copyfile(self._path, path)
        clock = ManualClock(self._ground.clock.wall_ms + 1, 1)
        ground = Ground(path, clock, self._ground.leases, list(self._ground.kept))
        try:
            yield ground
        finally:
            if ground.store is not None:
                ground.store.close()
            shutil.rmtree(folder)

    def _make(self) -> None:
        ground = self._ground
        with ground.open() as store:
            acquire(store, "gone", "gone", ttlMs=1)
            ground.clock.advance(5)
            ground.leases |= {name: acquire(store, name, name) for name in STREAMS}
            for number in range(3):
                name = f"before-{number}"
                extra: dict[str, Any] = {"outbox": [outbox_message(name)]}
                extra["projections"] = [projection(name)]
                extra["events"] = [owned(f"{name}-event", STREAMS[number])]
                call = commit(ground.leases[STREAMS[number]], name, **extra)
                ground.kept.append((call, call.do(store)))
        engine = create_engine(url_of(self._path))
        Application.metadata.create_all(engine)
        engine.dispose()


def commit(lease: Lease, message_id: str, **others: Any) -> Call:
    """A commit, with what it stores."""
    request = commit_request(lease, message_id, **others)
    return Call(message_id, lambda store: store.commit(request), _rows_of(request))


def _rows_of(request: dict[str, Any]) -> list[Row]:
    rows = [(_MESSAGE, request["messageId"])]
    rows += [(_EVENT, each["eventId"]) for each in request["events"]]
    rows += [(_OUTBOX, each["outboxId"]) for each in request.get("outbox", ())]
    rows += [(_PROJECTION, each["projectionId"]) for each in request.get("projections", ())]
    return rows


_MESSAGE = "SELECT 1 FROM inbox WHERE message_id = ?"
_EVENT = "SELECT 1 FROM events WHERE event_id = ?"
_OUTBOX = "SELECT 1 FROM outbox WHERE outbox_id = ?"
_PROJECTION = "SELECT 1 FROM projections WHERE projection_id = ?"
_RECEIPT = "SELECT 1 FROM mutation_receipts WHERE request_id = ?"


def rows_there(path: Path, call: Call) -> set[bool]:
    """Whether the effects of a call are there: one answer, unless it is half stored."""
    with raw(path) as connection:
        connection.execute("BEGIN")
        return {
            connection.execute(query, [value]).fetchone() is not None
            for query, value in call.stored
        }


def receipt(name: str, do: Callable[[Broker, str], Any]) -> Call:
    """A lease mutation with the request id `name`."""
    return Call(name, lambda store: do(store, name), [(_RECEIPT, name)])
