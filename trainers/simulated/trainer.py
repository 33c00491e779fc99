"""The trainer on a virtual clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import psutil
from typing_extensions import override

from syncswitch.storage.errors import FatalError, OptionHint, SyncSwitchError, UserError, one_line
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialSpec
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import Configuration, rate_function
from syncswitch.trainers.job.schedule import check_embeddings, check_trial, checkpoint_path
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.embeddings import LocalEmbeddings
from syncswitch.trainers.model.function import (
    ModelFunction,
    make_ahead,
    make_projection,
    make_update,
)
from syncswitch.trainers.model.kept import Computation, computation, leave, take
from syncswitch.trainers.model.optimizer import make_optimizer
from syncswitch.trainers.model.state import CheckpointManager
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.run.callbacks import keras_callbacks
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.simulated.executor import GradientSource, TrainingExecutor
from syncswitch.trainers.simulated.profile import ClusterProfile
from syncswitch.trainers.simulated.timeline import StepTimes, Timeline
from syncswitch.trainers.trainer import Observer, Trainer


class SimulatedRun:
    """Trains from the executor's state to the end of the job; used once."""

    def __init__(
        self,
        spec: TrialSpec,
        log: RunLog,
        executor: TrainingExecutor,
        times: StepTimes,
        checkpoints: CheckpointManager,
        tester: ModelTester,
    ) -> None:
        self._spec = spec
        self._log = log
        self._executor = executor
        self._checkpoints = checkpoints
        self._tester = tester
        self._switch_state = checkpoints.switch_state(spec, log)
        self._timeline = Timeline(spec, log, times, executor, self._on_done)

    def execute(self) -> None:
        log = self._log
        log.progress(log.done)
        if not log.has_to_go_back:
            self._train()
        while log.has_to_go_back:
            self._go_back()
            self._train()
        log.progress(log.done)

    def _train(self) -> None:
        log = self._log
        self._keep_switch()
        for segment in self._timeline.segments():
            if log.is_stopping:
                break
            if segment.checkpoint_percents and log.done == segment.end_worker_step:
                self._save(segment.checkpoint_percents)
            self._keep_switch()
        self._evaluate(log.done, log.elapsed_seconds)

    def _keep_switch(self) -> None:
        if self._log.is_at_guarded_switch:
            self._switch_state = self._checkpoints.kept_switch(self._executor.kept_state, self._log)

    def _go_back(self) -> None:
        state = self._switch_state
        assert state is not None
        self._log.return_to_switch(self._log.elapsed_seconds)
        self._executor.restore(state)
        self._checkpoints.save_return(state, self._spec, self._log)

    def _on_done(self, done: int, seconds: float) -> None:
        if not self._executor.is_finite:
            self._log.diverge("a training loss is not finite")
        elif self._log.is_due(done):
            self._evaluate(done, seconds)
        if self._log.is_stopping:
            self._timeline.stop()
        elif self._log.count_steps(done, seconds):
            self._timeline.cut()

    def _save(self, percents: Sequence[float]) -> None:
        path = checkpoint_path(self._spec, percents[-1], ".npz")
        with self._executor.readable_state() as state:
            self._checkpoints.save(path, percents, state, self._spec, self._log)

    def _evaluate(self, done: int, seconds: float) -> None:
        if done == self._log.last_evaluation_step or self._log.diverged or self._log.has_to_go_back:
            return
        self._log.progress(done)
        accuracy = self._tester.accuracy(*self._executor.snapshot(self._tester.ids))
        loss = self._executor.loss.take()
        self._log.add_evaluation(Evaluation(done, seconds, accuracy, loss, self._tester.further))


_DEVICE = "CPU:0"
# Larger calls are no faster, and exceed the processor's cache.
_MOST_AT_ONCE, _MOST_EXAMPLES = 16, 1024
# Compiling a call for several takes 1 to 3 s, which ten shorter runs would not save.
_FEWEST_STEPS = 512
# A worker holds the parameters it pulled, its gradient, and a share of the sums.
_COPIES_PER_WORKER = 4
_BYTES_PER_PARAMETER = 4


def simulated_identity(
    workload: Workload, workers: int, protocols: tuple[str, str], profile: ClusterProfile
) -> ScheduledJob:
    """The identity of a job on a simulated cluster, different from that on a real one."""
    identity = workload_identity(workload, workers, *protocols)
    return replace(identity, job=replace(identity.job, simulated_cluster=profile.digest))


