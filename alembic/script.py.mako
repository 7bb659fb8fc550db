<%!
    def docstring(text):
        return text.replace("\\", r"\\").replace('"', r"\"")

    # A frame takes statements of its own; of what Alembic renders only the drift is of use.
    def drift_lines(rendered):
        lines = (line.strip() for line in (rendered or "").split("\n"))
        return [line for line in lines if line.startswith("# drift: ")]
%>\
"""${message | docstring}"""

from __future__ import annotations

from alembic import op

from broker.schema.steps import step

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    with step(op, revision, ${repr(message)}, before=3, after=3) as current:
% for line in drift_lines(upgrades):
        ${line}
% endfor
        current.execute()


def downgrade() -> None:
    with step(op, revision, ${repr("undo: " + message)}, before=3, after=3) as current:
        current.execute()
