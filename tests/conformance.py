"""Run recorded cases: `python -m tests.conformance [--backend sqlite|postgresql] FILE…`.

A file holds one case a line, of one of seven kinds, told apart by its fields: histories of leases,
commits, reads and validation (`steps`), canonical JSON (`canonical`), workspaces (`payload`) and
migrations (`script`). Ends with `N passed, M failed`; exit code 1 on any failure. On PostgreSQL it
ends with `N passed, M failed, K not applicable`: those that cannot be there, see `NotApplicable`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

from broker import Broker, Options
from broker.canonical import canonical_of, digest, encode
from broker.errors import BrokerError, InvalidRequest, Refusal, SchemaError
from broker.messages import Result
from broker.operations import Operations
from broker.runtime_events import ForeignStream, workspace_of
from tests.conformance_places import (
    Cursors,
    NotApplicable,
    dump,
    expected_dump,
    image,
    lay_out,
    server_url,
)
from tests.places import Databases, Place, PostgresPlace, url_of

Case = dict[str, Any]

RANDOM_NONCE = "<32 lower-case hex digits>"


@dataclass(frozen=True)
class Failure:
    """Where a case went another way than it was recorded."""

    step: str
    expected: object
    actual: object


# ----------------------------------------------------------------------------------------- running


def run_case(
    case: Case, place: Place, *, replaying: Callable[[str, Clockwork], Replay] | None = None
) -> Iterator[Failure]:
    """The failures of a case of any kind; nothing is at `place`, which is the case's own.

    `replaying` makes what replays a history, if it is to be another `Replay`. Raises NotApplicable
    for a case that cannot be on the backend of the place.
    """
    if "steps" in case:
        return _run_history(case, place, replaying or Replay)
    if "script" in case:
        return _run_migration(case, place)
    if "canonical" in case:
        return _run_canonical(case)
    if "payload" in case:
        return _run_workspace(case)
    raise ValueError(f"a case of no known kind, with the fields {sorted(case)}")


def read_cases(path: Path) -> Iterator[tuple[str, Case]]:
    """The cases of a file with their names."""
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                case = json.loads(line)
                yield f"{path.name}:{number} {case.get('name', '')}".strip(), case


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the files and print what failed; the exit code."""
    parser = argparse.ArgumentParser("python -m tests.conformance")
    parser.add_argument("--backend", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("files", nargs="*", metavar="FILE", type=Path)
    options = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    with places(options.backend) as place_of_its_own:
        for name, case in chain.from_iterable(map(read_cases, options.files)):
            is_of_a_store = not case.keys().isdisjoint({"steps", "script"})
            with place_of_its_own() if is_of_a_store else nullcontext(Path()) as place:
                counts[_outcome(name, case, place)] += 1
    said = f"{counts['passed']} passed, {counts['failed']} failed"
    if options.backend == "postgresql":
        said += f", {counts['not applicable']} not applicable"
    print(said)
    return 1 if counts["failed"] else 0


def _outcome(name: str, case: Case, place: Place) -> str:
    try:
        failures = list(run_case(case, place))
    except NotApplicable:
        return "not applicable"
    except Exception as error:  # one case must not keep the others from being run
        failures = [Failure("an error that is no refusal", None, repr(error))]
    for failure in failures:
        print(f"{name}: {failure.step}")
        print(f"  expected {json.dumps(failure.expected)}")
        print(f"  actual   {json.dumps(failure.actual)}")
    return "failed" if failures else "passed"


@contextmanager
def places(backend: str) -> Iterator[Callable[[], AbstractContextManager[Place]]]:
    """Makes empty places of a backend, each for as long as a `with` lasts."""
    if backend == "sqlite":
        yield _file
    else:
        with server_url() as url, closing(Databases(url)) as databases:
            yield databases.one_empty


@contextmanager
def _file() -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "case.db"


# --------------------------------------------------------------------------------------- histories


@dataclass
class Clockwork:
    """The clocks and the nonces of one case, which outlive a restart."""

    now: int
    mono: float
    nonces: int = 0
    capacity: int | None = None

    def options(self) -> Options:
        capacity: dict[str, Any] = (
            {} if self.capacity is None else {"receipt_capacity": self.capacity}
        )
        return Options(
            wall_clock=lambda: self.now,
            monotonic_clock=lambda: self.mono,
            nonce=self._nonce,
            **capacity,
        )

    def _nonce(self) -> str:
        self.nonces += 1
        return f"nonce-{self.nonces}"


@dataclass
class Replay:
    """A case under way."""

    url: str
    clockwork: Clockwork
    broker: Broker = field(init=False)
    cursors: Cursors | None = None

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.broker = Broker.open(self.url, options=self.clockwork.options())

    def restart(self) -> None:
        self.broker.close()
        self.open()

    def runs(self, steps: list[Case]) -> Iterator[list[Case]]:
        """The steps that are to be answered together."""
        for step in steps:
            yield [step]

    def answers(self, steps: list[Case]) -> list[Case]:
        """What the store answers to steps, in the form in which answers are recorded."""
        return [self._answer(step) for step in steps]

    def _answer(self, step: Case) -> Case:
        if self.cursors is None:
            return answer(partial(OPERATIONS[step["op"]], self.broker, step))
        asked = self.cursors.asked(step)
        return self.cursors.ranked(answer(partial(OPERATIONS[step["op"]], self.broker, asked)))


def answer(call: Callable[[], object]) -> Case:
    """What a call answers, a refusal included, in the form in which answers are recorded."""
    try:
        return {"result": _wire(call())}
    except Refusal as error:
        form = error.to_json()
        return {"error": {name: form[name] for name in ("code", "details") if name in form}}


def _mutation(method: str) -> Callable[[Operations, Case], object]:
    def call(broker: Operations, step: Case) -> object:
        return getattr(broker, method)(step["request"], request_id=step.get("requestId"))

    return call


def _operation(method: str, *names: str) -> Callable[[Operations, Case], object]:
    def call(broker: Operations, step: Case) -> object:
        given = {name: step[name] for name in names if name in step}
        return getattr(broker, method)(step["request"] | given if "request" in step else given)

    return call


OPERATIONS: dict[str, Callable[[Operations, Case], object]] = {
    "acquire": _mutation("acquire_lease"),
    "heartbeat": _mutation("heartbeat_lease"),
    "compareAndSwap": _mutation("compare_and_swap_lease"),
    "takeover": _mutation("takeover_lease"),
    "release": _mutation("release_lease"),
    "getLease": _operation("get_lease", "actorId"),
    "commit": _operation("commit"),
    "streamRevision": _operation("get_stream_revision", "streamId"),
    "readEvents": _operation("read_events", "streamId", "afterRevision"),
    "readAuthorizedEvents": _operation(
        "read_authorized_events", "streamId", "afterRevision", "authorization"
    ),
    "readAuthorizedEventsPage": _operation("read_authorized_events_page", "maxBytes"),
    "listStreams": _operation("list_streams"),
    "readModelEvents": _operation("read_model_events", "workspaceId", "afterCursor", "limit"),
    "readModelSources": _operation("read_model_sources", "workspaceId", "afterStreamId", "limit"),
    "readProjection": _operation("read_projection", "projectionId"),
    "pendingOutbox": _operation("list_pending_outbox", "limit", "asOf"),
    "markDelivered": _operation("mark_outbox_delivered", "outboxId", "deliveredAt"),
}


def _run_history(
    case: Case, place: Place, replaying: Callable[[str, Clockwork], Replay]
) -> Iterator[Failure]:
    capacity = case.get("options", {}).get("receiptCapacity")
    clockwork = Clockwork(case["start"]["now"], case["start"]["mono"], capacity=capacity)
    replay = replaying(url_of(place), clockwork)
    if isinstance(place, PostgresPlace):
        replay.cursors = Cursors()
    try:
        yield from _replay(case, clockwork, replay)
    finally:
        replay.broker.close()
    if "final" in case:
        found = dump(place, replay.cursors)
        yield from differences(expected_dump(case["final"], place), found)


def _replay(case: Case, clockwork: Clockwork, replay: Replay) -> Iterator[Failure]:
    numbers = count()
    for steps in replay.runs(case["steps"]):
        clockwork.now, clockwork.mono = steps[0]["now"], steps[0]["mono"]
        if steps[0]["op"] == "restart":
            replay.restart()
            next(numbers)
            continue
        for step, actual in zip(steps, replay.answers(steps), strict=True):
            number, expected = next(numbers), expected_answer(step["expect"])
            if not same(expected, actual):
                yield Failure(f"step {number}, {step['op']}", expected, actual)


def expected_answer(expect: Case) -> Case:
    if "result" in expect:
        return {"result": expect["result"]}
    error = expect["error"]
    if "code" not in error:
        # The reference lets its database object; here it is a refusal that names the field.
        details = {"field": "outbox[0].eventId"}
        return {"error": {"code": "invalid_request", "details": details}}
    return {"error": {name: error[name] for name in ("code", "details") if name in error}}


def _wire(result: object) -> object:
    if isinstance(result, Result):
        return result.to_json()
    return [_wire(each) for each in result] if isinstance(result, list) else result


# ------------------------------------------------------------------------------ the other kinds


def _run_canonical(case: Case) -> Iterator[Failure]:
    encoded = encode(case["value"])
    actual = {
        "canonical": canonical_of(encoded.embeddable).decode(),
        "sha256": digest(canonical_of(encoded.embeddable)),
        "stored": encoded.stored,
    }
    for name, text in actual.items():
        if name in case and case[name] != text:
            yield Failure(name, case[name], text)


def _run_workspace(case: Case) -> Iterator[Failure]:
    try:
        workspace = workspace_of(case["payload"], case["streamId"])
    except ForeignStream as foreign:
        details = {
            "streamId": case["streamId"],
            "payloadStreamId": foreign.payload_stream_id,
        }
        actual: Case = {"error": {"code": InvalidRequest.code, "details": details}}
    else:
        actual = {"result": workspace}
    expected = expected_answer(case["expect"])
    if not same(expected, actual):
        yield Failure("workspace", expected, actual)


def _run_migration(case: Case, place: Place) -> Iterator[Failure]:
    clockwork = Clockwork(1_000, 0)
    before = lay_out(case["script"], place)
    try:
        Broker.open(url_of(place), options=clockwork.options()).close()
    except SchemaError as error:
        if "error" not in case["expect"]:
            yield Failure("opening", "upgraded", error.to_json())
        if image(place) != before:
            yield Failure("opening", "every byte as it was", "the database was changed")
    except BrokerError as error:
        yield Failure("opening", case["expect"], error.to_json())
    else:
        if "error" in case["expect"]:
            yield Failure("opening", case["expect"], "upgraded")
        else:
            yield from differences(expected_dump(case["expect"]["upgraded"], place), dump(place))


# --------------------------------------------------------------------------------------- comparing


def differences(expected: Case, actual: Case) -> Iterator[Failure]:
    for table in expected.keys() | actual.keys():
        wanted, found = _comparable(expected.get(table)), _comparable(actual.get(table))
        if not same(_random_nonces_out(wanted, found), found):
            yield Failure(f"finally, {table}", wanted, found)


def _comparable(rows: Any) -> Any:
    if not isinstance(rows, list):
        return rows
    return [{name: _parsed(name, value) for name, value in row.items()} for row in rows]


def _parsed(column: str, value: Any) -> Any:
    if not column.endswith("_json"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _random_nonces_out(wanted: Any, found: Any) -> Any:
    if not isinstance(wanted, list) or len(wanted) != len(found):
        return wanted
    return [
        row | {"nonce": there["nonce"]}
        if row.get("nonce") == RANDOM_NONCE and re.fullmatch("[0-9a-f]{32}", there["nonce"])
        else row
        for row, there in zip(wanted, found, strict=True)
    ]


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: numbers by value, and never equal to a boolean."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


if __name__ == "__main__":
    sys.exit(main())
