"""Single deeds, to die in the middle of: each does something in a store, armed where it matters."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from sqlalchemy import Pool, event
from sqlalchemy.orm import Session

from broker import IMMEDIATE, Broker
from broker.sqlite import log
from tests.group_support import crowd
from tests.places import Place
from tests.proof.doors import Door, Threads
from tests.proof.kill import requests
from tests.proof.kill.doors import Client, opened
from tests.proof.kill.dying import Death
from tests.proof.kill.ledger import Answer, Ledger


class Scene:
    """A store at a place, and an actor on a stream of its own; all ids begin with `name`.

    What it asks for is the same each time, so that there are as many places to die in.
    """

    def __init__(self, place: Place, name: str, ledger: Ledger, death: Death) -> None:
        self.place = place
        self.name = name
        self.chance = random.Random(0)
        self.ledger = ledger
        self.death = death
        self._count = 0

    def open(self, door: str = "threads") -> Client:
        """Open the store."""
        return Client(opened(self.place, door), self.ledger, self.death.pass_by)

    def next(self, kind: str) -> str:
        """A new id."""
        self._count += 1
        return f"{self.name}/{kind}{self._count}"

    def acquire(self, client: Client, which: str = "", ttl_ms: int = requests.LONG_MS) -> Any:
        """A lease on a stream of its own."""
        actor = f"{self.name}{which}"
        wanted = requests.acquire(actor, f"{actor}/stream", ttl_ms)
        return must(client.ask("acquire_lease", wanted, self.next("r")))

    def commit_to(self, lease: Any, revision: int = 0, **others: Any) -> dict[str, Any]:
        """A commit to the stream of a lease."""
        return requests.commit(lease, self.next("m"), revision, self.chance, **others)

    def do_armed(self, client: Client, operation: str, request: Any, *, keyed: bool = True) -> None:
        """The one thing in which to die."""
        request_id = self.next("r") if keyed else None
        self.death.arm()
        client.ask(operation, request, request_id)


def must(answer: Answer) -> Any:
    """The result that there has to be."""
    if answer.kind != "done":
        raise AssertionError(answer)
    return answer.value


def open_it(scene: Scene) -> None:
    """Open what is there: nothing, a store at head, one that was left without a checkpoint."""
    scene.death.arm()
    scene.open()


def acquire(scene: Scene) -> None:
    """The first lease of a stream."""
    client = scene.open()
    wanted = requests.acquire(scene.name, f"{scene.name}/stream")
    scene.do_armed(client, "acquire_lease", wanted)


def move(scene: Scene) -> None:
    """An actor leaves a stream, whose epoch is kept."""
    client = scene.open()
    lease = scene.acquire(client, ttl_ms=1)
    time.sleep(0.002)
    scene.do_armed(client, "acquire_lease", requests.acquire(lease["actorId"], f"{scene.name}/new"))


def take_over(scene: Scene) -> None:
    """A stream whose lease has expired."""
    client = scene.open()
    lease = scene.acquire(client, ttl_ms=1)
    time.sleep(0.002)
    wanted = requests.acquire(f"{scene.name}-heir", lease["streamId"])
    scene.do_armed(client, "takeover_lease", wanted)


def heartbeat(scene: Scene) -> None:
    """A lease that is kept."""
    client = scene.open()
    lease = scene.acquire(client)
    scene.do_armed(client, "heartbeat_lease", requests.shown(lease, ttlMs=requests.LONG_MS * 2))


def swap(scene: Scene) -> None:
    """A lease that is handed on."""
    client = scene.open()
    scene.do_armed(client, "compare_and_swap_lease", requests.swap(scene.acquire(client)))


def release(scene: Scene) -> None:
    """A lease that is given up."""
    client = scene.open()
    scene.do_armed(client, "release_lease", requests.shown(scene.acquire(client)))


def commit(scene: Scene, door: str = "threads", **others: Any) -> None:
    """A commit after another."""
    client = scene.open(door)
    lease = scene.acquire(client)
    first = must(client.ask("commit", scene.commit_to(lease)))
    request = scene.commit_to(lease, first["revision"], **others)
    scene.do_armed(client, "commit", request, keyed=False)


def first_commit(scene: Scene) -> None:
    """The commit that makes a stream."""
    client = scene.open()
    scene.do_armed(client, "commit", scene.commit_to(scene.acquire(client)), keyed=False)


def large_commit(scene: Scene) -> None:
    """More than a page cache or a statement takes."""
    commit(scene, events=120, bytes_each=2_000)


def commit_of_unit(scene: Scene) -> None:
    """A commit in a session."""
    commit(scene, "units")


def refused_commit(scene: Scene) -> None:
    """A commit at a revision at which the stream is not."""
    client = scene.open()
    request = scene.commit_to(scene.acquire(client), 7)
    scene.do_armed(client, "commit", request, keyed=False)


def deliver(scene: Scene) -> None:
    """A message that is marked as delivered."""
    client = scene.open()
    message = {"outboxId": scene.next("o"), "destination": "mail", "payload": None}
    request = scene.commit_to(scene.acquire(client)) | {"outbox": [message]}
    must(client.ask("commit", request))
    delivered = {"outboxId": message["outboxId"]}
    scene.do_armed(client, "mark_outbox_delivered", delivered, keyed=False)


def group(scene: Scene) -> None:
    """Commits and lease mutations of several threads, in one transaction."""
    client = scene.open()
    things = _things_of_many(scene, client)
    with crowd(store_of(client.door)) as waiting:
        callers = [waiting.join(partial(client.ask, *thing)) for thing in things]
        scene.death.arm()
    for caller in callers:
        caller.outcome()


def _things_of_many(scene: Scene, client: Client) -> list[tuple[str, Any, str | None]]:
    leases = [scene.acquire(client, str(number)) for number in range(4)]
    stale = scene.commit_to(leases[0] | {"epoch": 7})
    commits = [*map(scene.commit_to, leases), stale]
    wanted = requests.acquire(f"{scene.name}-new", f"{scene.name}-new/stream")
    return [
        *(("commit", request, None) for request in commits[:3]),
        ("acquire_lease", wanted, scene.next("r")),
        *(("commit", request, None) for request in commits[3:]),
    ]


def tasks(scene: Scene) -> None:
    """Commits of several tasks of an event loop."""
    client = scene.open("tasks")
    things = _things_of_many(scene, client)
    scene.death.arm()
    with ThreadPoolExecutor(len(things)) as pool:
        list(pool.map(lambda thing: client.ask(*thing), things))


def unit(scene: Scene) -> None:
    """A lease and two commits in one transaction of a session's: all of them, or none."""
    client = scene.open()
    store = store_of(client.door)
    name = scene.next("unit")
    answers: list[tuple[int, Answer]] = []
    scene.death.arm()
    with Session(store.engine.execution_options(**IMMEDIATE)) as session, session.begin():
        within = store.unit_of_work(session)

        def ask(operation: str, request: Any, request_id: str | None = None) -> Any:
            number = scene.ledger.ask(operation, request, request_id, name)
            keyed = {} if request_id is None else {"request_id": request_id}
            answer = Answer.result(getattr(within, operation)(request, **keyed))
            answers.append((number, answer))
            return answer.value

        wanted = requests.acquire(scene.name, f"{scene.name}/stream")
        lease = ask("acquire_lease", wanted, scene.next("r"))
        first = ask("commit", scene.commit_to(lease))
        ask("commit", scene.commit_to(lease, first["revision"]))
    scene.death.pass_by()
    for number, answer in answers:
        scene.ledger.answer(number, answer)


