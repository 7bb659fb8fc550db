"""Every interleaving of a few clients, breadth first: what they ask, crashes, expiries, repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.proof.model.protocol.judging import Memory, judge
from tests.proof.model.protocol.rules import Answer, Protocol, Request, Stored

KINDS = ("acquire", "takeover", "heartbeat", "swap", "release", "commit")


@dataclass(frozen=True)
class Scene:
    """Who takes part, and how much may happen.

    `actors` are those for whom the clients act: two clients of one are two holders, and what one
    swaps a lease for is told to the other. `asks` is how often each may ask for something new.
    """

    actors: tuple[str, ...]
    streams: tuple[str, ...]
    asks: int
    expiries: int
    crashes: int
    repetitions: int
    kinds: tuple[str, ...] = KINDS


class Client(NamedTuple):
    """A client: how often it may still ask, the credential it has, and what it asked last."""

    left: int
    shown: tuple[str, int, int] | None = None  # stream, epoch, nonce
    last: Request | None = None


class Flight(NamedTuple):
    """An operation under way: `client` is -1 once that is dead, `place` its next step."""

    client: int
    request: Request
    place: int
    memory: Any = None


class State(NamedTuple):
    """Everything, with what is left of the scene's expiries, crashes and repetitions."""

    stored: Stored
    clients: tuple[Client, ...]
    flights: tuple[Flight, ...]
    left: tuple[int, int, int]
    memory: Memory


@dataclass
class Found:
    """What a search has seen; `violation` with the way to it, if there is one."""

    states: int = 0
    transitions: int = 0
    violation: str = ""
    way: list[str] = field(default_factory=list)


#: What happened in words, the state after it, and what was wrong about it ("" if nothing).
Move = tuple[str, State, str]


def search(protocol: Protocol, scene: Scene, most_states: int = 10**9) -> Found:
    """Explore until all is seen, or something is wrong."""
    first = State(
        Stored(),
        tuple(Client(scene.asks) for _ in scene.actors),
        (),
        (scene.expiries, scene.crashes, scene.repetitions),
        Memory(),
    )
    found = Found(states=1)
    came: dict[State, tuple[State, str] | None] = {first: None}
    front = [first]
    while front:
        behind, front = front, []
        for state in behind:
            for said, after, wrong in _moves(protocol, scene, state):
                found.transitions += 1
                if wrong:
                    found.violation, found.way = wrong, [*_way(came, state), said]
                    return found
                if after not in came:
                    came[after] = (state, said)
                    front.append(after)
                    found.states += 1
        if found.states > most_states:
            raise ValueError(f"more than {most_states:,} states: make the scene smaller")
    return found


