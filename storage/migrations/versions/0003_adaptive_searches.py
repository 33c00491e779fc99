"""What an adaptive search leaves: its options, how sure its policy is, and checkpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0003"
down_revision: str | None = "0002"


def upgrade() -> None:
    _searches()
    _policies()
    _checkpoints()


def _searches() -> None:
    """The rules of older searches had no options."""
    op.add_column(
        "syncswitch_searches",
        sa.Column("options", sa.JSON(), server_default="{}", nullable=False),
    )


def _policies() -> None:
    with op.batch_alter_table("syncswitch_policies") as table:
        table.add_column(sa.Column("confidence", sa.Double(), nullable=True))
        table.create_check_constraint(
            op.f("ck_syncswitch_policies_confidence"), sa.text("confidence BETWEEN 0 AND 1")
        )


def _checkpoints() -> None:
    op.create_table(
        "syncswitch_checkpoints",
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("percent", sa.Double(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.CheckConstraint(
            "percent BETWEEN 0 AND 100", name=op.f("ck_syncswitch_checkpoints_percent")
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"],
            ["syncswitch_trials.trial_id"],
            name=op.f("fk_syncswitch_checkpoints_trial_id"),
        ),
        sa.PrimaryKeyConstraint("trial_id", "percent", name=op.f("pk_syncswitch_checkpoints")),
    )
