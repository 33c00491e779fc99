"""How people name a workload when they ask for results."""

from __future__ import annotations

import re

from sqlalchemy import ColumnElement, select, union

from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trials import WORKLOADS

# The query itself may be about workloads or policies.
_WORKLOAD, _POLICY = WORKLOADS.alias().c, POLICIES.alias().c
_FINGERPRINT_PREFIX = re.compile(r"[0-9a-f]{8,64}")


def is_workload(selector: str) -> ColumnElement[bool]:
    """Selects workloads by name, by normal reference, or by 8 or more digits of the fingerprint.

    A workload is also found by a name that it had when one of its policies was published.
    """
    known = [
        select(_WORKLOAD.fingerprint).where(_WORKLOAD.name == selector),
        select(_WORKLOAD.fingerprint).where(_WORKLOAD.reference == selector),
        select(_POLICY.fingerprint).where(_POLICY.workload == selector),
    ]
    if _FINGERPRINT_PREFIX.fullmatch(selector):
        # Unlike LIKE, a range uses the index; "g" follows the last hexadecimal digit.
        start = _WORKLOAD.fingerprint.between(selector, f"{selector}g")
        known.append(select(_WORKLOAD.fingerprint).where(start))
    # For alternatives in one condition PostgreSQL would read all trials.
    return WORKLOADS.c.fingerprint.in_(union(*known))
