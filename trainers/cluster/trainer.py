"""The trainer that runs on a TensorFlow cluster."""

from __future__ import annotations

from datetime import datetime, timezone

from syncswitch.storage.errors import (
    FatalError,
    RetryableError,
    SyncSwitchError,
    one_line,
)
from syncswitch.storage.records import TrialRecord, TrialSpec, WorkloadIdentity
from syncswitch.trainers.cluster.launchers import InProcessLauncher, Launcher
from syncswitch.trainers.cluster.program import Program
from syncswitch.trainers.cluster.run import TrainingRun
from syncswitch.trainers.configuration import Configuration, rate_function
from syncswitch.trainers.model.tensorflow_api import TRANSIENT_ERRORS
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.run_record import trial_record
from syncswitch.trainers.trainer import Observer, SilentObserver, Trainer
from syncswitch.trainers.trial_check import check_trial
from syncswitch.trainers.workload import Workload

__all__ = ["ClusterTrainer"]


class ClusterTrainer(Trainer):
    """Trains on a parameter server and `workers` workers that stay up from trial to trial.

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
        devices = self._launcher.start(workers)
        data = workload.load_data()
        self._examples = len(data.train_inputs)
        self._rate_at = rate_function(workload)
        self._program = Program(workload, data, devices)
        self._tester = ModelTester(self._program.function, workload, data, devices.chief)

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        """See `Trainer.train`."""
        pair = (spec.identity.first_protocol, spec.identity.second_protocol)
        check_trial(spec, self._own_identity(*pair))
        if any(choose_protocol(name).exchange is Exchange.REPLICA for name in pair):
            self._program.prepare_replicas()
        state, start = self._program.form.load(spec)
        self._program.load(state)
        started_at = datetime.now(timezone.utc)
        configuration = Configuration(self._workload, spec, self._examples, self._rate_at)
        run = TrainingRun(
            configuration, self._program, self._tester, spec, observer or SilentObserver(), start
        )
        try:
            result = run.execute()
        except SyncSwitchError:
            raise
        except TRANSIENT_ERRORS as error:
            raise RetryableError(f"a server was lost while training ({one_line(error)})") from error
        except Exception as error:
            raise FatalError(f"training failed with {one_line(error)}") from error
        return trial_record(spec, result, start.elapsed_seconds if start else 0.0, started_at)

    def close(self) -> None:
        """See `Trainer.close`."""
        self._launcher.close()

    def _own_identity(self, *protocols: str) -> WorkloadIdentity:
        # Kept, because describing a workload builds its model.
        if protocols not in self._identities:
            self._identities[protocols] = self._workload.identity(self._workers, *protocols)
        return self._identities[protocols]
