"""One training run on a simulated cluster, with evaluations and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from syncswitch.storage.records.trial import Evaluation, TrialSpec
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.model.state import StateForm
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.run.record import RunResult
from syncswitch.trainers.simulated.learner import TrainingLearner
from syncswitch.trainers.simulated.timeline import Timeline
from syncswitch.trainers.simulated.timing import StepTimes


class SimulatedRun:
    """Trains from the learner's state to the end of the job. Used once."""

    def __init__(
        self,
        spec: TrialSpec,
        log: RunLog,
        learner: TrainingLearner,
        times: StepTimes,
        form: StateForm,
        tester: ModelTester,
        switch_seconds: float,
    ) -> None:
        self._spec = spec
        self._log = log
        self._learner = learner
        self._form = form
        self._tester = tester
        self._timeline = Timeline(spec, log, times, learner, switch_seconds, self._on_done)

    def execute(self) -> RunResult:
        """Runs to the end, to divergence, or until the observer says stop."""
        log = self._log
        log.progress(log.done)
        for segment in self._timeline.segments():
            if log.is_stopping:
                break
            if segment.checkpoint_percents and log.done == segment.end_worker_step:
                self._save(segment.checkpoint_percents)
        self._evaluate(log.done, log.elapsed_seconds)
        log.progress(log.done)
        return log.result()

    def _on_done(self, done: int, seconds: float) -> None:
        if not self._learner.is_finite:
            self._log.diverged = True
        elif self._log.is_due(done):
            self._evaluate(done, seconds)
        if self._log.is_stopping:
            self._timeline.stop()

    def _save(self, percents: Sequence[float]) -> None:
        path = checkpoint_path(self._spec, percents[-1], ".npz")
        self._form.save(path, percents, self._learner.state, self._spec, self._log)

    def _evaluate(self, done: int, seconds: float) -> None:
        if done == self._log.last_evaluation_step or self._log.diverged:
            return
        self._log.progress(done)
        accuracy = self._tester.accuracy(*self._learner.snapshot())
        loss = self._learner.loss.take()
        self._log.add_evaluation(Evaluation(done, seconds, accuracy, loss))
