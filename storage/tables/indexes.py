"""Partial indexes, which complete `METADATA` for making or checking tables.

Their declaration imports SQLAlchemy's dialects for both databases, which readers do not need.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Index, text

from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trials import TRIALS


def _add(name: str, *columns: Column[Any], where: str, unique: bool = False) -> None:
    condition = text(where)
    Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


_TRIAL, _POLICY = TRIALS.c, POLICIES.c
_IS_USE = "use_id IS NOT NULL"
# Few trials are uses; a full index would be used to find the many that are not.
_add("ix_syncswitch_trials_uses", _TRIAL.fingerprint, _TRIAL.policy_version, where=_IS_USE)
_add("uq_syncswitch_trials_use_id", _TRIAL.use_id, where=_IS_USE, unique=True)
_add("uq_syncswitch_policies_study", _POLICY.study, where="imported_at IS NULL", unique=True)
