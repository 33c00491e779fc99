"""How people name a workload when they ask for results."""

from __future__ import annotations

import re

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import aliased

from syncswitch.storage.models import PolicyRow, WorkloadRow

__all__ = ["is_workload"]

_POLICY = aliased(PolicyRow)  # the query itself may be about policies
_FINGERPRINT_PREFIX = re.compile(r"[0-9a-f]{8,64}")


def is_workload(selector: str) -> ColumnElement[bool]:
    """Selects workloads by name, by normal reference, or by 8 or more digits of the fingerprint.

    A workload is also found by a name that it had when one of its policies was published.
    """
    named = or_(
        WorkloadRow.name == selector,
        WorkloadRow.reference == selector,
        WorkloadRow.fingerprint.in_(
            select(_POLICY.fingerprint).where(_POLICY.workload == selector)
        ),
    )
    if _FINGERPRINT_PREFIX.fullmatch(selector):
        # Unlike LIKE, a range uses the index; "g" follows the last hexadecimal digit.
        return or_(named, WorkloadRow.fingerprint.between(selector, f"{selector}g"))
    return named
