"""The application's first revision, without the column that its model has by now."""

import sqlalchemy as sa
from alembic import op

revision = "a001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("order_id", sa.String(), primary_key=True),
        sa.Column("stream_id", sa.String(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("orders")
