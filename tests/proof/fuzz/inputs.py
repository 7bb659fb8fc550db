"""Every kind of input, with what makes it up and what judges it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.proof.fuzz import checks, requests, texts
from tests.proof.fuzz import settings as of_settings
from tests.proof.fuzz.bench import Bench
from tests.proof.fuzz.round_trip import round_trip
from tests.proof.fuzz.values import values
from tests.proof.report import Report


@dataclass(frozen=True)
class Input:
    """One kind of input; `check` answers whether it was accepted, and raises what is wrong."""

    name: str
    strategy: st.SearchStrategy[Any]
    check: checks.Check
    is_of_backend: bool = False

    def test(self, bench: Bench, seen: Callable[[bool], None]) -> Callable[[], None]:
        """A test of Hypothesis's on a bench; tells `seen` of each input whether it was accepted."""

        def judge(value: Any) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of options in URLs that are not looked at
                seen(self.check(bench, value))

        return given(self.strategy)(judge)


INPUTS = (
    Input("requests", requests.asked(), checks.validation),
    Input("models", requests.asked(), checks.models),
    Input("JSON values", values, checks.encoding),
    Input("JSON texts", texts.json_texts(), checks.reading),
    Input("options", of_settings.options, of_settings.choosing),
    Input("URLs", of_settings.urls, of_settings.url),
    Input("arguments", of_settings.words, of_settings.command),
    Input("operations", requests.asked(), checks.operation, is_of_backend=True),
    Input("units of work", requests.asked(), checks.unit_of_work, is_of_backend=True),
    Input("lines", texts.lines(), checks.line, is_of_backend=True),
    Input("streams of lines", texts.streams, checks.stream, is_of_backend=True),
    Input("round trips", st.tuples(*[values] * 4), round_trip, is_of_backend=True),
)


def try_inputs(kind: Input, bench: Bench, from_seed: int, examples: int) -> Report:
    """So many inputs of a kind, all drawn from a seed; a violation for those that are misjudged."""
    report = Report()
    report.counts.update(dict.fromkeys(("inputs", "accepted", "refused", "misjudged"), 0))

    def seen(is_accepted: bool) -> None:
        report.counts["inputs"] += 1
        report.counts["accepted" if is_accepted else "refused"] += 1

    test = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )(kind.test(bench, seen))
    try:
        seed(from_seed)(test)()
    except Exception as error:
        report.counts["misjudged"] += 1
        report.broken(from_seed, f"{kind.name}: {_told(error)}")
    return report


def _told(error: BaseException) -> str:
    """What was wrong, with the smallest input that Hypothesis found."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(each) for each in error.exceptions)
    notes = " ".join(" ".join(getattr(error, "__notes__", [])).split())
    return f"{type(error).__name__}: {error} ({notes})"[:2_000]


def fuzzed(kind: Input, bench: Bench) -> Callable[[bytes], object]:
    """What makes up one input of a kind from bytes that somebody else has chosen, and judges it."""
    test = settings(database=None, deadline=None)(kind.test(bench, lambda _: None))
    one: Callable[[bytes], object] = test.hypothesis.fuzz_one_input  # type: ignore[attr-defined]  # of Hypothesis's
    return one