def commit_and_checkpoint(scene: Scene) -> None:
    """A commit after which SQLite copies the log into the file."""
    checkpoint_often()
    commit(scene)


def commit_and_cut(scene: Scene) -> None:
    """A commit after which the store copies the log into the file, and makes it empty."""
    cut_often()
    commit(scene)


def checkpoint_often() -> None:
    """Let SQLite do after every commit of this process what it does every 1,000 pages."""
    event.listen(Pool, "connect", _checkpoint_at_once)


def cut_often() -> None:
    """Let the store do after every commit of this process what it does with a large log."""
    log.MOST_BYTES, log.LOOK_EVERY, log.LOOK_AGAIN_AFTER = 0, 1, 1


def _checkpoint_at_once(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA wal_autocheckpoint=1").close()


def checkpoint(scene: Scene) -> None:
    """A checkpoint that empties the log."""
    client = scene.open()
    must(client.ask("commit", scene.commit_to(scene.acquire(client))))
    with store_of(client.door).engine.connect() as connection:
        scene.death.arm()
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def close(scene: Scene) -> None:
    """The last connection closes, and the log is removed."""
    client = scene.open()
    must(client.ask("commit", scene.commit_to(scene.acquire(client))))
    scene.death.arm()
    client.door.close()


def store_of(door: Door) -> Broker:
    """The store behind a door."""
    assert isinstance(door, Threads)
    return door.store


Deed = Callable[[Scene], None]

#: What to die in, by its name; `open …` say what is there.
DEEDS: dict[str, Deed] = {
    "open nothing": open_it,
    "open a store": open_it,
    "acquire": acquire,
    "move": move,
    "take over": take_over,
    "heartbeat": heartbeat,
    "swap": swap,
    "release": release,
    "commit": commit,
    "first commit": first_commit,
    "large commit": large_commit,
    "refused commit": refused_commit,
    "commit of a session": commit_of_unit,
    "unit of work": unit,
    "deliver": deliver,
    "tasks": tasks,
}
#: Those that only files have.
OF_FILES: dict[str, Deed] = {
    "open a log": open_it,
    "migrate": open_it,
    "group": group,
    "commit and checkpoint": commit_and_checkpoint,
    "commit and cut": commit_and_cut,
    "checkpoint": checkpoint,
    "close": close,
}


def opens(deed: str) -> bool:
    """Whether it is the opening in which to die."""
    return (DEEDS | OF_FILES)[deed] is open_it
