"""The plots: of the data that they are given, the same to the byte every time, and small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import optional
from benchmarks.optional import NotInstalled
from benchmarks.plots import Series, latency_by_journal_size, throughput_by_callers

CALLERS = (1, 2, 4, 8, 16, 32, 64, 200)
SIZES = (1_000, 5_000, 20_000, 50_000, 200_000)
MOST_BYTES = 60_000


def series(labels: str, over: tuple[int, ...]) -> list[Series]:
    """A line for each letter, each a little higher than the last."""
    return [
        Series(label, [(x, 1.5 + number + index) for index, x in enumerate(over)])
        for number, label in enumerate(labels)
    ]


def draw(folder: Path) -> list[bytes]:
    """Both plots, as full as they get."""
    need_matplotlib()
    throughput, latency = folder / "new" / "throughput.svg", folder / "new" / "latency.svg"
    throughput_by_callers(series("abc", CALLERS), 2.5, throughput)
    latency_by_journal_size(series("abc", SIZES), series("abc", SIZES), latency)
    return [throughput.read_bytes(), latency.read_bytes()]


def need_matplotlib() -> None:
    """Skip the test, and say so, unless matplotlib is there."""
    reason = "matplotlib is not installed: uv run --group benchmarks pytest"
    pytest.importorskip("matplotlib", reason=reason)


def words(drawing: bytes) -> list[str]:
    """The texts of a drawing: they are drawn as shapes, each with its text in a comment."""
    return re.findall(r"<!-- (.+?) -->", drawing.decode())


def test_the_same_data_give_the_same_small_files(tmp_path: Path) -> None:
    first, second = draw(tmp_path / "first"), draw(tmp_path / "second")
    assert first == second
    assert max(map(len, first)) < MOST_BYTES


def test_other_data_give_another_drawing(tmp_path: Path) -> None:
    first, _ = draw(tmp_path)
    other = tmp_path / "other.svg"
    throughput_by_callers(series("abc", CALLERS), 3.5, other)
    assert other.read_bytes() != first


def test_ticks_are_what_was_measured_and_axes_have_units(tmp_path: Path) -> None:
    throughput, latency = map(words, draw(tmp_path))
    assert [text for text in throughput if text.isdecimal()][:8] == [str(n) for n in CALLERS]
    assert {"callers at once", "commits per second", "raw floor, one caller"} < set(throughput)
    assert {"a", "b", "c"} < set(throughput)
    assert latency[:5] == [str(size // 1_000) for size in SIZES]
    assert {"median", "99th percentile", "milliseconds per commit"} < set(latency)
    assert [text for text in latency if text in "abc"] == ["a", "b", "c"]


def test_there_are_no_other_ticks_within_a_decade(tmp_path: Path) -> None:
    need_matplotlib()
    throughput_by_callers(series("a", (2, 4, 5)), 2.5, tmp_path / "plot.svg")
    drawn = words((tmp_path / "plot.svg").read_bytes())
    assert drawn[: drawn.index("callers at once")] == ["2", "4", "5"]


def test_more_series_than_can_be_told_apart_are_refused(tmp_path: Path) -> None:
    need_matplotlib()
    with pytest.raises(ValueError, match="zip"):
        throughput_by_callers(series("abcde", CALLERS), 2.5, tmp_path / "plot.svg")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional, "version_of", lambda _package: None)
    with pytest.raises(NotInstalled, match=r"^matplotlib: not installed; `uv run --group .+`"):
        throughput_by_callers(series("a", CALLERS), 2.5, tmp_path / "plot.svg")
    assert not list(tmp_path.iterdir())
