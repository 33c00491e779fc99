"""Values that the trial store takes and returns, besides the records of runs."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from syncswitch.storage.errors import FatalError
from syncswitch.storage.metrics import whole_run_seconds
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import PhaseRecord, TrialRecord, TrialState

CANCELLED = "no longer needed: the search is decided"
INTERRUPTED = "interrupted"
"""Why a run was stopped that nothing was wrong with. It is stored as failed, with what it cost."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that runs a trial.

    A process identifier is given out again later; with the start time it names one process.
    """

    host: str
    process_id: int
    process_started_at: float

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        import psutil  # readers do without

        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())


@dataclass(frozen=True, slots=True)
class SearchInfo:
    """The settings of one search, which is one Optuna study.

    Attributes:
        study: Name of the Optuna study.
        fingerprint: Of the workload.
        strategy: Name of the strategy that decides.
        settings: M, how many switch points the search may try.
        runs: R, repeats per switch point.
        threshold: beta, the accuracy that may be lost.
        target_accuracy: As given; None where the search measures it.
        trainer: Name of what trains.
        base_seed: From which the seeds of the trials follow.
        options: What else determines the strategy, as JSON values by name; they stay those of the
            search's first registration.
        pairs: The pairs of protocols that were searched together; empty for a search of its own.
        dropped: Why it has no policy, where a search over pairs of protocols preferred another one.
    """

    study: str
    fingerprint: str
    strategy: str
    settings: int
    runs: int
    threshold: float
    target_accuracy: float | None
    trainer: str
    base_seed: int
    options: Mapping[str, bool | int | float | str | list[Any] | None] = field(default_factory=dict)
    pairs: Sequence[str] = field(default_factory=list)
    dropped: str | None = None


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a run left another one of its search, with the percent of W that they share."""

    trial_number: int
    percent: float


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint that a complete trial of a search left; the file may be gone by now.

    Attributes:
        replicate: Number of this repeat of its switch point.
        path: Of the file, absolute.
    """

    trial_number: int
    replicate: int
    percent: float
    path: Path
    host: str


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """One trial as the database has it; times are in UTC.

    What is measured at the end is None until the trial is complete; of a cancelled one its times
    are known, too. `worker_steps` is the progress so far, and `heartbeat_at` when the owner last
    reported it. A trial of a search has a study and a number in it; an imported one has a source
    instead, and no owner; a use has its identifier and the version of its policy.
    `candidate_percent` is the switch point that the run counts for: of a search's run its switch
    point, of an imported run what was declared, None for a run that counts for none. A
    `speculative` run began in advance, before the search was known to need it. `guard` is `off`,
    `quiet` or `alarmed`; `held_percent` is the switch with which the run came to its end.
    """

    trial_id: int
    study: str | None
    trial_number: int | None
    source: str | None
    use_id: str | None
    policy_version: int | None
    workload: str
    fingerprint: str
    workers: int
    simulated_cluster: str | None
    first_protocol: str
    second_protocol: str
    candidate_percent: float | None
    switch_percent: float
    replicate: int
    seed: int | None
    parent_trial_id: int | None
    fork_percent: float | None
    conditions: RunConditions
    speculative: bool
    state: TrialState
    converged_accuracy: float | None
    converged_evaluations: int | None
    final_accuracy: float | None
    converged: bool | None
    diverged: bool | None
    stopped_early: bool | None
    plateau_accuracy: float | None
    guard: str | None
    held_percent: float | None
    failed_switches: tuple[FailedSwitch, ...]
    training_seconds: float | None
    inherited_seconds: float | None
    switch_overhead_seconds: float | None
    target_accuracy: float | None
    time_to_accuracy_seconds: float | None
    worker_steps: int
    total_worker_steps: int
    phases: tuple[PhaseRecord, ...]
    started_at: datetime | None
    ended_at: datetime | None
    heartbeat_at: datetime | None
    host: str | None
    process_id: int | None
    process_started_at: float | None
    failure: str | None

    @property
    def kind(self) -> str:
        """`search`, `import`, or `use`."""
        if self.study is not None:
            return "search"
        return "use" if self.source is None else "import"

    @property
    def owner(self) -> Owner | None:
        """The process that runs or ran it; None for an imported run."""
        if self.host is None or self.process_id is None or self.process_started_at is None:
            return None
        return Owner(self.host, self.process_id, self.process_started_at)

    @property
    def is_cancelled(self) -> bool:
        """Whether it was stopped because the search no longer needed it."""
        return self.failure == CANCELLED

    @property
    def is_interrupted(self) -> bool:
        """Whether whoever made it stopped it with Ctrl-C."""
        return self.failure == INTERRUPTED

    @property
    def paid_seconds(self) -> float | None:
        """Training time that it cost itself, also where it was cancelled; None where unknown."""
        if self.training_seconds is None or self.inherited_seconds is None:
            return None
        return self.training_seconds - self.inherited_seconds

    @property
    def whole_run_seconds(self) -> float | None:
        """Training time, of a stopped run what the whole would have taken; see `metrics`."""
        if self.state != TrialState.COMPLETE:
            return None
        goes_over = self.switch_percent < 100.0
        return whole_run_seconds(
            self.training_seconds,
            self.phases,
            self.worker_steps,
            self.total_worker_steps,
            self.stopped_early,
            diverged=self.diverged,
            final_protocol=self.second_protocol if goes_over else self.first_protocol,
        )


def check_times(record: TrialRecord) -> None:
    """Refuses times that are not finite, which PostgreSQL would take and SQLite would not.

    Raises FatalError.
    """
    failed = record.guard.failed if record.guard else ()
    times = [
        record.training_seconds,
        record.inherited_seconds,
        record.switch_overhead_seconds,
        *(phase.seconds for phase in record.phases),
        *(evaluation.elapsed_seconds for evaluation in record.evaluations),
        *(event.elapsed_seconds for event in record.events),
        *(event.seconds for event in record.events if event.seconds is not None),
        *(one.elapsed_seconds for one in failed),
        *(one.lost_seconds for one in failed),
    ]
    wrong = [seconds for seconds in times if not math.isfinite(seconds)]
    if wrong:
        raise FatalError(f"the trainer reported a time of {wrong[0]} seconds; allowed: from 0 on")
