"""A drawing of what a soak has seen: a panel for each kind of series, over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.plots import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Samples = Sequence[tuple[float, float]]

#: What each panel has: its title with a unit, and by which words the names of its series begin.
PANELS = (
    ("memory of each process, MiB", ("memory of",)),
    ("open files of each process", ("files of",)),
    ("threads of each process", ("threads of",)),
    ("bytes per event", ("bytes per event",)),
    ("write-ahead log, MiB", ("log", "server's log")),
    ("commits a second", ("commits a second",)),
    ("latency of commits, ms", ("latency",)),
    ("dead rows", ("dead rows",)),
    ("connections of the server", ("connections",)),
    ("the server's own memory, MiB", ("server's memory",)),
)


def draw(series: Mapping[str, Samples], path: Path) -> None:
    """Draw series of samples, each a time in minutes and a value, into an SVG file.

    Raises `NotInstalled` without matplotlib.
    """
    panels = [
        (title, {name: samples for name, samples in series.items() if name.startswith(begins)})
        for title, begins in PANELS
    ]
    panels = [(title, drawn) for title, drawn in panels if drawn]
    height = (len(panels) + 1) // 2
    with drawing(path, height=2.2 * height) as figure:
        grid = figure.subplots(height, 2, squeeze=False).flatten()
        for axes, (title, drawn) in zip(grid, panels, strict=False):
            _draw(axes, title, drawn)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()


def _draw(axes: Axes, title: str, series: Mapping[str, Samples]) -> None:
    for name, samples in series.items():
        minutes, values = zip(*samples, strict=True)
        axes.plot(minutes, values, linewidth=1, label=name.split(" of ")[-1])
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("minutes")
    axes.set_ylim(bottom=0)
    if len(series) > 1:
        axes.legend(fontsize="small")
