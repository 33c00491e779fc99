"""From what a run measured to what a rule sees of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from syncswitch.searcher.decision import Observation, RunCost
from syncswitch.storage.records import PhaseRecord
from syncswitch.storage.trials import StoredTrial

__all__ = ["Job", "MeasuredRun", "finished_runs", "measures", "observation"]


class Job(Protocol):
    """What was trained: a `WorkloadIdentity`, or a stored trial of it."""

    @property
    def total_worker_steps(self) -> int:
        """W."""

    @property
    def first_protocol(self) -> str:
        """Before the switch."""

    @property
    def second_protocol(self) -> str:
        """After it."""


class MeasuredRun(Protocol):
    """A completed run, just recorded or read again."""

    @property
    def phases(self) -> Sequence[PhaseRecord]:
        """Of the run itself, without what it inherited."""

    @property
    def worker_steps(self) -> int:
        """Done at the end, those of a fork's prefix included."""

    @property
    def training_seconds(self) -> float | None:
        """Of the whole run."""

    @property
    def inherited_seconds(self) -> float | None:
        """The part that a fork did not pay for itself."""

    @property
    def diverged(self) -> bool | None:
        """Whether the training blew up."""

    @property
    def stopped_early(self) -> bool | None:
        """Whether it was not made to its end."""


def measures(run: MeasuredRun, job: Job, plateau_accuracy: float | None = None) -> dict[str, Any]:
    """What Optuna's study keeps of a run beside its accuracy, as JSON values.

    Args:
        run: Completed.
        job: What it trained.
        plateau_accuracy: What the run would have measured had it been stopped; None where it would
            not have been.
    """
    W = job.total_worker_steps
    paid = (run.training_seconds or 0.0) - (run.inherited_seconds or 0.0)
    return {
        "paid_seconds": max(0.0, paid),
        "first_seconds": _whole_seconds(run.phases, job.first_protocol, W),
        "second_seconds": _whole_seconds(run.phases, job.second_protocol, W),
        "reached_percent": min(100.0, 100.0 * run.worker_steps / W),
        "stopped_early": bool(run.stopped_early),
        "plateau_accuracy": plateau_accuracy,
    }


def observation(
    switch_percent: float,
    accuracy: float,
    *,
    diverged: bool,
    trial_number: int,
    replicate: int,
    measured: Mapping[str, Any] | None,
) -> Observation:
    """A run as a rule sees it.

    Args:
        switch_percent: The setting.
        accuracy: Converged accuracy.
        diverged: Whether the training blew up.
        trial_number: In its study.
        replicate: Of the setting.
        measured: What `measures` says of it; None where nobody kept it.
    """
    values = dict(measured or {})
    stopped_early = bool(values.pop("stopped_early", False))
    plateau_accuracy = values.pop("plateau_accuracy", None)
    return Observation(
        switch_percent=switch_percent,
        accuracy=accuracy,
        diverged=diverged,
        trial_number=trial_number,
        replicate=replicate,
        stopped_early=stopped_early,
        plateau_accuracy=plateau_accuracy,
        cost=RunCost(**values) if values else None,
    )


def finished_runs(rows: Mapping[int, StoredTrial]) -> list[Observation]:
    """The completed trials of a search as its rule sees them."""
    return [
        observation(
            row.switch_percent,
            row.converged_accuracy,
            diverged=bool(row.diverged),
            trial_number=number,
            replicate=row.replicate,
            measured=measures(row, row),
        )
        for number, row in rows.items()
        if row.state == "complete" and row.converged_accuracy is not None
    ]


def _whole_seconds(
    phases: Sequence[PhaseRecord], protocol: str, total_worker_steps: int
) -> float | None:
    """A whole training with one protocol at the pace of these phases."""
    mine = [phase for phase in phases if phase.protocol == protocol]
    steps = sum(phase.end_worker_step - phase.start_worker_step for phase in mine)
    seconds = math.fsum(phase.seconds for phase in mine)
    return total_worker_steps * seconds / steps if steps and seconds else None
