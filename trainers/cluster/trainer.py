"""The trainer that runs on a TensorFlow cluster."""

from __future__ import annotations

import socket
from datetime import datetime, timezone

from syncswitch.storage.errors import (
    FatalError,
    RetryableError,
    SyncSwitchError,
    UserError,
    one_line,
)
from syncswitch.storage.metrics import converged_accuracy, is_converged
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.records import TrialRecord, TrialSpec, WorkloadIdentity
from syncswitch.trainers.cluster.checkpoint import Checkpoint, read_checkpoint
from syncswitch.trainers.cluster.evaluator import ModelTester
from syncswitch.trainers.cluster.launchers import InProcessLauncher, Launcher
from syncswitch.trainers.cluster.program import ModelState, Program
from syncswitch.trainers.cluster.run import RunResult, TrainingRun
from syncswitch.trainers.cluster.tensorflow_api import TRANSIENT_ERRORS
from syncswitch.trainers.schedule import last_boundary
from syncswitch.trainers.trainer import Observer, SilentObserver, Trainer
from syncswitch.trainers.trial_check import check_position, check_trial
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
        self._program = Program(workload, data, devices)
        self._tester = ModelTester(self._program, workload, data, devices.chief)

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        """See `Trainer.train`."""
        pair = (spec.identity.first_protocol, spec.identity.second_protocol)
        check_trial(spec, self._own_identity(*pair))
        start = self._load_start(spec)
        started_at = datetime.now(timezone.utc)
        run = TrainingRun(
            self._workload, self._program, self._tester, spec, observer or SilentObserver(), start
        )
        try:
            result = run.execute()
        except SyncSwitchError:
            raise
        except TRANSIENT_ERRORS as error:
            raise RetryableError(f"a server was lost while training ({one_line(error)})") from error
        except Exception as error:
            raise FatalError(f"training failed with {one_line(error)}") from error
        return self._record(spec, result, start, started_at)

    def close(self) -> None:
        """See `Trainer.close`."""
        self._launcher.close()

    def _own_identity(self, *protocols: str) -> WorkloadIdentity:
        # Kept, because describing a workload builds its model.
        if protocols not in self._identities:
            self._identities[protocols] = self._workload.identity(self._workers, *protocols)
        return self._identities[protocols]

    def _load_start(self, spec: TrialSpec) -> Checkpoint | None:
        if spec.fork_from is None:
            self._program.load(self._program.initial_state(spec.seed))
            return None
        checkpoint = read_checkpoint(spec.fork_from)
        check_position(spec, checkpoint.worker_step, checkpoint.first_protocol_worker_steps)
        try:
            if checkpoint.model != spec.identity.model:
                raise ValueError(f"structure {checkpoint.model[:12]}")
            state = ModelState(
                self._program.parameters.from_named(checkpoint.parameters),
                self._program.slots.from_named(checkpoint.slots),
                self._program.statistics.from_named(checkpoint.statistics),
                checkpoint.updates,
            )
        except (KeyError, ValueError) as error:
            raise UserError(
                f"checkpoint {spec.fork_from} is of another model or optimizer than workload "
                f"{self._workload.name!r} ({error}); give one of this workload"
            ) from error
        self._program.load(state)
        return checkpoint

    def _record(
        self,
        spec: TrialSpec,
        result: RunResult,
        start: Checkpoint | None,
        started_at: datetime,
    ) -> TrialRecord:
        boundaries = self._workload.learning_rate_boundaries
        return TrialRecord(
            spec=spec,
            worker_steps=result.worker_steps,
            evaluations=result.evaluations,
            phases=result.phases,
            converged_accuracy=converged_accuracy(result.evaluations),
            converged=not result.diverged
            and is_converged(result.evaluations, last_boundary(boundaries)),
            diverged=result.diverged,
            stopped_early=result.stopped_early,
            training_seconds=result.training_seconds,
            inherited_seconds=start.elapsed_seconds if start else 0.0,
            switch_overhead_seconds=result.switch_overhead_seconds,
            started_at=started_at,
            ended_at=datetime.now(timezone.utc),
            host=socket.gethostname(),
            software=software_versions(),
            checkpoints=result.checkpoints,
        )
