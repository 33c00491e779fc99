"""One training run on a simulated cluster: segments, evaluations, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from syncswitch.storage.records import Evaluation, PhaseRecord, TrialSpec
from syncswitch.trainers.model.checkpoint import Checkpoint, write_checkpoint
from syncswitch.trainers.model.state import StateForm
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.phases import joined_phases
from syncswitch.trainers.protocols import choose_protocol
from syncswitch.trainers.run_record import (
    RunResult,
    evaluation_after,
    is_after_first_decay,
    phase_record,
)
from syncswitch.trainers.schedule import Segment, checkpoint_path, segments
from syncswitch.trainers.segment_steps import SegmentSteps
from syncswitch.trainers.simulated.events import play_segment
from syncswitch.trainers.simulated.learner import TrainingLearner
from syncswitch.trainers.simulated.timing import StepTimes
from syncswitch.trainers.trainer import Observer, Verdict

__all__ = ["SimulatedRun"]


class SimulatedRun:
    """Trains from the learner's state to the end of the job. Used once.

    Args:
        spec: The trial.
        learner: With the state that the run begins with.
        times: Of the run.
        form: Of the state.
        tester: Computes the accuracy, in no virtual time.
        observer: Watches.
        switch_seconds: What a switch takes.
        start: Checkpoint that the state comes from.
    """

    def __init__(
        self,
        spec: TrialSpec,
        learner: TrainingLearner,
        times: StepTimes,
        form: StateForm,
        tester: ModelTester,
        observer: Observer,
        switch_seconds: float,
        start: Checkpoint | None,
    ) -> None:
        self._spec = spec
        self._learner = learner
        self._times = times
        self._form = form
        self._tester = tester
        self._observer = observer
        self._switch_seconds = switch_seconds
        self._done = start.worker_step if start else 0
        self._seconds = start.elapsed_seconds if start else 0.0
        self._evaluations: list[Evaluation] = []
        self._evaluated = -1
        self._next_evaluation = self._following_evaluation()
        self._steps: SegmentSteps | None = None
        self._diverged = self._told_to_stop = False
        self._phases: tuple[PhaseRecord, ...] = ()
        self._switch_overhead_seconds = 0.0
        self._checkpoints: dict[float, Path] = {}

    def execute(self) -> RunResult:
        """Runs to the end, to divergence, or until the observer says stop."""
        self._observer.on_progress(self._done)
        for segment in segments(self._spec, self._done):
            self._run_segment(segment)
            if self._stopping:
                break
            if segment.checkpoint_percents:
                self._write_checkpoint(segment.checkpoint_percents)
        self._evaluate()
        self._observer.on_progress(self._done)
        return RunResult(
            worker_steps=self._done,
            evaluations=tuple(self._evaluations),
            phases=self._phases,
            diverged=self._diverged,
            stopped_early=self._told_to_stop
            and self._done < self._spec.identity.total_worker_steps,
            training_seconds=self._seconds,
            switch_overhead_seconds=self._switch_overhead_seconds,
            checkpoints=self._checkpoints,
        )

    @property
    def _stopping(self) -> bool:
        return self._diverged or self._told_to_stop

    def _run_segment(self, segment: Segment) -> None:
        if self._phases and self._phases[-1].protocol != segment.protocol:
            self._switch_overhead_seconds += self._switch_seconds
        choice = choose_protocol(segment.protocol)
        protocol = choice.machine(range(self._spec.identity.workers))
        self._steps = SegmentSteps(protocol, self._done, segment.end_worker_step)
        before = self._seconds
        self._learner.begin(choice.exchange)
        played = play_segment(self._steps, self._times, self._learner, before, self._on_done)
        self._learner.finish()
        self._seconds = played.seconds
        phase = phase_record(segment, self._done, self._seconds - before, played.staleness)
        self._phases = joined_phases((*self._phases, phase))

    def _on_done(self, done: int, seconds: float) -> None:
        self._done = done
        self._seconds = seconds
        if not self._learner.is_finite:
            self._diverge()
        elif done >= self._next_evaluation:
            self._evaluate()
            self._next_evaluation = self._following_evaluation()

    def _evaluate(self) -> None:
        if self._done == self._evaluated or self._diverged:
            return
        self._evaluated = self._done
        self._observer.on_progress(self._done)
        accuracy = self._tester.accuracy(*self._learner.snapshot())
        if math.isnan(accuracy):
            self._diverge()
            return
        loss = self._learner.loss.take()
        evaluation = Evaluation(self._done, self._seconds, accuracy, loss)
        self._evaluations.append(evaluation)
        if is_after_first_decay(self._spec, self._done) and self._tester.is_chance(accuracy):
            self._diverge()
        if self._observer.on_evaluation(evaluation) is Verdict.STOP:
            self._told_to_stop = True
            self._stop_steps()

    def _diverge(self) -> None:
        self._diverged = True
        self._stop_steps()

    def _stop_steps(self) -> None:
        if self._steps is not None:
            self._steps.stop()

    def _following_evaluation(self) -> int:
        interval = self._spec.identity.evaluation_interval_worker_steps
        assert interval is not None, "a job that can be trained says how often it is tested"
        return evaluation_after(self._done, interval)

    def _write_checkpoint(self, percents: Sequence[float]) -> None:
        path = checkpoint_path(self._spec, percents[0], ".npz")
        write_checkpoint(
            path,
            self._form.to_checkpoint(self._learner.state, self._spec, self._done, self._seconds),
        )
        self._checkpoints.update(dict.fromkeys(percents, path))
