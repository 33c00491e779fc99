"""How long a job would take on a cluster, without training it."""

from __future__ import annotations

from dataclasses import dataclass

from syncswitch.storage.records import PhaseRecord
from syncswitch.trainers.protocols import choose_protocol
from syncswitch.trainers.run_record import phase_record
from syncswitch.trainers.schedule import Segment, percent_to_worker_steps, round_worker_steps
from syncswitch.trainers.segment_steps import SegmentSteps
from syncswitch.trainers.simulated.events import Idle, play_segment
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
    first, second = job.protocols
    W, round_size = job.total_worker_steps, round_worker_steps(first, job.workers)
    switch = percent_to_worker_steps(switch_percent, W, round_size)
    phases = []
    seconds = 0.0
    for segment in (Segment(first, 0, switch), Segment(second, switch, W)):
        if segment.start_worker_step == segment.end_worker_step:
            continue
        protocol = choose_protocol(segment.protocol).machine(range(job.workers))
        steps = SegmentSteps(protocol, segment.start_worker_step, segment.end_worker_step)
        played = play_segment(steps, times, Idle(), seconds, lambda *_: None)
        phases.append(phase_record(segment, steps.done, played.seconds - seconds, played.staleness))
        seconds = played.seconds
    return tuple(phases)
