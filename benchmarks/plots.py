"""Plots of what was measured, as SVG that is the same to the byte for the same data.

Two drawings: throughput by the number of callers, and latency by the size of the journal. Each
series has a colour of its own that also the colour-blind tell apart, and a marker of its own. The
background is white, for a page that may be light or dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.optional import require_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours, those of enough contrast to white; with each a marker.
_STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#000000", "D"))
_SETTINGS = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    # Without a salt, the names of an SVG's elements are drawn at random.
    "svg.hashsalt": "broker",
}


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot: its label, and points in the units of that plot, x growing."""

    label: str
    points: Sequence[tuple[float, float]]


def throughput_by_callers(series: Sequence[Series], floor: float, path: Path) -> None:
    """Plot commits a second (y) by the number of callers at once (x) into an SVG file.

    `floor` is the commits a second of the raw floor by itself, one after another: a level line.
    There are four series at most. Raises `NotInstalled` without matplotlib.
    """
    with drawing(path, height=4.2) as figure:
        axes = figure.subplots()
        axes.axhline(floor, color="#555555", linestyle="--", label="raw floor, one caller")
        _draw(axes, series)
        axes.set_xlabel("callers at once")
        axes.set_ylabel("commits per second")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)


def latency_by_journal_size(medians: Sequence[Series], p99s: Sequence[Series], path: Path) -> None:
    """Plot the milliseconds of a commit (y) by the commits before it (x) into an SVG file.

    Medians and 99th percentiles have a panel each, for they are far apart, and the same series,
    four at most, in the same order. Raises `NotInstalled` without matplotlib.
    """
    with drawing(path, height=3.6) as figure:
        for axes, drawn, title in zip(
            figure.subplots(1, 2), (medians, p99s), ("median", "99th percentile"), strict=True
        ):
            _draw(axes, drawn, x_unit=1_000)
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("commits in the journal, thousands")
            axes.set_ylabel("milliseconds per commit")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=4)


@contextmanager
def drawing(path: Path, height: float) -> Iterator[Figure]:
    """A figure to draw on, written at the end; no window, no display, no state but its own."""
    require_installed("matplotlib")
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", _SETTINGS]):
        figure = Figure(figsize=(7.2, height), layout="constrained")
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _draw(axes: Axes, series: Sequence[Series], x_unit: int = 1) -> None:
    """The lines, from zero upwards, over a logarithmic axis whose ticks are the measured x values."""
    for each, (colour, marker) in zip(series, _STYLES[: len(series)], strict=True):
        x, y = zip(*each.points, strict=True)
        axes.plot(x, y, color=colour, marker=marker, markersize=5, label=each.label)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", nbins=6)
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:,g}")
    measured = sorted({x for each in series for x, _ in each.points})
    axes.set_xscale("log")
    axes.set_xticks(measured, [f"{value / x_unit:g}" for value in measured])
    axes.minorticks_off()
