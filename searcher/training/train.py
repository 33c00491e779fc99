"""One training with a policy, from the look-up of the policy to the lessons of the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from syncswitch.searcher.training.policy import (
    Wanted,
    check_when,
    chosen_by_learning,
    chosen_by_policy,
    chosen_by_user,
)
from syncswitch.searcher.training.resume import (
    RunCheckpoints,
    check_sound,
    interrupted_run,
    save_model,
)
from syncswitch.searcher.training.uses import (
    Tell,
    UsesHome,
    after_use,
    first_policy,
    note_bare_use,
    recorded_alone,
)
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.protocols import alone, parse_pair
from syncswitch.trainers.run.side_output import SideOutput

if TYPE_CHECKING:
    from syncswitch.searcher.backends.base import ClusterChoice
    from syncswitch.storage.records.job import WorkloadIdentity
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.storage.records.trial import TrialRecord
    from syncswitch.trainers.conditions import ConditionsChoice
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.trainer import Observer

Watching = Callable[["WorkloadIdentity"], AbstractContextManager["Observer"]]
"""Opens the observer of a training."""


@dataclass(frozen=True, slots=True)
class Training:
    """A finished training.

    Attributes:
        policy: The policy that it used or made; None for a switch point of the user's own.
        record: Its measurements.
        model_path: The saved model.
        alone_seconds: Times of earlier recorded trainings with the first protocol alone.
    """

    policy: TimingPolicy | None
    record: TrialRecord
    model_path: Path
    alone_seconds: tuple[float, ...] = ()


def train_with_policy(
    cluster: ClusterChoice,
    reference: str,
    *,
    choice: str | None,
    switch_percent: float | None,
    protocol: str | None,
    is_guarded: bool,
    workers: int | None,
    protocols: str | None,
    seed: int | None,
    output: Path | None,
    learns: bool | None,
    expected_uses: int,
    conditions: ConditionsChoice,
    checkpoint_folder: Path | None,
    every_percent: float,
    resume: bool,
    tensorboard_folder: Path | None,
    mlflow_uri: str | None,
    storage_url: str,
    tell: Tell,
    watching: Watching,
) -> Training:
    """Trains a workload with its policy, or at a switch point of the user's own.

    Args:
        cluster: The cluster to train on.
        reference: The workload, as the user named it.
        choice: A policy file, or a version or alias in the database; None for the current policy.
        switch_percent: A switch point of the user's own, percent of W; None for the policy's.
        protocol: One protocol for all of the training; None for a switch.
        is_guarded: Whether a training that fails after its switch goes back to it.
        workers: n; None for the policy's.
        protocols: Before and after the switch; None for the policy's.
        seed: None for one that no other run of the job has.
        output: Path of the model; None for NAME.keras.
        learns: Whether the run may try another switch than its policy's; None to let the policy
            decide.
        expected_uses: Total number of trainings of the job, by runs that learn.
        conditions: Treatment of stragglers, and injections.
        checkpoint_folder: None for NAME-checkpoints beside the model.
        every_percent: Percent of W between two checkpoints.
        resume: Whether to go on from the checkpoints of an interrupted run.
        tensorboard_folder: None for no logs.
        mlflow_uri: None for no copy.
        storage_url: The database; it need not be there.
        tell: Shows people a line.
        watching: Opens the observer of the training.

    Raises:
        UserError: Something does not exist, is out of range, or does not fit the rest.
        FatalError: The training diverged, or its model cannot be saved.
        RetryableError: The infrastructure failed.
        KeyboardInterrupt: Ctrl-C; once the training has begun, the message says how to go on.
    """
    from syncswitch.trainers.model.export import check_model_path

    workers = cluster.workers(workers)
    if output is not None:
        check_model_path(output)
    check_when(
        learns=bool(learns),
        is_guarded=is_guarded,
        choice=choice,
        switch_percent=switch_percent,
        protocol=protocol,
        protocols=protocols,
    )

    def home(workload: Workload) -> tuple[Path, Path]:
        model = output or Path(f"{workload.name}.keras")
        return model, model.parent / f"{workload.name}-checkpoints"

    def interrupted(workload: Workload, percent: float | None) -> tuple[int, float] | None:
        folder = checkpoint_folder or home(workload)[1]
        return interrupted_run(folder, seed, percent, resume=resume)

    pair = None if protocols is None else parse_pair(protocols)
    if protocol is not None:
        pair, switch_percent = alone(protocol), 100.0
    wanted = Wanted(cluster, reference, workers, pair, seed, storage_url, interrupted, tell)
    if switch_percent is not None:
        run = chosen_by_user(wanted, switch_percent)
    elif learns:
        run = chosen_by_learning(wanted, expected_uses)
    else:
        learnt_uses = None if learns is False or choice is not None else expected_uses
        run = chosen_by_policy(
            wanted, choice or "current", is_guarded=is_guarded, learnt_uses=learnt_uses
        )
    workload, identity, policy = run.workload, run.identity, run.policy
    note_bare_use(policy, run.band, tell)
    output, usual_folder = home(workload)
    check_model_path(output)
    spec = TrialSpec(
        identity,
        run.switch_percent,
        run.seed,
        conditions=cluster.conditions(
            conditions, identity.workers, run.switch_percent, identity.first_protocol
        ),
        resume=resume,
        band=run.band,
        retry_percents=run.retry_percents,
    )
    cluster.check_capacity(identity.workers)
    checkpoints = RunCheckpoints(
        spec, checkpoint_folder or usual_folder, every_percent, spares=[usual_folder]
    )
    alone_seconds = tuple(recorded_alone(storage_url, identity))
    uses = UsesHome(storage_url, choice or "current", output, tell)
    try:
        with closing(checkpoints.open()):
            record = trained(
                workload, reference, cluster, checkpoints, tensorboard_folder, watching
            )
            # A run that is killed here goes on, and saves and records the same again.
            if not record.diverged:
                save_model(workload, record, checkpoints, output)
            checkpoints.name_use()
            if run.learns and policy is None:
                called = normal_reference(reference)
                policy = first_policy(identity, called, record, storage_url, tell, run.begins_from)
            uses.record(policy, checkpoints.use_id, record)
            after_use(policy, storage_url, tell, expected_uses if run.learns else None)
            SideOutput("checkpoints that are needed no longer stay; remove them", tell)(
                checkpoints.remove
            )
            check_sound(record, reference)
            if mlflow_uri is not None:
                SideOutput(
                    "MLflow has no copy of this run; syncswitch-search export copies the runs with"
                    " policies that are in a database",
                    tell,
                )(_copy_to_mlflow, mlflow_uri, checkpoints.use_id, record, policy)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(checkpoints.how_to_go_on) from None
    return Training(policy, record, output, alone_seconds)


def trained(
    workload: Workload,
    reference: str,
    cluster: ClusterChoice,
    checkpoints: RunCheckpoints,
    tensorboard_folder: Path | None,
    watching: Watching,
) -> TrialRecord:
    """Trains with an observer and TensorBoard's logs.

    Raises:
        RetryableError: The infrastructure failed; the message says how to go on.
    """
    from syncswitch.trainers.run.tensorboard import logged

    identity = checkpoints.spec.identity
    try:
        with (
            logged(
                cluster.open(workload, reference, identity.workers),
                tensorboard_folder,
                _name_of_logs(checkpoints.spec),
            ) as trainer,
            watching(identity) as observer,
        ):
            return trainer.train(checkpoints.spec, observer)
    except RetryableError as error:
        raise RetryableError(f"{error}; {checkpoints.how_to_go_on}") from error


def _name_of_logs(spec: TrialSpec) -> str:
    """The name of TensorBoard's logs, one for each job, switch and seed."""
    identity = spec.identity
    job = f"{identity.name}-{identity.fingerprint[:12]}"
    return f"{job}-switch-{spec.switch_percent:g}-seed-{spec.seed}"


def _copy_to_mlflow(
    uri: str, use_id: str, record: TrialRecord, policy: TimingPolicy | None
) -> None:
    """Copies a finished run to MLflow."""
    from syncswitch.storage.export.mlflow.runs import use_copy
    from syncswitch.storage.export.mlflow.server import MlflowServer

    copy = use_copy(use_id, record, None if policy is None else policy.version)
    MlflowServer(uri).put(record.spec.identity, [copy])
