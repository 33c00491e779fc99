"""A switch that failed names what it switched to, and a trial has the times of its steps."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Adds both; before, all switches of a run were to its own second protocol."""
    op.execute("ALTER TABLE syncswitch_trials ADD COLUMN step_seconds JSON")
    op.execute("ALTER TABLE syncswitch_failed_switches ADD COLUMN second_protocol VARCHAR(64)")
    op.execute(
        "UPDATE syncswitch_failed_switches SET second_protocol = (SELECT t.second_protocol"
        " FROM syncswitch_trials AS t WHERE t.trial_id = syncswitch_failed_switches.trial_id)"
    )
