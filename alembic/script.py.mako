"""${message}"""

from __future__ import annotations

from alembic import op

from broker.schema.steps import step

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    with step(op, revision, ${repr(message)}, before=3, after=3) as current:
        ${upgrades if upgrades else "current.execute()"}


def downgrade() -> None:
    with step(op, revision, ${repr("undo: " + message)}, before=3, after=3) as current:
        ${downgrades if downgrades else "current.execute()"}
