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
        self._switch_state = form.switch_state(spec, log)
        self._timeline = Timeline(spec, log, times, learner, switch_seconds, self._on_done)

    def execute(self) -> RunResult:
        """Runs to the end, to divergence, or until the observer says stop."""
        log = self._log
        log.progress(log.done)
        if not log.has_to_go_back:
            self._train()
        while log.has_to_go_back:
            self._go_back()
            self._train()
        log.progress(log.done)
        return log.result()

    def _train(self) -> None:
        """Trains until the end, or an alarm."""
        log = self._log
        self._keep_switch()
        for segment in self._timeline.segments():
            if log.is_stopping:
                break
            self._keep_switch()
            if segment.checkpoint_percents and log.done == segment.end_worker_step:
                self._save(segment.checkpoint_percents)
        self._evaluate(log.done, log.elapsed_seconds)

    def _keep_switch(self) -> None:
        """Keeps the state with which the second protocol begins, if a guard may go back to it."""
        if self._log.is_at_guarded_switch:
            self._switch_state = self._learner.kept_state()
            self._log.keep_switch()

    def _go_back(self) -> None:
        """Heeds an alarm: the first protocol goes on from the switch."""
        state = self._switch_state
        assert state is not None
        self._log.heed_alarm(self._log.elapsed_seconds)
        self._learner.restore(state)
        self._form.save_return(state, self._spec, self._log)

    def _on_done(self, done: int, seconds: float) -> None:
        if not self._learner.is_finite:
            self._log.diverge("a training loss is not finite")
        elif self._log.is_due(done):
            self._evaluate(done, seconds)
        if self._log.is_stopping:
            self._timeline.stop()

    def _save(self, percents: Sequence[float]) -> None:
        path = checkpoint_path(self._spec, percents[-1], ".npz")
        self._form.save(path, percents, self._learner.kept_state(), self._spec, self._log)

    def _evaluate(self, done: int, seconds: float) -> None:
        if done == self._log.last_evaluation_step or self._log.diverged or self._log.has_to_go_back:
            return
        self._log.progress(done)
        accuracy = self._tester.accuracy(*self._learner.snapshot(self._tester.ids))
        loss = self._learner.loss.take()
        self._log.add_evaluation(Evaluation(done, seconds, accuracy, loss, self._tester.further))
