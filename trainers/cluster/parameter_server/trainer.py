"""The trainer that runs on a TensorFlow cluster."""

from __future__ import annotations

import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

from typing_extensions import override

from syncswitch.storage.errors import (
    FatalError,
    RetryableError,
    SyncSwitchError,
    one_line,
)
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.cluster.parameter_server.program import Program
from syncswitch.trainers.cluster.parameter_server.recovery import (
    ServerLostError,
    lost_servers_named,
)
from syncswitch.trainers.cluster.parameter_server.run import TrainingRun
from syncswitch.trainers.cluster.parameter_server.trial import ClusterTrial, cluster_trial
from syncswitch.trainers.cluster.servers.launchers import InProcessLauncher, Launcher
from syncswitch.trainers.job.checks import check_trial
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import Configuration, rate_function
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.checkpoint import read_checkpoint, write_checkpoint
from syncswitch.trainers.model.state import ModelState
from syncswitch.trainers.model.tensorflow_api import TRANSIENT_ERRORS
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.run.record import trial_record
from syncswitch.trainers.trainer import Observer, SilentObserver, Trainer

_MOST_LOSSES = 10
_MOST_ATTEMPTS = 3


class ClusterTrainer(Trainer):
    """Trains on a parameter server and `workers` workers that stay up from trial to trial.

    Workers that are lost come back. When the parameter server is lost, all servers are replaced and
    the run goes on from its last checkpoint; what that costs counts as training time.

    Args:
        workload: What is trained.
        workers: n.
        launcher: Where the servers run; by default as threads of this process.

    Raises:
        UserError: The workload's parts do not fit together.
    """

    def __init__(self, workload: Workload, workers: int, launcher: Launcher | None = None) -> None:
        self._workload = workload
        self._workers = workers
        self._identities: dict[tuple[str, ...], WorkloadIdentity] = {}
        self._launcher = launcher or InProcessLauncher()
        self._devices = self._launcher.start(workers)
        self._data = workload.load_data()
        self._rate_at = rate_function(workload)
        self._program = Program(workload, self._data, self._devices)
        self._tester = ModelTester(
            self._program.function, workload, self._data, self._devices.chief
        )

    @override
    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        pair = (spec.identity.first_protocol, spec.identity.second_protocol)
        check_trial(spec, self._own_identity(*pair))
        log = RunLog(spec, observer or SilentObserver(), self._tester.is_chance)
        started_at = datetime.now(timezone.utc)
        try:
            self._train(spec, log)
        except SyncSwitchError:
            raise
        except TRANSIENT_ERRORS as error:
            raise RetryableError(f"a server was lost while training ({one_line(error)})") from error
        except Exception as error:
            raise FatalError(f"training failed with {one_line(error)}") from error
        record = trial_record(spec, log.result(), started_at)
        self._tester.warn_if_hardly_above_chance(record)
        return record

    @override
    def close(self) -> None:
        self._launcher.close()

    def _train(self, spec: TrialSpec, log: RunLog) -> None:
        if not self._launcher.is_whole():
            # What befell the cluster since, or in the last moment of, the trial before.
            self._renew_servers()
        state = self._program.form.begin(spec, log)
        examples = len(self._data.train_inputs)
        configuration = Configuration(self._workload, spec, examples, self._rate_at)
        trial = cluster_trial(spec, log, configuration, self._launcher)
        try:
            self._run(state, trial)
        finally:
            trial.fault_injector.end()

    def _run(self, state: ModelState, trial: ClusterTrial) -> None:
        """Runs to the end, on as many clusters as that takes."""
        losses = 0
        restarts_at_switch = trial.spec.conditions.switch_mechanism == "restart"
        is_new = True
        while True:
            try:
                with lost_servers_named(self._launcher):
                    self._put_onto_cluster(state, trial)
                    if is_new:
                        trial.clock.mark_update()
                    run = TrainingRun(
                        trial,
                        self._program,
                        self._tester,
                        self._launcher,
                        restarts_at_switch=restarts_at_switch,
                    )
                    if run.execute():
                        return
                    restarts_at_switch = is_new = False
                    state = self._restart(trial.spec, trial.log)
            except ServerLostError as error:
                losses += 1
                is_new = False
                state = self._rebuild(trial, error, losses)

    def _put_onto_cluster(self, state: ModelState, trial: ClusterTrial) -> None:
        identity = trial.spec.identity
        pair = (identity.first_protocol, identity.second_protocol)
        if any(choose_protocol(name).exchange is Exchange.REPLICA for name in pair):
            self._program.prepare_replicas()
        if trial.fault_injector.holds_up:
            self._program.prepare_hold_ups()
        self._program.load(state)

    def _rebuild(self, trial: ClusterTrial, error: ServerLostError, losses: int) -> ModelState:
        """Starts new servers after a loss, and restores their state."""
        if losses > _MOST_LOSSES:
            raise RetryableError(f"the parameter server was lost {losses} times ({error})")
        log, clock = trial.log, trial.clock
        clock.lose()
        done = log.reached
        reason = f"the parameter server: {error}"
        log.add_event(RunEvent("lost", done, clock.now_seconds, reason))
        start = time.perf_counter()
        self._renew_servers()
        state = self._program.form.begin_again(trial.spec, log)
        seconds = time.perf_counter() - start
        clock.lose()
        reason = f"the cluster goes on from worker-step {log.done:,}, after {done:,} were done"
        log.add_event(RunEvent("rebuilt", log.done, clock.now_seconds, reason, None, seconds))
        return state

    def _restart(self, spec: TrialSpec, log: RunLog) -> ModelState:
        """Starts new servers for the second protocol; a checkpoint carries the state."""
        form = self._program.form
        state = self._program.state()
        try:
            with tempfile.TemporaryDirectory(prefix="syncswitch-switch-") as folder:
                path = Path(folder) / "switch.npz"
                write_checkpoint(path, form.checkpoint(state, spec, log))
                state = form.restored(read_checkpoint(path), path)
        except OSError as error:
            reason = f"the switch's checkpoint cannot be written: {error.strerror or error}"
            log.add_event(RunEvent("unsaved", log.done, log.elapsed_seconds, reason))
        self._renew_servers()
        return state

    def _renew_servers(self) -> None:
        """Renews servers until all are there; others may be lost meanwhile."""
        for attempt in range(_MOST_ATTEMPTS):
            self._launcher.rebuild()
            try:
                self._program = Program(self._workload, self._data, self._devices)
                return
            except TRANSIENT_ERRORS as error:
                if attempt == _MOST_ATTEMPTS - 1:
                    raise RetryableError(f"new servers are lost ({one_line(error)})") from error

    def _own_identity(self, *protocols: str) -> WorkloadIdentity:
        # Kept, because describing a workload builds its model.
        if protocols not in self._identities:
            self._identities[protocols] = workload_identity(
                self._workload, self._workers, *protocols
            )
        return self._identities[protocols]
