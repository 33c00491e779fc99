"""What a policy promises, and how sure its speed-up is; what older adaptive searches looked for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0007"
down_revision: str | None = "0006"

_SHARES = ("keep", "kept_share", "baseline_kept_share")
_RATIOS = ("speed_up_low", "speed_up_high")


def upgrade() -> None:
    _policies()
    _searches()


def _policies() -> None:
    """Whatever was found so far keeps the mean accuracy."""
    criterion = sa.Column("criterion", sa.String(length=16), server_default="mean", nullable=False)
    rules = {
        "criterion": "criterion IN ('kept', 'mean')",
        **{name: f"{name} BETWEEN 0 AND 1" for name in _SHARES},
        **{name: f"{name} >= 0" for name in _RATIOS},
    }
    with op.batch_alter_table("syncswitch_policies") as table:
        table.add_column(criterion)
        for name in (*_SHARES, *_RATIOS):
            table.add_column(sa.Column(name, sa.Double(), nullable=True))
        table.add_column(sa.Column("reason", sa.String(length=255), nullable=True))
        for name, rule in rules.items():
            table.create_check_constraint(op.f(f"ck_syncswitch_policies_{name}"), sa.text(rule))


def _searches() -> None:
    """The adaptive rule has another criterion now where nobody says which."""
    searches = sa.table(
        "syncswitch_searches",
        sa.column("study", sa.String()),
        sa.column("strategy", sa.String()),
        sa.column("options", sa.JSON()),
    )
    connection = op.get_bind()
    adaptive = sa.select(searches.c.study, searches.c.options).where(
        searches.c.strategy == "adaptive"
    )
    for study, options in connection.execute(adaptive).all():
        connection.execute(
            searches.update()
            .where(searches.c.study == study)
            .values(options={**options, "criterion": "mean"})
        )
