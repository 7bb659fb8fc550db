"""The short form of the proof about inputs, and that it sees what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker import canonical
from broker.messages import validation
from tests.cli.support import broker
from tests.places import Place, url_of
from tests.proof.fuzz import checks, growth, independent, inputs, texts
from tests.proof.fuzz.bench import Bench, bench_on
from tests.proof.fuzz.inputs import INPUTS, Input, try_inputs

_SEED = 2026
_OF_PYTHON = [each for each in INPUTS if not each.is_of_backend]
_OF_BACKEND = [each for each in INPUTS if each.is_of_backend]
_by_name = {each.name: each for each in INPUTS}


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Iterator[Bench]:
    """A store to put inputs to."""
    folder = tmp_path / "inputs"
    folder.mkdir()
    with bench_on(place, folder) as made:
        yield made


@pytest.fixture
def on_a_file(path: Path, bench: Bench) -> Bench:
    """A bench where the backend does not matter."""
    assert path.parent.exists()
    return bench


@pytest.mark.parametrize("kind", _OF_PYTHON, ids=lambda kind: kind.name)
def test_an_input_is_accepted_or_refused_with_an_error_of_ours(
    on_a_file: Bench, kind: Input
) -> None:
    report = try_inputs(kind, on_a_file, _SEED, 40)
    assert report.violations == []
    assert report.counts["inputs"] >= 40
    assert report.counts["refused"] > 0


@pytest.mark.parametrize("kind", _OF_BACKEND, ids=lambda kind: kind.name)
def test_the_store_accepts_an_input_or_refuses_it_with_an_error_of_ours(
    bench: Bench, kind: Input
) -> None:
    report = try_inputs(kind, bench, _SEED, 30)
    assert report.violations == []
    assert report.counts["inputs"] >= 30


def test_the_real_command_answers_each_of_a_stream_of_bad_lines(
    place: Place, tmp_path: Path
) -> None:
    odd = [each for each in texts.FRAGMENTS if each.strip(b" \t\r\x0b\x0c")]
    within = [b'{"method":"lease.get","params":' + each + b"}" for each in odd]
    stream = b"\n".join([*odd, b"", *within, b" ", b"\xff\x00"])
    done = broker("apply", "-", cwd=tmp_path, stdin=stream, BROKER_DATABASE_URL=url_of(place))
    answers = [json.loads(each) for each in done.stdout.splitlines()]
    assert done.returncode == 0
    assert len(answers) == 2 * len(odd) + 1
    for each in answers:
        checks.require_answer(each)
    assert {each["error"]["code"] for each in answers} == {"invalid_request"}


_LARGE = ("arrays", "backslashes", "open brackets", "keys", "lone surrogates")


def test_memory_is_within_the_stated_multiple(
    on_a_file: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: growth.PATTERNS[name] for name in _LARGE}
    monkeypatch.setattr(growth, "PATTERNS", few)
    monkeypatch.setattr(growth, "_SIZE", 2**16)
    monkeypatch.setattr(growth, "_MEMORY_IN_ANY_CASE", 2**18)
    report = growth.try_memory(on_a_file, _SEED)
    assert report.violations == []
    assert 0 < report.counts["times its size the most memory for an input"] <= growth.MOST_MEMORY


# ------------------------------------------------------------------------ what is wrong is seen


def _found(kind: str, bench: Bench) -> str:
    report = try_inputs(_by_name[kind], bench, _SEED, 60)
    assert report.counts["misjudged"] == 1
    return report.violations[0].what


def test_a_bare_error_of_a_request_is_seen(
    on_a_file: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_key_error(_fault: Any) -> str:
        raise KeyError("loc")

    monkeypatch.setattr(validation, "_path", raise_key_error)
    assert "KeyError" in _found("requests", on_a_file)


def test_a_bare_error_behind_a_line_is_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_details", lambda _path, _fault: {"field": ""})
    assert "without a field" in _found("operations", bench)


def test_a_number_in_another_form_is_seen(
    on_a_file: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical, "_LEAST", 1e-9)
    with pytest.raises(checks.Broken, match="instead of"):
        checks.encoding(on_a_file, [1e-6])


def test_a_reader_that_takes_a_key_twice_is_seen(
    on_a_file: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical, "_STRICT_READER", canonical._READER)
    with pytest.raises(checks.Broken, match="instead of None"):
        checks.reading(on_a_file, b'{"a":1,"a":2}')


def test_another_hash_is_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(independent, "request_hash", lambda _request: "another")
    assert "the hash is another" in _found("round trips", bench)


def test_memory_beyond_what_is_allowed_is_seen(
    on_a_file: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    hoarder = {
        "hoarder": lambda text: [text + bytes([n % 256]) for n in range(growth.MOST_MEMORY * 9)]
    }
    monkeypatch.setattr(growth, "readers", lambda _bench: hoarder)
    monkeypatch.setattr(growth, "PATTERNS", {"zeros": lambda _size: bytes(2**15)})
    assert "takes" in growth.try_memory(on_a_file, _SEED).violations[0].what


@pytest.mark.parametrize(("power", "expected"), [(1, 0), (2, 1)])
def test_time_out_of_proportion_is_seen(
    on_a_file: Bench, monkeypatch: pytest.MonkeyPatch, power: int, expected: int
) -> None:
    def measure(_reader: growth.Reader, text: bytes) -> float:
        return float(len(text)) ** power

    reader: dict[str, Callable[[bytes], object]] = {"reader": len}
    monkeypatch.setattr(growth, "readers", lambda _bench: reader)
    monkeypatch.setattr(growth, "PATTERNS", {"zeros": bytes})
    report = growth.try_time(on_a_file, _SEED, measure, 1_000)
    assert len(report.violations) == report.counts["slower than in proportion"] == expected


def test_every_kind_of_input_has_a_name_of_its_own() -> None:
    assert len(_by_name) == len(inputs.INPUTS)
