"""How people name a workload when they ask for results."""

from __future__ import annotations

import re

from sqlalchemy import ColumnElement, or_

from syncswitch.storage.models import WorkloadRow

__all__ = ["is_workload"]

_FINGERPRINT_PREFIX = re.compile(r"[0-9a-f]{8,64}")


def is_workload(selector: str) -> ColumnElement[bool]:
    """Selects workloads by name, by normal reference, or by 8 or more digits of the fingerprint."""
    named = or_(WorkloadRow.name == selector, WorkloadRow.reference == selector)
    if _FINGERPRINT_PREFIX.fullmatch(selector):
        return or_(named, WorkloadRow.fingerprint.startswith(selector))
    return named