class _Compiled:
    """The compiled gradients and tests of a job; they serve one run at a time."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.data = computation.workload.load_data()
        self.function = ModelFunction(computation.workload, self.data)

    @cached_property
    def source(self) -> GradientSource:
        workload, most = self.computation
        return GradientSource(workload, self.data, self.function, most)

    @cached_property
    def tester(self) -> ModelTester:
        return ModelTester(self.function, self.computation.workload, self.data, _DEVICE)

    def close(self) -> None:
        self.source.close()


def gradients_at_once(worker_steps: int, workers: int, batch_size: int) -> int:
    """The number of batches in a call for several; see `GradientSource`.

    It does not depend on the machine, since results depend on it. Rounds are cut into about equal
    parts.
    """
    most = min(_MOST_AT_ONCE, _MOST_EXAMPLES // batch_size)
    if worker_steps < _FEWEST_STEPS or most < 2:
        return 1
    return math.ceil(workers / math.ceil(workers / most))


class SimulatedTrainer(Trainer):
    """Trains with real gradients that are as stale as on the cluster of a profile.

    All its times are those of the virtual clock. The same trial gives the same record, bit by bit,
    on the same machine with the same versions of the software.

    Args:
        workload: The workload to train.
        workers: n; two cores are enough for a thousand.
        profile: The cluster's profile.

    Raises:
        UserError: The workload's parts do not fit together, or the models of so many workers do
            not fit into this machine's memory.
    """

    # A benchmark tries another rule by another one.
    _executor_kind: type[TrainingExecutor] = TrainingExecutor

    def __init__(self, workload: Workload, workers: int, profile: ClusterProfile) -> None:
        self._workload = workload
        self._workers = workers
        self._profile = profile
        self._rate_at = rate_function(workload)
        steps, batch_size = workload.total_worker_steps, workload.batch_size
        wanted = computation(workload, gradients_at_once(steps, workers, batch_size))
        compiled = take(wanted) or _Compiled(wanted)
        self._compiled: _Compiled | None = compiled
        self._is_idle = True
        self._examples = compiled.data.train.examples
        self._function = function = compiled.function
        # The values in a pull and a push.
        self._values = function.parameters.size + function.statistics.size
        # Of each embedding at most one row per example, as most rows are looked up once.
        self._values += batch_size * sum(table.width for table in function.embeddings)
        _check_memory(workload, workers, function.parameters.size)
        optimizer = make_optimizer(workload, function.parameters)
        self._checkpoints = CheckpointManager(workload, function, optimizer)
        self._optimizer = optimizer
        self._project = make_projection(optimizer, function.parameters.size)
        self._update = make_update(optimizer, function.parameters.size, self._project)
        self._ahead = make_ahead(optimizer, function.parameters.size)
        self._source, self._tester = compiled.source, compiled.tester

    @override
    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        pair = (spec.identity.first_protocol, spec.identity.second_protocol)
        check_trial(spec, simulated_identity(self._workload, self._workers, pair, self._profile))
        check_embeddings(spec, [table.layer for table in self._function.embeddings])
        self._is_idle = False
        with keras_callbacks(self._workload, spec, observer or Observer()) as watching:
            log = RunLog(spec, watching, self._tester.is_chance)
            self._run(spec, log)
        self._is_idle = True
        record = log.record()
        self._tester.warn_if_hardly_above_chance(record)
        return record

    @override
    def close(self) -> None:
        compiled, self._compiled = self._compiled, None
        if compiled is not None and self._is_idle:
            leave(compiled)
        elif compiled is not None:
            compiled.close()  # a run failed half-way

    def _run(self, spec: TrialSpec, log: RunLog) -> None:
        executor = self._executor_kind(
            self._source,
            self._optimizer,
            self._update,
            self._ahead,
            Configuration(self._workload, spec, self._examples, self._rate_at),
            spec.seed,
            self._checkpoints.begin(spec, log),
            LocalEmbeddings(self._checkpoints.shard_plan(), self._checkpoints.layouts),
            self._project,
        )
        W = spec.identity.total_worker_steps
        slots = self._optimizer.initial_slots().size
        times = StepTimes(self._profile, self._values, W, spec.seed, slots)
        try:
            SimulatedRun(spec, log, executor, times, self._checkpoints, self._tester).execute()
        except SyncSwitchError:
            raise
        except Exception as error:
            raise FatalError(
                f"training failed with {one_line(error)}", code="training-failed"
            ) from error


def _check_memory(workload: Workload, workers: int, parameters: int) -> None:
    needed = workers * parameters * _BYTES_PER_PARAMETER * _COPIES_PER_WORKER
    available = psutil.virtual_memory().available
    if needed > available:
        raise UserError(
            f"{workers} simulated workers of workload {workload.name!r} need about "
            f"{needed / 2**30:.0f} GiB of memory, and {available / 2**30:.0f} GiB are free",
            remedy=OptionHint("workers", verb="use fewer"),
            code="cluster-unusable",
        )
