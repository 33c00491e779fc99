"""Processes that tests wait for."""

from __future__ import annotations

import psutil


def has_ended(process_id: int) -> bool:
    """Also where nobody has asked how."""
    try:
        return psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
