"""Plays a run on a virtual clock, segment by segment, with or without training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.trial import PhaseRecord, TrialSpec
from syncswitch.trainers.job.schedule import Segment, switch_worker_step
from syncswitch.trainers.protocols import choose_protocol
from syncswitch.trainers.protocols.steps import SegmentSteps
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.simulated.events import Learner, SegmentPlayer
from syncswitch.trainers.simulated.membership import membership_of
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.simulated.step_times import StepTimes
from syncswitch.trainers.trainer import Observer


class Timeline:
    """Plays a run from the position of its log to the end of the job; see `SegmentPlayer`."""

    def __init__(
        self,
        spec: TrialSpec,
        log: RunLog,
        times: StepTimes,
        learner: Learner,
        on_done: Callable[[int, float], None] = lambda done, seconds: None,
    ) -> None:
        self._spec = spec
        self._log = log
        self._times = times
        self._learner = learner
        self._on_done = on_done
        self._membership = membership_of(spec, log)
        self._steps: SegmentSteps | None = None

    def segments(self) -> Iterator[Segment]:
        """Plays the segments, and yields each when it is over; an online policy may cut it short.

        May be called again after the log has gone back.
        """
        while (segment := self._log.next_segment(is_detour=self._membership.is_detour)) is not None:
            self._play(segment)
            yield segment

    def stop(self) -> None:
        """Ends the current segment; steps under way are still finished."""
        if self._steps is not None:
            self._steps.stop()

    def _play(self, segment: Segment) -> None:
        log, membership = self._log, self._membership
        done, seconds = log.done, log.elapsed_seconds + self._switch(segment)
        switch_at = math.inf
        if not membership.is_detour:
            switch_at = done + switch_worker_step(self._spec) - log.first_protocol_done
        start_seconds = membership.begin(done, seconds, switch_at)
        choice = choose_protocol(segment.protocol)
        members = membership.present
        second_since = log.second_since(segment)
        self._steps = SegmentSteps(
            choice.machine(members),
            done,
            segment.end_worker_step,
            batches=self._learner.batches(second_since),
        )
        self._learner.begin(choice.exchange, members, second_since)
        seconds, staleness = SegmentPlayer(
            self._steps, self._times, self._learner, membership, start_seconds, self._on_done
        ).play()
        self._learner.finish()
        log.add_phase(segment, self._steps.done, seconds, staleness)

    def _switch(self, segment: Segment) -> float:
        """Switches to the segment's protocol, if it is a new one; returns the seconds it takes."""
        log = self._log
        if not log.is_switch(segment):
            return 0.0
        log.add_switch(segment.protocol, self._times.switch_seconds, log.elapsed_seconds)
        if not log.is_before_switch:
            self._membership.switch(log.done, log.elapsed_seconds)
        return self._times.switch_seconds


@dataclass(frozen=True, slots=True)
class TimedJob:
    """The properties of a job that determine its time."""

    workers: int
    total_worker_steps: int
    protocols: tuple[str, str]  # before and after the switch
    values: int = 0  # P + S of the model, used if the profile does not give its size


def simulate_phases(
    profile: ClusterProfile,
    job: TimedJob,
    switch_percent: float,
    seed: int,
    conditions: RunConditions = RunConditions(),  # noqa: B008 (frozen)
) -> tuple[PhaseRecord, ...]:
    """The phases of a run that is played on the virtual clock without computing anything."""
    spec = TrialSpec(_identity(job), switch_percent, seed, conditions=conditions)
    log = RunLog(spec, Observer(), lambda accuracy: False)
    times = StepTimes(profile, job.values, job.total_worker_steps, seed)
    for _ in Timeline(spec, log, times, Learner()).segments():
        pass
    return log.position.phases


def _identity(job: TimedJob) -> WorkloadIdentity:
    """The identity of a job that is only timed."""
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
