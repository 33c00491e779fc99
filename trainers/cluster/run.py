"""One training run on a running cluster: threads, segments, clock, evaluations, checkpoints."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from syncswitch.storage.records import Evaluation, PhaseRecord, TrialSpec
from syncswitch.trainers.cluster.dispatch import Dispatcher
from syncswitch.trainers.cluster.evaluator import EvaluationRequest, Evaluator
from syncswitch.trainers.cluster.program import Program
from syncswitch.trainers.configuration import Configuration
from syncswitch.trainers.model.checkpoint import Checkpoint, write_checkpoint
from syncswitch.trainers.model.tensorflow_api import executor_scope, new_executor
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.phases import joined_phases
from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.run_record import (
    RunResult,
    evaluation_after,
    is_after_first_decay,
    phase_record,
)
from syncswitch.trainers.schedule import Segment, checkpoint_path, segments
from syncswitch.trainers.trainer import Observer, Verdict

__all__ = ["TrainingRun"]

_PROGRESS_SECONDS = 0.2
# Workers that do not come back hold lost servers; their threads die with the process.
_LEAVE_SECONDS = 30.0


class TrainingRun:
    """Trains from the state on the parameter server to the end of the job. Used once."""

    def __init__(
        self,
        configuration: Configuration,
        program: Program,
        tester: ModelTester,
        spec: TrialSpec,
        observer: Observer,
        start: Checkpoint | None = None,
    ) -> None:
        self._configuration = configuration
        self._program = program
        self._tester = tester
        self._spec = spec
        self._observer = observer
        # Progress comes from the main thread, evaluations from the evaluator's.
        self._observing = threading.Lock()
        self._elapsed_seconds = start.elapsed_seconds if start else 0.0
        self._segment_start_seconds: float | None = None
        self._dispatcher = Dispatcher(
            range(spec.identity.workers),
            self._join,
            self._request_due_evaluation,
            done=start.worker_step if start else 0,
        )
        self._segments = segments(spec, self._dispatcher.done)
        self._exchange = Exchange.PUSH
        self._evaluator = Evaluator(tester, self._on_evaluation)
        self._evaluations: list[Evaluation] = []
        self._requested_step = -1
        self._next_evaluation = self._following_evaluation(self._dispatcher.done)
        self._diverged = False
        self._told_to_stop = False
        self._phases: tuple[PhaseRecord, ...] = ()
        self._switch_overhead_seconds = 0.0
        self._saving_seconds = 0.0
        self._waited_seconds = self._waited_before_update_seconds = 0.0
        self._checkpoints: dict[float, Path] = {}

    def execute(self) -> RunResult:
        """Runs to the end, to divergence, or until the observer says stop."""
        threads = [
            threading.Thread(
                target=self._work, args=(worker,), name=f"worker-{worker}", daemon=True
            )
            for worker in self._dispatcher.workers
        ]
        for thread in threads:
            thread.start()
        try:
            for segment in self._segments:
                self._run_segment(segment)
                if self._dispatcher.stopping:
                    break
            self._request_evaluation(self._dispatcher.done)
            self._evaluator.finish(self._report_progress, _PROGRESS_SECONDS)
            self._report_progress()
        finally:
            self._dispatcher.stop()
            self._dispatcher.dismiss()
            self._evaluator.abandon()
            deadline = time.monotonic() + _LEAVE_SECONDS
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        return self._result()

    def _run_segment(self, segment: Segment) -> None:
        protocol = choose_protocol(segment.protocol).machine(self._dispatcher.workers)
        self._exchange = protocol.exchange
        if self._exchange is Exchange.REPLICA:
            self._program.replicas.scatter(self._program.state())
        before = self._dispatcher.last_update_seconds
        switching = bool(self._phases) and self._phases[-1].protocol != segment.protocol
        self._segment_start_seconds = time.perf_counter()
        self._waited_seconds = self._waited_before_update_seconds = 0.0
        self._dispatcher.begin(protocol, segment.end_worker_step)
        if switching:
            gap = time.perf_counter() - before
            self._switch_overhead_seconds += gap - self._saving_seconds
        while not self._dispatcher.wait_until_drained(_PROGRESS_SECONDS):
            self._report_progress()
        if self._dispatcher.error is not None:
            raise self._dispatcher.error
        if self._exchange is Exchange.REPLICA:
            self._program.load(self._program.replicas.mean())
        seconds = self._last_update_seconds() - self._elapsed_seconds
        self._segment_start_seconds = None
        self._elapsed_seconds += seconds
        self._add_phase(segment, seconds)
        self._saving_seconds = 0.0
        if segment.checkpoint_percents and not self._dispatcher.stopping:
            start = time.perf_counter()
            self._write_checkpoint(segment.checkpoint_percents)
            self._saving_seconds = time.perf_counter() - start

    def _report_progress(self) -> None:
        with self._observing:
            self._observer.on_progress(self._dispatcher.done)

    def _work(self, worker: int) -> None:
        """Body of one worker's thread: a ticket, a step, an acknowledgement, and again."""
        with executor_scope(new_executor()):
            inbox = self._dispatcher.inboxes[worker]
            while (ticket := inbox.get()) is not None:
                try:
                    loss, staleness = self._do(worker, ticket.worker_step)
                    if not math.isfinite(loss):
                        self._diverge()
                    self._dispatcher.acknowledge(worker, loss, staleness)
                except BaseException as error:
                    self._dispatcher.fail(error)

    def _do(self, worker: int, worker_step: int) -> tuple[float, int | None]:
        """One worker-step; its loss and, where parameters are shared, its staleness."""
        program, seed = self._program, self._spec.seed
        if self._exchange is Exchange.ROUND:
            push = program.push_gradient(worker, worker_step, seed)
            return push.loss, push.pushed_updates - push.pulled_updates
        gradients = self._exchange.gradients_per_update(len(self._dispatcher.workers))
        rate = self._configuration.rate(worker_step, gradients)
        momentum = self._configuration.momentum(worker_step)
        if self._exchange is Exchange.REPLICA:
            return program.replicas.step(worker, worker_step, seed, rate, momentum), None
        push = program.push_update(worker, worker_step, seed, rate, momentum)
        return push.loss, push.pushed_updates - 1 - push.pulled_updates

    def _join(self, workers: Sequence[int], worker_step: int) -> None:
        if self._exchange is Exchange.REPLICA:
            self._program.replicas.average(workers)
            return
        configuration = self._configuration
        rate = configuration.rate(worker_step, len(workers))
        self._program.apply_round(workers, rate, configuration.momentum(worker_step))

    def _diverge(self) -> None:
        self._diverged = True
        self._dispatcher.stop()

    def _following_evaluation(self, done: int) -> int:
        interval = self._spec.identity.evaluation_interval_worker_steps
        assert interval is not None, "a job that can be trained says how often it is tested"
        return evaluation_after(done, interval)

    def _request_due_evaluation(self, done: int) -> None:
        # Called after each update: what is waited for from here on is not in its time.
        self._waited_before_update_seconds = self._waited_seconds
        if done >= self._next_evaluation:
            self._next_evaluation = self._following_evaluation(done)
            self._request_evaluation(done)

    def _request_evaluation(self, done: int) -> None:
        if done == self._requested_step or self._diverged:
            return
        self._requested_step = done
        loss = self._dispatcher.loss.take()
        is_replicated = self._exchange is Exchange.REPLICA
        source = self._program.replicas if is_replicated else self._program
        self._waited_seconds += self._evaluator.submit(
            EvaluationRequest(done, self._last_update_seconds(), loss, *source.snapshot())
        )

    def _last_update_seconds(self) -> float:
        """Training time at the last update, without what was spent waiting for tests."""
        if self._segment_start_seconds is None:
            return self._elapsed_seconds
        since = self._dispatcher.last_update_seconds - self._segment_start_seconds
        return self._elapsed_seconds + max(0.0, since - self._waited_before_update_seconds)

    def _on_evaluation(self, evaluation: Evaluation) -> None:
        """In the evaluator's thread."""
        if math.isnan(evaluation.accuracy):
            self._diverge()
            return
        self._evaluations.append(evaluation)
        after_decay = is_after_first_decay(self._spec, evaluation.worker_step)
        if after_decay and self._tester.is_chance(evaluation.accuracy):
            self._diverge()
        try:
            with self._observing:
                verdict = self._observer.on_evaluation(evaluation)
        except BaseException:
            # The evaluator raises it again at the end of the run, which is now.
            self._dispatcher.stop()
            raise
        if verdict is Verdict.STOP:
            self._told_to_stop = True
            self._dispatcher.stop()

    def _add_phase(self, segment: Segment, seconds: float) -> None:
        done, staleness = self._dispatcher.done, self._dispatcher.staleness
        phase = phase_record(segment, done, seconds, staleness)
        self._phases = joined_phases((*self._phases, phase))

    def _write_checkpoint(self, percents: Sequence[float]) -> None:
        path = checkpoint_path(self._spec, percents[0], ".npz")
        program, done = self._program, self._dispatcher.done
        checkpoint = program.form.to_checkpoint(
            program.state(), self._spec, done, self._elapsed_seconds
        )
        write_checkpoint(path, checkpoint)
        self._checkpoints.update(dict.fromkeys(percents, path))

    def _result(self) -> RunResult:
        done = self._dispatcher.done
        return RunResult(
            worker_steps=done,
            evaluations=tuple(self._evaluations),
            phases=self._phases,
            diverged=self._diverged,
            stopped_early=self._told_to_stop and done < self._spec.identity.total_worker_steps,
            training_seconds=self._elapsed_seconds,
            switch_overhead_seconds=self._switch_overhead_seconds,
            checkpoints=self._checkpoints,
        )
