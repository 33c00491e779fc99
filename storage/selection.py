"""How people name a workload when they ask for results."""

from __future__ import annotations

import re

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import aliased

from syncswitch.storage.models import PolicyRow, WorkloadRow

__all__ = ["is_workload"]

_FINGERPRINT_PREFIX = re.compile(r"[0-9a-f]{8,64}")


def is_workload(selector: str) -> ColumnElement[bool]:
    """Selects workloads by name, by normal reference, or by 8 or more digits of the fingerprint.

    A workload is also found by a name that it had when one of its policies was published.
    """
    policy = aliased(PolicyRow)
    named = or_(
        WorkloadRow.name == selector,
        WorkloadRow.reference == selector,
        WorkloadRow.fingerprint.in_(select(policy.fingerprint).where(policy.workload == selector)),
    )
    if _FINGERPRINT_PREFIX.fullmatch(selector):
        return or_(named, WorkloadRow.fingerprint.startswith(selector))
    return named
