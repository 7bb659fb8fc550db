"""The drawing of a soak."""

from __future__ import annotations

from pathlib import Path

from tests.proof.soak.plots import PANELS, draw
from tests.test_benchmark_plots import need_matplotlib, words


def test_there_is_a_panel_for_each_kind_of_series_that_was_seen(tmp_path: Path) -> None:
    need_matplotlib()
    samples = [(minute / 10, 80.0 + minute) for minute in range(20)]
    path = tmp_path / "new" / "soak.svg"
    draw({"memory of p0": samples, "memory of p1": samples, "log": samples}, path)
    drawn = words(path.read_bytes())
    assert [title for title, _ in PANELS if title in drawn] == [
        "memory of each process, MiB",
        "write-ahead log, MiB",
    ]
    assert {"p0", "p1"} < set(drawn)
