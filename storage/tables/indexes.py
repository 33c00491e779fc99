"""Indexes of some rows only, for whoever makes or checks tables; with them `METADATA` is complete.

To declare one imports SQLAlchemy's dialects for both databases, which readers do without.
"""

from __future__ import annotations

from sqlalchemy import Index, text

from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trials import TRIALS

_IS_USE, _IS_OWN = text("use_id IS NOT NULL"), text("imported_at IS NULL")

# Few trials are uses; an index of all would be taken for "is no use", which chooses nothing.
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
