"""Plays a run on a virtual clock, segment by segment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.schedule import Segment, switch_worker_step
from syncswitch.trainers.protocols import choose_protocol
from syncswitch.trainers.protocols.steps import SegmentSteps
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.simulated.events import Learner, SegmentPlayer
from syncswitch.trainers.simulated.membership import membership_of
from syncswitch.trainers.simulated.timing import StepTimes


class Timeline:
    """Plays a run from where its log is to the end of the job.

    Args:
        spec: The trial.
        log: Of its run.
        times: Of the run.
        learner: Told what happens to the parameters.
        switch_seconds: What a switch of protocols takes.
        on_done: `(worker-steps done, training time)`: called after each update.
    """

    def __init__(
        self,
        spec: TrialSpec,
        log: RunLog,
        times: StepTimes,
        learner: Learner,
        switch_seconds: float,
        on_done: Callable[[int, float], None] = lambda done, seconds: None,
    ) -> None:
        self._spec = spec
        self._log = log
        self._times = times
        self._learner = learner
        self._switch_seconds = switch_seconds
        self._on_done = on_done
        self._membership = membership_of(spec, log)
        self._steps: SegmentSteps | None = None

    def segments(self) -> Iterator[Segment]:
        """Plays a segment, and yields it when it is over; online policies may have cut it.

        May be asked for again once the log has gone back.
        """
        while (segment := self._log.next_segment(is_detour=self._membership.is_detour)) is not None:
            self._play(segment)
            yield segment

    def stop(self) -> None:
        """Ends the segment that is being played; steps that have begun are still done."""
        if self._steps is not None:
            self._steps.stop()

    def _play(self, segment: Segment) -> None:
        log, membership = self._log, self._membership
        done, seconds = log.done, log.elapsed_seconds + self._switch(segment)
        start_seconds = membership.begin(done, seconds, self._switch_worker_step(segment))
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
        played = SegmentPlayer(
            self._steps, self._times, self._learner, membership, start_seconds, self._on_done
        ).play()
        self._learner.finish()
        log.add_phase(segment, self._steps.done, played.seconds, played.staleness)

    def _switch(self, segment: Segment) -> float:
        """Switches to the protocol of a segment, if it is another one; seconds that this takes."""
        log = self._log
        if not log.is_switch(segment):
            return 0.0
        log.add_switch(segment.protocol, self._switch_seconds, log.elapsed_seconds)
        if not log.is_before_switch:
            self._membership.switch(log.done, log.elapsed_seconds)
        return self._switch_seconds

    def _switch_worker_step(self, segment: Segment) -> float:
        """Worker-step of the timing policy's switch, see `Membership.begin`."""
        missing = switch_worker_step(self._spec) - self._log.first_protocol_done
        if missing <= 0 or self._log.guarding.failed:
            return 0
        return math.inf if self._membership.is_detour else segment.start_worker_step + missing
