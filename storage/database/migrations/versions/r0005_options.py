"""Options of a search have other names."""

from __future__ import annotations

import json

from alembic import op
from sqlalchemy import text

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Renames columns, a strategy, and options."""
    connection = op.get_bind()
    op.alter_column("syncswitch_searches", "settings", new_column_name="halvings")
    op.alter_column("syncswitch_policies", "keep", new_column_name="min_kept_share")
    connection.execute(
        text("UPDATE syncswitch_searches SET strategy = 'sweep' WHERE strategy = 'comparison'")
    )
    names = {"keep": "min_kept_share", "uses": "expected_runs"}
    searches = connection.execute(text("SELECT study, options FROM syncswitch_searches")).all()
    for study, stored in searches:
        options = json.loads(stored) if isinstance(stored, str) else stored
        named = {names.get(name, name): value for name, value in options.items()}
        connection.execute(
            text("UPDATE syncswitch_searches SET options = :options WHERE study = :study"),
            {"options": json.dumps(named), "study": study},
        )
