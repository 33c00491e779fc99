"""Whether the process that makes a run still lives."""

from __future__ import annotations

import socket
from datetime import datetime, timezone
from typing import Protocol

import psutil

from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.values import Owner

HEARTBEAT_SECONDS = 120.0
"""A searcher on another machine that is silent for longer is taken for dead."""

_START_TIME_TOLERANCE_SECONDS = 2.0


class Owned(Protocol):
    """A trial, as far as its life is concerned."""

    @property
    def state(self) -> TrialState:
        """The stored state."""

    @property
    def owner(self) -> Owner | None:
        """The process that runs or ran it."""

    @property
    def heartbeat_at(self) -> datetime | None:
        """When that last reported."""


def is_alive(owner: Owner) -> bool:
    """Whether this process of this machine still runs; its number may belong to another by now."""
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


def is_run_by_anyone(row: Owned, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> bool:
    """Whether a running trial goes on: by its process here, by its heartbeat elsewhere."""
    owner = row.owner
    if owner is None or row.heartbeat_at is None:
        return False
    if owner.host == socket.gethostname():
        return is_alive(owner)
    silent = (datetime.now(timezone.utc) - row.heartbeat_at).total_seconds()
    return silent <= heartbeat_seconds


def state_of(row: Owned) -> TrialState:
    """The stored state, but `stale` where the process of a running trial is dead."""
    return (
        TrialState.STALE
        if row.state == TrialState.RUNNING and not is_run_by_anyone(row)
        else row.state
    )