def _way(came: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    way: list[str] = []
    while (step := came[state]) is not None:
        state, said = step
        way.append(said)
    return way[::-1]


def _moves(protocol: Protocol, scene: Scene, state: State) -> Iterator[Move]:
    yield from _expiries(state)
    busy = {flight.client for flight in state.flights}
    for number, client in enumerate(state.clients):
        if number not in busy:
            for request, repeated in _requests(scene, state, number, client):
                yield _ask(protocol, scene, state, number, request, repeated=repeated)
    for place, flight in enumerate(state.flights):
        yield from _go_on(protocol, scene, state, place, flight)


def _expiries(state: State) -> Iterator[Move]:
    expiries, crashes, repetitions = state.left
    if not expiries:
        return
    for lease in state.stored.leases:
        if lease.is_live:
            stored = state.stored.with_lease(lease._replace(is_live=False))
            left = (expiries - 1, crashes, repetitions)
            yield f"{lease.stream} expires", state._replace(stored=stored, left=left), ""


def _requests(
    scene: Scene, state: State, number: int, client: Client
) -> Iterator[tuple[Request, bool]]:
    """What a client may ask for: something new, or the last thing again."""
    if client.last is not None and state.left[2]:
        yield client.last, True
    if not client.left:
        return
    actor, key = scene.actors[number], f"{number}.{client.left}"
    for kind in scene.kinds:
        if kind in {"acquire", "takeover"}:
            for stream in scene.streams:
                yield Request(kind, key, actor, stream), False
        elif client.shown is not None:
            stream, epoch, nonce = client.shown
            expected = state.stored.revision(stream) if kind == "commit" else 0
            yield Request(kind, key, actor, stream, epoch, nonce, expected), False


def _ask(
    protocol: Protocol,
    scene: Scene,
    state: State,
    number: int,
    request: Request,
    *,
    repeated: bool,
) -> Move:
    """A client asks, and its operation takes the first step, before which nothing can happen."""
    client = state.clients[number]
    expiries, crashes, repetitions = state.left
    if repeated:
        state = state._replace(left=(expiries, crashes, repetitions - 1))
    else:
        client = client._replace(left=client.left - 1, last=request)
    state = _with_client(state, number, client)
    said = f"{number} {'repeats' if repeated else 'asks'} {_shown(request)}"
    flight = Flight(number, request, 0)
    return _take(protocol, scene, state, flight, said)


def _go_on(
    protocol: Protocol, scene: Scene, state: State, place: int, flight: Flight
) -> Iterator[Move]:
    """An operation takes its next step; or its client dies, with it or not; or before the answer."""
    others = state.flights[:place] + state.flights[place + 1 :]
    without = state._replace(flights=others)
    said = f"{flight.client} {protocol.steps[flight.place]}s {_shown(flight.request)}"
    yield _take(protocol, scene, without, flight, said)
    expiries, crashes, repetitions = state.left
    if flight.client < 0 or not crashes:
        return
    without = without._replace(left=(expiries, crashes - 1, repetitions))
    orphan = flight._replace(client=-1)
    yield f"{flight.client} dies before", without, ""
    yield f"{flight.client} dies, not its operation", _with_flight(without, orphan), ""
    yield _take(protocol, scene, without, orphan, f"{said} and dies before the answer")


def _take(protocol: Protocol, scene: Scene, state: State, flight: Flight, said: str) -> Move:
    name = protocol.steps[flight.place]
    stored, memory, answer = protocol.step(name, state.stored, flight.request, flight.memory)
    is_told = answer is not None and flight.client >= 0
    kept, wrong = judge(state.memory, state.stored, stored, flight.request, answer, is_told=is_told)
    after = state._replace(stored=stored, memory=kept)
    if answer is None:
        going_on = flight._replace(place=flight.place + 1, memory=memory)
        return said, _with_flight(after, going_on), wrong
    if is_told:
        after = _tell(scene, after, flight, answer)
    return f"{said}: {_shown_answer(answer)}", after, wrong


def _tell(scene: Scene, state: State, flight: Flight, answer: Answer) -> State:
    """The client hears its answer; a new holder is told what the last one got for it."""
    if answer.kind != "lease":
        return state
    shown = (answer.stream, answer.at, answer.nonce)
    hearers = [flight.client]
    if flight.request.kind == "swap":
        actor = scene.actors[flight.client]
        others = [
            number
            for number, each in enumerate(scene.actors)
            if each == actor and number != flight.client
        ]
        hearers = others or hearers
    for number in hearers:
        state = _with_client(state, number, state.clients[number]._replace(shown=shown))
    return state


def _with_client(state: State, number: int, client: Client) -> State:
    clients = (*state.clients[:number], client, *state.clients[number + 1 :])
    return state._replace(clients=clients)


def _with_flight(state: State, flight: Flight) -> State:
    return state._replace(flights=tuple(sorted([*state.flights, flight], key=_order)))


def _order(flight: Flight) -> tuple[int, str, int]:
    return flight.client, flight.request.key, flight.place


def _shown(request: Request) -> str:
    shown = f" with {request.epoch}/{request.nonce}" if request.epoch else ""
    return f"{request.kind} {request.key} of {request.actor} on {request.stream}{shown}"


def _shown_answer(answer: Answer) -> str:
    return answer.kind + (f" {answer.stream} {answer.at}" if answer.stream else "")
