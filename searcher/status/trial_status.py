"""What is known of single runs: how far one under way is, why one failed, when one was seen."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from syncswitch.searcher.strategies.trial_costs import TrialCosts
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.values import StoredTrial

# Before it has done this much, what a run needs to begin counts for too much.
_LEAST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run under way.

    Attributes:
        replicate: Number of this repeat of the switch point, from 0.
        state: `running`, or `stale` where its process is dead: it will be made again.
        speculative: It is only likely to be needed.
        process_id: Of its searcher.
        worker_steps: Done so far, those of a fork's prefix included.
        accuracy: Of the last test; None before the first.
        cost: Of its own part so far, in trainings with the first protocol alone.
        remaining_seconds: As estimated; None where nothing says it yet.
        silent_seconds: Since its searcher last reported.
    """

    trial_number: int
    switch_percent: float
    replicate: int
    state: TrialState
    speculative: bool
    host: str | None
    process_id: int | None
    worker_steps: int
    total_worker_steps: int
    accuracy: float | None
    cost: float
    elapsed_seconds: float
    remaining_seconds: float | None
    silent_seconds: float


def run_status(
    row: StoredTrial,
    state: TrialState,
    now: datetime,
    costs: TrialCosts,
    pace: float | None,
    accuracy: float | None,
) -> RunStatus:
    """How far a run is.

    The pace is the seconds of wall that a training with the first protocol alone took so far; None
    where no run has ended.
    """
    assert row.trial_number is not None
    elapsed = (now - row.started_at).total_seconds() if row.started_at else 0.0
    silent = (now - row.heartbeat_at).total_seconds() if row.heartbeat_at else elapsed
    start = (row.fork_percent or 0.0) / 100
    # A fork reports nothing before its first own worker-step.
    share = max(row.worker_steps / row.total_worker_steps, start)
    # Beyond where runs end in the mean, it may be one that is made to its end.
    end = costs.end if share < costs.end else 1.0
    begun, now_at, at_end = (costs.until(row.switch_percent, to) for to in (start, share, end))
    done, rest = now_at - begun, at_end - now_at
    remaining = None
    if done > _LEAST_SHARE * (done + rest) or (done > 0 and pace is None):
        # It did this much in the time until its last report.
        remaining = max(0.0, (elapsed - silent) / done * rest - silent)
    elif pace is not None:
        remaining = max(0.0, pace * rest - elapsed)
    return RunStatus(
        trial_number=row.trial_number,
        switch_percent=row.switch_percent,
        replicate=row.replicate,
        state=state,
        speculative=row.speculative,
        host=row.host,
        process_id=row.process_id,
        worker_steps=round(share * row.total_worker_steps),
        total_worker_steps=row.total_worker_steps,
        accuracy=accuracy,
        cost=done,
        elapsed_seconds=max(0.0, elapsed),
        remaining_seconds=remaining if state == TrialState.RUNNING else None,
        silent_seconds=max(0.0, silent),
    )


def last_failure(rows: Mapping[int, StoredTrial], states: Mapping[int, TrialState]) -> str | None:
    """Which run failed last, and why; not one that somebody stopped. None where none did."""
    failed = [
        (row.ended_at or row.heartbeat_at or row.started_at, number)
        for number, row in rows.items()
        if states[number] in {TrialState.FAILED, TrialState.STALE}
        and not (row.is_cancelled or row.is_interrupted)
    ]
    if not failed:
        return None
    number = max(failed, key=lambda one: (one[0] is not None, one))[1]
    row = rows[number]
    reason = row.failure or "its process is gone"
    return f"{row.switch_percent:g} %, run {row.replicate + 1}: {reason}"


def last_sign(rows: Mapping[int, StoredTrial]) -> datetime | None:
    """When somebody last wrote about a run; None without one."""
    times = itertools.chain.from_iterable(
        (row.started_at, row.heartbeat_at, row.ended_at) for row in rows.values()
    )
    return max((time for time in times if time is not None), default=None)
