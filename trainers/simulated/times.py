"""How long a job would take on a cluster, without training it."""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import PhaseRecord, TrialSpec
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.simulated.events import Learner
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.simulated.timeline import Timeline
from syncswitch.trainers.simulated.timing import StepTimes
from syncswitch.trainers.trainer import SilentObserver


@dataclass(frozen=True, slots=True)
class TimedJob:
    """What determines the time of a job.

    Attributes:
        workers: n.
        total_worker_steps: W.
        protocols: Before and after the switch.
        values: P + S of the model; they matter where the profile does not say its size.
    """

    workers: int
    total_worker_steps: int
    protocols: tuple[str, str]
    values: int = 0


def simulate_phases(
    profile: ClusterProfile,
    job: TimedJob,
    switch_percent: float,
    seed: int,
    conditions: RunConditions = RunConditions(),  # noqa: B008 (frozen)
) -> tuple[PhaseRecord, ...]:
    """Plays a run on the virtual clock; nothing is computed.

    Returns:
        The phases of the run, with their times and staleness.
    """
    spec = TrialSpec(_identity(job), switch_percent, seed, conditions=conditions)
    log = RunLog(spec, SilentObserver(), lambda accuracy: False)
    times = StepTimes(profile, job.values, job.total_worker_steps, seed)
    for _ in Timeline(spec, log, times, Learner(), profile.switch_seconds).segments():
        pass
    return log.position.phases


def _identity(job: TimedJob) -> WorkloadIdentity:
    """The identity of a job of which only the time is asked."""
    return WorkloadIdentity(
        name="timed",
        model=None,
        data_set=None,
        loss=None,
        optimizer=None,
        total_worker_steps=job.total_worker_steps,
        batch_size=None,
        learning_rate=None,
        momentum=None,
        learning_rate_boundaries=None,
        metric=None,
        evaluation_interval_worker_steps=job.total_worker_steps,
        workers=job.workers,
        first_protocol=job.protocols[0],
        second_protocol=job.protocols[1],
    )
