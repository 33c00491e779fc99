"""The trainer that runs on a TensorFlow cluster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import FatalError, RetryableError, SyncSwitchError, one_line
from syncswitch.storage.files import OwnedFolder
from syncswitch.storage.records.trial import RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.clock import LostChief, TrainingClock
from syncswitch.trainers.cluster.chief.run import Backup, ClusterTrial, FaultInjector, TrainingRun
from syncswitch.trainers.cluster.exchange.shards import Undone
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError, ThreadsCluster
from syncswitch.trainers.cluster.members.program import Program
from syncswitch.trainers.faults.active import ActiveInjections
from syncswitch.trainers.faults.injections import check_injections, parse_injection
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import Configuration, rate_function
from syncswitch.trainers.job.schedule import check_embeddings, check_trial
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.embeddings import NoRoomForEmbeddingsError
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.state import assign_values, read_checkpoint, write_checkpoint
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.run.callbacks import ShownModel, keras_callbacks
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.stragglers.online import controller_of
from syncswitch.trainers.trainer import Observer, Trainer

_MOST_LOSSES = 10


@dataclass(frozen=True)
class _Attempt:
    """What a cluster goes on with until the run ends, goes back, restarts or loses a server."""

    state: ModelState | None  # the state to begin with; None for the one that is on the cluster
    restarts_at_switch: bool  # whether it ends at the switch, for another cluster
    undone: Undone = field(default_factory=dict)  # see `Undone`
    is_first: bool = False  # whether the clock begins with it


class ClusterTrainer(Trainer):
    """Trains on a cluster that stays up from trial to trial.

    Lost workers are brought back. If a parameter server is lost, all are replaced, and the run goes
    on from the last copy of the state; the time that this costs counts as training time.

    Raises:
        UserError: Model, data and loss of the workload do not fit together.
    """

    def __init__(
        self,
        workload: Workload,
        workers: int,
        new_cluster: Callable[[Program, int], Cluster] = ThreadsCluster,
        *,
        has_gpus: bool = False,
        shown: tuple[Any, int] | None = None,
    ) -> None:
        """`shown` is a Keras model that the workload's callbacks see, and the steps of an epoch."""
        self._workload = workload
        self._shown = shown
        self._workers = workers
        self._clock: TrainingClock | None = None
        self._data = workload.load_data()
        self._rate_at = rate_function(workload)
        self._program = Program(workload, self._data, has_gpus=has_gpus)
        self._cluster = new_cluster(self._program, workers)
        self._tester = ModelTester(self._program.function, workload, self._data, "/CPU:0")

    @override
    def train(
        self, spec: TrialSpec, observer: Observer | None = None, lost: LostChief | None = None
    ) -> TrialRecord:
        """See `Trainer`. `lost` is a chief that began the run and died."""
        pair = (spec.identity.first_protocol, spec.identity.second_protocol)
        check_trial(spec, workload_identity(self._workload, self._workers, *pair))
        check_embeddings(spec, [one.layer for one in self._program.function.embeddings])
        try:
            shown = self._shown_model()
            with keras_callbacks(self._workload, spec, observer or Observer(), shown) as watching:
                told_step = -1 if lost is None else lost.told_step
                log = RunLog(spec, watching, self._tester.is_chance, told_step)
                self._train(spec, log, lost)
        except SyncSwitchError:
            raise
        except ServerLostError as error:
            raise RetryableError(str(error), code="cluster-lost") from error
        except Exception as error:
            if isinstance(error.__context__, KeyboardInterrupt):
                # It interrupted a condition before its lock was held again: releasing that failed.
                raise error.__context__ from None
            raise FatalError(
                f"training failed with {one_line(error)}", code="training-failed"
            ) from error
        record = log.record()
        self._tester.warn_if_hardly_above_chance(record)
        return record

    def _shown_model(self) -> ShownModel | None:
        if self._shown is None:
            return None
        model, epoch_worker_steps = self._shown
        # Callbacks look up whether more of a metric is better, which only built ones know.
        with contextlib.suppress(Exception):
            model.test_on_batch(*self._tester.batch())
        model.stop_training = False

        def show() -> None:
            parameters, statistics = (np.asarray(one) for one in self._tester.tested)
            assign_values(model, parameters, statistics)

        return ShownModel(model, show, epoch_worker_steps)

    @property
    def now_seconds(self) -> float:
        """The training time of the current trial."""
        return 0.0 if self._clock is None else self._clock.now_seconds

    @override
    def close(self) -> None:
        self._cluster.close()

    def _train(self, spec: TrialSpec, log: RunLog, lost: LostChief | None) -> None:
        # Parts may have been lost since, or at the very end of, the trial before.
        self._cluster.repair()
        state = self._program.checkpoints.begin(spec, log)
        examples = self._data.train.examples
        configuration = Configuration(self._workload, spec, examples, self._rate_at)
        elapsed_seconds = log.elapsed_seconds
        if lost is not None:
            elapsed_seconds = max(elapsed_seconds, lost.now_seconds)
            log.add_event(RunEvent("lost", lost.worker_step, elapsed_seconds, lost.reason))
            if not log.done:
                why = "from the start, as there was no checkpoint yet"
                log.add_event(RunEvent("resumed", 0, elapsed_seconds, why))
        injections = [parse_injection(text) for text in spec.conditions.injections]
        check_injections(injections, self._cluster.kind, len(self._cluster.servers))
        active = ActiveInjections(
            injections,
            spec.identity.total_worker_steps,
            done=log.done,
            now_seconds=elapsed_seconds,
            resumed=spec.resume,
        )
        trial = ClusterTrial(
            spec,
            log,
            TrainingClock(elapsed_seconds),
            configuration,
            FaultInjector(active, self._cluster),
            controller_of(spec.conditions.online, range(spec.identity.workers)),
            switch_state=self._program.checkpoints.switch_state(spec, log),
        )
        self._clock = trial.clock
        self._run(state, trial)

    def _run(self, state: ModelState | None, trial: ClusterTrial) -> None:
        log, has_restarts = trial.log, trial.spec.conditions.switch_mechanism == "restart"
        attempt = _Attempt(state, has_restarts, is_first=True)
        loss: ServerLostError | None = None
        losses = 0
        while True:
            try:
                if loss is not None:
                    attempt, loss = self._rebuilt(trial, attempt, loss, losses), None
                if log.has_to_go_back:
                    attempt = _Attempt(self._go_back(trial), has_restarts)
                is_over = self._execute(trial, attempt)
                if log.has_to_go_back:
                    continue
                if is_over:
                    return
                # Where that loses a server, what is rebuilt is not restarted any more.
                attempt = replace(attempt, restarts_at_switch=False)
                attempt = _Attempt(self._restart(trial.spec, log), restarts_at_switch=False)
            except ServerLostError as error:
                loss, losses = error, losses + 1

    def _execute(self, trial: ClusterTrial, attempt: _Attempt) -> bool:
        """Makes an attempt; returns whether the trial is over."""
        if attempt.state is not None:
            trial.backup = Backup(attempt.state, trial.log.position, attempt.undone)
            self._cluster.load(attempt.state, attempt.undone)
        if attempt.is_first:
            trial.clock.mark_update()
        run = TrainingRun(
            trial,
            self._cluster,
            self._tester,
            restarts_at_switch=attempt.restarts_at_switch,
            undone=attempt.undone,
        )
        return run.execute()

    def _rebuilt(
        self, trial: ClusterTrial, attempt: _Attempt, error: ServerLostError, losses: int
    ) -> _Attempt:
        if losses > _MOST_LOSSES:
            raise RetryableError(
                f"the parameter server was lost {losses} times ({error})", code="cluster-lost"
            )
        log, clock = trial.log, trial.clock
        clock.lose()
        done = log.reached
        log.add_event(RunEvent("lost", done, clock.now_seconds, str(error)))
        start = time.perf_counter()
        self._cluster.restart_servers()
        backup = trial.backup
        assert backup is not None
        log.fall_back(backup.mark)
        seconds = time.perf_counter() - start
        clock.lose()
        reason = f"the cluster continues from worker-step {log.done:,}, after {done:,} were done"
        log.add_event(RunEvent("rebuilt", log.done, clock.now_seconds, reason, None, seconds))
        return _Attempt(backup.state, attempt.restarts_at_switch, backup.undone)

    def _go_back(self, trial: ClusterTrial) -> ModelState:
        """Heeds an alarm; returns the state at the switch, where the first protocol goes on."""
        state, log = trial.switch_state, trial.log
        assert state is not None
        log.return_to_switch(trial.clock.now_seconds)
        self._program.checkpoints.save_return(state, trial.spec, log)
        # Evaluations and files do not count as training time.
        trial.clock.mark_update()
        return state

    def _restart(self, spec: TrialSpec, log: RunLog) -> ModelState | None:
        """Restarts the cluster for the second protocol; the state goes through a checkpoint.

        Returns None if there is no room for a copy: then the same cluster goes on without a
        restart.
        """
        checkpoints = self._program.checkpoints
        try:
            state = self._cluster.state()
        except NoRoomForEmbeddingsError as error:
            log.add_unsaved(f"{error}; the cluster continues without a restart")
            return None
        try:
            with OwnedFolder("syncswitch-switch-") as folder:
                path = folder / "switch.npz"
                write_checkpoint(path, checkpoints.checkpoint(state, spec, log))
                state = checkpoints.restored(read_checkpoint(path), path)
        except OSError as error:
            reason = f"the switch's checkpoint cannot be written: {error.strerror or error}"
            log.add_unsaved(reason)
        self._cluster.renew()
        return state
