"""Drift as Alembic sees it: an operation for each fact, so that `alembic check` reports them all."""

from __future__ import annotations

from collections.abc import Iterable

from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations.ops import MigrateOperation, MigrationScript

from broker.schema.printable import one_line


class DriftOperation(MigrateOperation):
    """A fact in which the live database and the models differ; nothing that could be run."""

    def __init__(self, fact: str) -> None:
        self.fact = fact

    def to_diff_tuple(self) -> tuple[str, str]:
        """What `alembic check` counts and prints."""
        return "drift", self.fact

    def reverse(self) -> DriftOperation:
        """The same fact: Alembic derives the downgrade of a new revision from its upgrade."""
        return self


@renderers.dispatch_for(DriftOperation)
def _render(_context: AutogenContext, operation: DriftOperation) -> str:
    """The fact as one comment, for script.py.mako; a string in SQL may hold ends of lines."""
    return f"# drift: {one_line(operation.fact)}"


def report_drift(facts: Iterable[str], directives: Iterable[MigrationScript]) -> None:
    """Put the facts in the place of what Alembic has compared itself."""
    operations = [DriftOperation(fact) for fact in facts]
    for script in directives:
        for upgrade, downgrade in zip(
            script.upgrade_ops_list, script.downgrade_ops_list, strict=True
        ):
            upgrade.ops = list(operations)
            downgrade.ops = []
