"""Tells whether the process that makes a run is alive."""

from __future__ import annotations

import socket
from datetime import datetime, timezone

import psutil

from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.values import Owner, StoredTrial

HEARTBEAT_SECONDS = 120.0
"""A searcher on another machine that is silent for longer counts as dead."""

_START_TIME_TOLERANCE_SECONDS = 2.0


def is_alive(owner: Owner) -> bool:
    """Returns whether a process of this machine still runs, and not another with its number."""
    try:
        process = psutil.Process(owner.process_id)
        started_at = process.create_time()
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return abs(started_at - owner.process_started_at) <= _START_TIME_TOLERANCE_SECONDS


def is_run_by_anyone(row: StoredTrial, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> bool:
    """Returns whether a running trial goes on, by its process here or its heartbeat elsewhere."""
    owner = row.owner
    if owner is None or row.heartbeat_at is None:
        return False
    if owner.host == socket.gethostname():
        return is_alive(owner)
    silent = (datetime.now(timezone.utc) - row.heartbeat_at).total_seconds()
    return silent <= heartbeat_seconds


def state_of(row: StoredTrial) -> TrialState:
    """Returns the stored state, or `stale` for a running trial whose process is dead."""
    return (
        TrialState.STALE
        if row.state == TrialState.RUNNING and not is_run_by_anyone(row)
        else row.state
    )
