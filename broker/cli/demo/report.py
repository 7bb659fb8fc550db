"""What the demo shows while it runs, and what it says in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from broker.canonical import encode
from broker.cli.console import progress_bars
from broker.cli.demo.claims import Checks, Claim
from broker.cli.demo.migration import MigratedStep
from broker.messages import StoredOutboxMessage

LAST_LINES = 5
FAILURES_SHOWN = 10


@dataclass
class Figures:
    """What was done, in numbers."""

    windows: int
    runs: int
    steps: list[MigratedStep] = field(default_factory=list)
    commits: int = 0
    events: int = 0
    takeovers: int = 0
    delivered: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def to_json(self, checks: Checks) -> dict[str, Any]:
        """All figures and the tally of the claims, for `--json`."""
        return {
            "ok": checks.passed,
            "windows": self.windows,
            "runs": self.runs,
            "migration": [asdict(step) for step in self.steps],
            "commits": self.commits,
            "events": self.events,
            "takeovers": self.takeovers,
            "delivered": dict(self.delivered),
            "seconds": round(self.seconds, 3),
            "claims": {
                claim.name.lower(): {
                    "claim": claim.value,
                    "checked": checks.counts[claim],
                    "failed": checks.failed(claim),
                }
                for claim in Claim
            },
            "failures": [
                {"claim": failure.claim.name.lower(), "about": failure.about}
                | {"reason": failure.reason}
                for failure in checks.failures
            ],
        }


class Display:
    """The screen: what is under way on stderr, as bars, and what came of it on stdout."""

    def __init__(self, *, silent: bool = False) -> None:
        self.console = Console(quiet=silent, highlight=False)
        self.console.soft_wrap = not self.console.is_terminal

    def say(self, line: str) -> None:
        """Print a line about the part that begins."""
        self.console.print(f"[bold]{escape(line)}[/bold]")

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """A bar for a part of the work; gives what is to be called for each thing done."""
        with progress_bars() as bars:
            task = bars.add_task(what, total=total)
            yield lambda: bars.advance(task)

    def step(self, step: MigratedStep) -> None:
        """Say what a step of the migration changed."""
        self.console.print(f"  [cyan]{step.revision}[/cyan]  {escape(step.title)}")
        for what, number in step.changes.items():
            self.console.print(f"        {escape(what)}: {number:,}")
        if step.added:
            self._print_indented(Text(f"new: {', '.join(step.added)}", style="dim"))

    def _print_indented(self, text: Text) -> None:
        if self.console.soft_wrap:  # where padding would cut it off at the width
            self.console.print(Text(" " * 8).append_text(text))
        else:
            self.console.print(Padding.indent(text, 8))

    def delivered(self, messages: list[StoredOutboxMessage]) -> None:
        """The last messages, and how many went to each destination."""
        for message in messages[-LAST_LINES:]:
            payload = Text(encode(message.payload).stored)
            self.console.print(f"  {message.outbox_id} -> {message.destination}: ", payload, sep="")
        counts = Counter(message.destination for message in messages)
        summary = ", ".join(f"{number:,} to {name}" for name, number in sorted(counts.items()))
        self.console.print(f"  … {len(messages):,} in all: {escape(summary)}")

    def close(self, figures: Figures, checks: Checks) -> None:
        """The closing table, and every failure by name."""
        self.console.print(_table(checks))
        for failure in checks.failures[:FAILURES_SHOWN]:
            line = f"FAILED  {failure.claim.value}: {failure.about}: {failure.reason}"
            self.console.print(Text(line, style="red"))
        self.console.print(Text(_summary(figures, checks), style="bold"))


def _table(checks: Checks) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading, justify in (("claim", "left"), ("checked", "right"), ("", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]  # the words are literal
    for claim in Claim:
        failed = checks.failed(claim)
        verdict = "[red]FAILED[/red]" if failed else "[green]holds[/green]"
        table.add_row(claim.value, f"{checks.counts[claim]:,}", verdict)
    return table


def _summary(figures: Figures, checks: Checks) -> str:
    failed = sum(1 for claim in Claim if checks.failed(claim))
    verdict = (
        f"{failed} of {len(Claim)} claims FAILED" if failed else "every claim was checked and holds"
    )
    return (
        f"{figures.windows} windows, {figures.runs} runs, {figures.commits:,} commits,"
        f" {figures.events:,} events, {figures.delivered.total():,} messages,"
        f" {checks.counts.total():,} checks in {figures.seconds:.1f} s: {verdict}"
    )
