"""Partial indexes, which complete `METADATA` for making or checking tables.

Their declaration imports SQLAlchemy's dialects for both databases, which readers do not need.
"""

from __future__ import annotations

from sqlalchemy import Index, text

from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trials import TRIALS

_IS_USE, _IS_OWN = text("use_id IS NOT NULL"), text("imported_at IS NULL")

# Few trials are uses; a full index would be used to find the many that are not.
Index(
    "ix_syncswitch_trials_uses",
    TRIALS.c.fingerprint,
    TRIALS.c.policy_version,
    sqlite_where=_IS_USE,
    postgresql_where=_IS_USE,
)
Index(
    "uq_syncswitch_trials_use_id",
    TRIALS.c.use_id,
    unique=True,
    sqlite_where=_IS_USE,
    postgresql_where=_IS_USE,
)
Index(
    "uq_syncswitch_policies_study",
    POLICIES.c.study,
    unique=True,
    sqlite_where=_IS_OWN,
    postgresql_where=_IS_OWN,
)
