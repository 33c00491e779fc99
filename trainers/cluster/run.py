"""One training run on a running cluster: threads, segments, clock, evaluations, checkpoints."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from syncswitch.storage.records import Evaluation, PhaseRecord, TrialSpec
from syncswitch.trainers.cluster.checkpoint import Checkpoint, write_checkpoint
from syncswitch.trainers.cluster.dispatch import Dispatcher
from syncswitch.trainers.cluster.evaluator import EvaluationRequest, Evaluator, ModelTester
from syncswitch.trainers.cluster.program import Program, Push
from syncswitch.trainers.cluster.tensorflow_api import executor_scope, new_executor
from syncswitch.trainers.phases import joined_phases
from syncswitch.trainers.protocols import PROTOCOLS
from syncswitch.trainers.schedule import (
    Segment,
    checkpoint_path,
    segments,
    switch_worker_step,
    worker_step_rate,
)
from syncswitch.trainers.trainer import Observer, Verdict
from syncswitch.trainers.workload import Workload

__all__ = ["RunResult", "TrainingRun"]

_PROGRESS_SECONDS = 0.2
# A worker that does not come back holds a lost server; its thread dies with the process.
_LEAVE_SECONDS = 30.0


@dataclass(frozen=True)
class RunResult:
    """What a run leaves behind; see `TrialRecord` for the fields."""

    worker_steps: int
    evaluations: tuple[Evaluation, ...]
    phases: tuple[PhaseRecord, ...]
    diverged: bool
    stopped_early: bool
    training_seconds: float
    switch_overhead_seconds: float
    checkpoints: dict[float, Path]


class TrainingRun:
    """Trains from the state on the parameter server to the end of the job. Used once."""

    def __init__(
        self,
        workload: Workload,
        program: Program,
        tester: ModelTester,
        spec: TrialSpec,
        observer: Observer,
        start: Checkpoint | None = None,
    ) -> None:
        self._workload = workload
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
            self._apply_round,
            self._request_due_evaluation,
            done=start.worker_step if start else 0,
        )
        self._segments = segments(spec, self._dispatcher.done)
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
            for thread in threads:
                thread.join(_LEAVE_SECONDS)
        return self._result()

    def _run_segment(self, segment: Segment) -> None:
        protocol = PROTOCOLS[segment.protocol](self._dispatcher.workers)
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
                    push = self._push(worker, ticket.worker_step, ticket.aggregates)
                    own_update = 0 if ticket.aggregates else 1
                    staleness = push.pushed_updates - own_update - push.pulled_updates
                    if not math.isfinite(push.loss):
                        self._diverge()
                    self._dispatcher.acknowledge(worker, ticket, push.loss, staleness)
                except BaseException as error:
                    self._dispatcher.fail(error)

    def _push(self, worker: int, worker_step: int, aggregates: bool) -> Push:
        if aggregates:
            return self._program.push_gradient(worker, worker_step, self._spec.seed)
        return self._program.push_update(
            worker,
            worker_step,
            self._spec.seed,
            self._rate(worker_step, 1),
            self._workload.momentum,
        )

    def _apply_round(self, workers: Sequence[int], worker_step: int) -> None:
        self._program.apply_round(
            workers, self._rate(worker_step, len(workers)), self._workload.momentum
        )

    def _rate(self, worker_step: int, gradients: int) -> float:
        return worker_step_rate(
            self._workload.learning_rate,
            self._workload.learning_rate_boundaries,
            worker_step,
            gradients,
        )

    def _diverge(self) -> None:
        self._diverged = True
        self._dispatcher.stop()

    def _following_evaluation(self, done: int) -> int:
        interval = self._workload.evaluation_interval_worker_steps
        return (done // interval + 1) * interval

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
        self._waited_seconds += self._evaluator.submit(
            EvaluationRequest(done, self._last_update_seconds(), loss, *self._program.snapshot())
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
        boundaries = self._workload.learning_rate_boundaries
        after_decay = bool(boundaries) and evaluation.worker_step > boundaries[0][0]
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
        count = self._dispatcher.staleness
        phase = PhaseRecord(
            segment.protocol,
            segment.start_worker_step,
            self._dispatcher.done,
            seconds,
            count.total / count.pushes if count.pushes else 0.0,
            count.maximum,
        )
        self._phases = joined_phases((*self._phases, phase))

    def _write_checkpoint(self, percents: Sequence[float]) -> None:
        path = checkpoint_path(self._spec, percents[0], ".npz")
        state = self._program.state()
        done = self._dispatcher.done
        write_checkpoint(
            path,
            Checkpoint(
                model=self._spec.identity.model or "",
                seed=self._spec.seed,
                worker_step=done,
                first_protocol_worker_steps=min(done, switch_worker_step(self._spec)),
                updates=state.updates,
                elapsed_seconds=self._elapsed_seconds,
                parameters=self._program.parameters.name(state.parameters),
                slots=self._program.slots.name(state.slots),
                statistics=self._program.statistics.name(state.statistics),
            ),
        )
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
