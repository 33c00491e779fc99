"""How long a job would take on a cluster, without training it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.storage.records import PhaseRecord, TrialSpec, WorkloadIdentity
from syncswitch.trainers.phases import joined_phases
from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.run_record import phase_record
from syncswitch.trainers.running_counts import StalenessCount
from syncswitch.trainers.schedule import segments
from syncswitch.trainers.segment_steps import SegmentSteps, Ticket
from syncswitch.trainers.simulated.events import play_segment
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.simulated.timing import StepTimes

__all__ = ["TimedJob", "simulate_phases"]


@dataclass(frozen=True, slots=True)
class TimedJob:
    """What of a job matters to its time.

    Attributes:
        workers: n.
        total_worker_steps: W.
        protocols: Before and after the switch.
        parameters: P of the model; it matters where the profile does not say their size.
    """

    workers: int
    total_worker_steps: int
    protocols: tuple[str, str]
    parameters: int = 0


def simulate_phases(
    profile: ClusterProfile, job: TimedJob, switch_percent: float, seed: int
) -> tuple[PhaseRecord, ...]:
    """Plays a run on the virtual clock; nothing is computed.

    Args:
        profile: Of the cluster.
        job: What runs there.
        switch_percent: Percent of W in the first protocol.
        seed: A training with the same seed has the same times.

    Returns:
        The phases of the run, with their times and staleness.
    """
    times = StepTimes(profile, job.parameters, job.total_worker_steps, seed)
    phases: tuple[PhaseRecord, ...] = ()
    clock = _Clock()
    for segment in segments(_spec(job, switch_percent, seed)):
        protocol = choose_protocol(segment.protocol).machine(range(job.workers))
        steps = SegmentSteps(protocol, segment.start_worker_step, segment.end_worker_step)
        before = clock.seconds
        watch = _StalenessWatch(steps.exchange)
        play_segment(steps, times, watch, before, clock.advance)
        phase = phase_record(segment, steps.done, clock.seconds - before, watch.staleness)
        phases = joined_phases((*phases, phase))
    return phases


def _spec(job: TimedJob, switch_percent: float, seed: int) -> TrialSpec:
    identity = WorkloadIdentity(
        name="times",
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
        evaluation_interval_worker_steps=None,
        workers=job.workers,
        first_protocol=job.protocols[0],
        second_protocol=job.protocols[1],
    )
    return TrialSpec(identity, switch_percent, seed)


class _Clock:
    """The latest moment that it heard of."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def advance(self, done: int, seconds: float) -> None:
        self.seconds = max(self.seconds, seconds)


class _StalenessWatch:
    """Counts updates between pull and push, as a training would."""

    def __init__(self, exchange: Exchange) -> None:
        self.staleness = StalenessCount()
        self._exchange = exchange
        self._updates = 0
        self._pulled: dict[int, int] = {}

    def pull(self, ticket: Ticket) -> None:
        self._pulled[ticket.worker] = self._updates

    def push(self, ticket: Ticket) -> None:
        if self._exchange is Exchange.REPLICA:
            return
        self.staleness.add(self._updates - self._pulled[ticket.worker])
        if self._exchange is Exchange.PUSH:
            self._updates += 1

    def join(self, group: Sequence[int], worker_step: int) -> None:
        self._updates += 1
