"""One training, by a trainer or a user's command: from the look-up of its policy to its lessons."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SkipValidation

from syncswitch.searcher.backends.base import USUAL_EXPECTED_RUNS, ClusterChoice
from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.backends.registry import TRAINING, trainer_named
from syncswitch.searcher.learning.publishing import first_policy
from syncswitch.searcher.mlflow import check_copies
from syncswitch.searcher.strategies.baseline import allowed_loss
from syncswitch.searcher.training.policy import ChosenRun, RunRequest, SwitchChoice, choose
from syncswitch.searcher.training.resume import (
    InterruptedRun,
    RunCheckpoints,
    check_sound,
    interrupted_run,
    save_model,
)
from syncswitch.searcher.training.uses import RunRecorder, Tell
from syncswitch.storage.database.defaults import database_url
from syncswitch.storage.errors import FatalError, OptionHint, RetryableError, UserError
from syncswitch.storage.export.mlflow import copy_run
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.unguarded import unguarded_warning
from syncswitch.storage.policies.unmeasured import unmeasured_policy
from syncswitch.storage.records.job import LARGEST_SEED, ScheduledJob
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.command.reports import RepeatedOutput
from syncswitch.trainers.command.trainer import CommandTrainer
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.job.hyperparameters import rates_text
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.protocols import alone, parse_pair
from syncswitch.trainers.run.tensorboard import SideOutput, logged, watched_aside
from syncswitch.trainers.trainer import Observer

if TYPE_CHECKING:
    from syncswitch.storage.database.engine import Database
    from syncswitch.storage.records.goal import Goal
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.trainers.job.workload import Workload

_LOG = logging.getLogger(__name__)
Watching = Callable[[ScheduledJob], AbstractContextManager[Observer]]
"""Opens an observer for a training of this job."""


@dataclass(frozen=True, slots=True)
class Training:
    """A finished training.

    Attributes:
        policy: The policy that it used or made; None for a switch point of the user's own.
        counts_for: The policy of its job as one of whose runs it is recorded; None for none.
        model_path: The saved model; the output folder of a training command, which saves its own.
        alone_seconds: The times of earlier recorded trainings with the first protocol alone.
        goal: What runs with the policy are held to, by all runs so far; None as long as nobody
            has measured it.
        has_model: Whether `model_path` is a model.
        was_announced: Whether people were told before it what is expected of such runs.
    """

    policy: TimingPolicy | None
    record: TrialRecord
    model_path: Path
    alone_seconds: tuple[float, ...] = ()
    goal: Goal | None = None
    has_model: bool = True
    counts_for: TimingPolicy | None = None
    was_announced: bool = False


def train(
    workload: str,
    *,
    policy: str | None = None,
    switch_at: Annotated[float, Field(ge=0, le=100)] | None = None,
    protocol: str | None = None,
    guarded: bool = True,
    trainer: str | SkipValidation[ClusterChoice] = "local",
    trainer_options: Mapping[str, Any] | None = None,
    workers: Annotated[int, Field(ge=1, le=100_000)] | None = None,
    protocols: str | None = None,
    storage: str | None = None,
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None = None,
    output: Path | None = None,
    learn: bool | None = None,
    expected_runs: Annotated[int, Field(ge=1, le=1_000_000)] = USUAL_EXPECTED_RUNS,
    threshold: float | None = None,
    threshold_runs: int | None = None,
    online: Literal["none", "greedy", "elastic"] = "none",
    switch: Literal["hot", "restart"] = "hot",
    inject: Sequence[str] = (),
    checkpoints: Path | None = None,
    checkpoint_every: Annotated[float, Field(ge=0.1, le=100)] = 10.0,
    resume: bool = False,
    tensorboard: Path | None = None,
    mlflow: str | None = None,
    observer: SkipValidation[Observer | Watching | None] = None,
    tell: SkipValidation[Tell | None] = None,
) -> Training:
    """Trains a workload with its timing policy, saves the model, and records the use.

    Example:
        ```
        done = train("digits", trainer="simulated", workers=8)
        print(done.record.converged_accuracy, done.model_path)
        ```

    Args:
        workload: A built-in name, `file.py:attribute` or `package.module:attribute`.
        policy: A policy file, or a version or alias in the database; None for the current policy.
        switch_at: Switch after this percentage of the worker-steps, whatever the policy says.
        protocol: Use this protocol for the whole training, whatever the policy says.
        guarded: Whether a training that fails after its switch goes back to it.
        trainer: `local`, `simulated`, `ray`, or a kind that another package adds.
        trainer_options: The options of that trainer by their names on the command line, without
            dashes: `{"launcher": "processes"}`.
        workers: The number of workers; None for the policy's.
        protocols: The protocols before and after the switch, such as `bsp,asp`; None for the
            policy's.
        storage: The URL of the database; None for the one in SYNCSWITCH_STORAGE, or syncswitch.db
            in the current folder. It need not exist.
        seed: The seed of the run; None for one that no other run of the job has, or 0 with
            `switch_at`.
        output: Where to save the model; None for NAME.keras. What another run has saved there is
            kept as NAME-1.keras.
        learn: Whether the run may try another switch than its policy's; None to decide as
            `syncswitch-run` does.
        expected_runs: How often the job is trained in total, by runs that learn.
        threshold: How much accuracy may be lost, in the unit of the metric, by runs that learn;
            None for that of the policy, or as for a search.
        threshold_runs: Measure that in the first so many runs with the first protocol alone, 3 to
            100, instead of `threshold`.
        online: What to do about stragglers before the switch.
        switch: Whether the running cluster changes its protocol, or a new cluster is started.
        inject: Deliberate disturbances, as `--inject` takes them.
        checkpoints: The folder for the checkpoints that `resume` needs; None for
            NAME-checkpoints beside the model.
        checkpoint_every: The percentage of the job between two checkpoints.
        resume: Whether to continue from the last intact checkpoint of an interrupted run.
        tensorboard: The folder for TensorBoard logs of the run; None for no logs.
        mlflow: The MLflow tracking URI to copy the run to; None for no copy.
        observer: Follows the training and may stop it; or a function that opens an observer once
            the job is known.
        tell: Receives each message for people; None to log them as warnings.

    Returns:
        The measurements, the policy, and the path of the model.

    Raises:
        UserError: Something does not exist, is out of range, or does not fit the rest.
        FatalError: The training diverged, or its model cannot be saved.
        RetryableError: The infrastructure failed; `resume=True` continues the run.
        KeyboardInterrupt: Its message says how to continue, once the training had begun.
    """
    from syncswitch.trainers.model.saved import check_model_path, saving_problem

    cluster = trainer_named(trainer, trainer_options or {}) if isinstance(trainer, str) else trainer
    if not isinstance(cluster, ClusterChoice):
        kinds = ", ".join(kind.name for kind in TRAINING)
        raise UserError(
            f"trainer is {trainer!r}, which trains no workload: give one of {kinds}",
            code="parameter-invalid",
        )
    check_copies(tensorboard, mlflow)
    storage_url, tell = database_url(storage), tell or _LOG.warning
    if output is not None:
        check_model_path(output)

    def places(loaded: Workload) -> tuple[Path, Path]:
        model = output or Path(f"{loaded.name}.keras")
        return model, model.parent / f"{loaded.name}-checkpoints"

    def interrupted(loaded: Workload, percent: float | None) -> InterruptedRun | None:
        return interrupted_run(checkpoints or places(loaded)[1], seed, percent, resume=resume)

    allowed = allowed_loss(threshold, threshold_runs)
    request = RunRequest(
        cluster,
        workload,
        cluster.workers(workers),
        _pair(protocol, protocols),
        seed,
        RunRecorder(storage_url, tell),
        SwitchChoice(policy, switch_at, protocol, guarded, learn, expected_runs, allowed),
        interrupted,
    )
    chosen = choose(request)
    identity, (model, usual_folder) = chosen.identity, places(chosen.workload)
    check_model_path(model)
    problem = saving_problem(chosen.workload, model)
    for said in (problem, rates_text(chosen.workload, identity)):
        if said is not None:
            tell(said)
    conditions = cluster.conditions(
        ConditionsChoice(online, switch, tuple(inject)),
        identity.workers,
        chosen.run.switch_percent,
        identity.first_protocol,
    )
    cluster.check_capacity(identity.workers)
    kept = RunCheckpoints(
        replace(trial_of(chosen, tell), conditions=conditions, resume=resume),
        checkpoints or usual_folder,
        checkpoint_every,
        spares=[usual_folder],
    )
    alone_seconds = tuple(request.recorder.times_alone(identity))
    watching = observer if callable(observer) else lambda _: nullcontext(observer or Observer())
    try:
        with closing(kept.open()):
            try:
                opened = cluster.open(chosen.workload, workload, identity.workers)
                with (
                    logged(opened, tensorboard, _log_name(kept.spec), tell) as trains,
                    watched_aside(watching, identity, tell) as watches,
                ):
                    record = trains.train(kept.spec, watches)
            except RetryableError as error:
                raise RetryableError([error], remedy=kept.how_to_go_on) from error
            # A run that is killed from here on continues, and saves and records the same again.
            unsaved = None
            try:
                if not record.diverged:
                    model, earlier = save_model(chosen.workload, record, kept, model)
                    if earlier is not None:
                        tell(f"the model of an earlier run in {model} is kept as {earlier}")
            except FatalError as error:
                unsaved = error
            if unsaved is None:
                kept.name_use()
            elif not kept.name_unsaved(record):
                raise unsaved
            done = record_and_learn(request, chosen, record, kept.use_id, model, alone_seconds)
            if unsaved is not None:
                raise unsaved
            SideOutput("checkpoints that are no longer needed are still there; remove them", tell)(
                kept.remove
            )
            check_sound(record, workload)
            if mlflow is not None:
                version = None if done.counts_for is None else done.counts_for.version
                SideOutput(
                    "MLflow has no copy of this run; an export to it copies the runs with policies"
                    " that are in a database",
                    tell,
                )(copy_run, mlflow, kept.use_id, record, version)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(kept.how_to_go_on) from None
    return done


def record_and_learn(
    request: RunRequest,
    chosen: ChosenRun,
    record: TrialRecord,
    use_id: str,
    model: Path,
    alone_seconds: tuple[float, ...],
) -> Training:
    """Records a finished run and has it teach what it can; returns the finished training."""
    recorder, run, when = request.recorder, chosen.run, request.when
    identity, is_asked = record.spec.identity, run.policy is None and not run.learns

    def policy_of_job(database: Database) -> TimingPolicy | None:
        # Another run may have been the first meanwhile.
        known = PolicyRegistry(database).current(identity.fingerprint, identity.protocols)
        if is_asked and known is not None:
            return known
        if not run.may_begin:
            return None
        return first_policy(
            database,
            identity,
            normal_reference(request.reference),
            record,
            run.begins_from,
            request.goes_back,
            when.allowed,
        )

    policy, waits = run.policy or chosen.counts_for, None
    if policy is not None and policy.protocols != identity.protocols:
        policy = None  # the run has chosen others
    if policy is None:
        policy, waits = recorder.published(policy_of_job)
    if waits is not None and run.may_begin:
        draft = unmeasured_policy(identity)
        recorder.record(draft, use_id, record, choice=when.policy, model=model, waits=waits)
    else:
        recorder.record(policy, use_id, record, choice=when.policy, model=model)
    goal = recorder.goal(policy, run.band)
    learns = run.learns or (is_asked and when.may_learn)
    recorder.tell_lessons(policy, when.expected_runs if learns else None, request.goes_back)
    used = None if is_asked else policy
    announced = run.expected is not None
    return Training(
        used, record, model, alone_seconds, goal, counts_for=policy, was_announced=announced
    )


def _pair(protocol: str | None, protocols: str | None) -> tuple[str, str] | None:
    if protocol is not None and protocols is not None:
        raise UserError(
            "both say what to use",
            parameter=("protocol", "protocols"),
            remedy="leave out one of them",
        )
    if protocol is not None:
        return alone(protocol)
    return None if protocols is None else parse_pair(protocols)


def _log_name(spec: TrialSpec) -> str:
    identity = spec.identity
    how = f"{identity.pair}-switch-{spec.switch_percent:g}-seed-{spec.seed}"
    return f"{identity.name}-{identity.fingerprint[:12]}-{how}"


def trial_of(chosen: ChosenRun, tell: Tell) -> TrialSpec:
    """The run as trainers take it.

    People are told where it has no guard, and its policy was found for guarded runs.
    """
    run = chosen.run
    if run.policy is not None and run.band is None:
        warning = unguarded_warning(run.policy)
        if warning is not None:
            tell(warning)
    spec = TrialSpec.of_policy(chosen.identity, run.switch_percent, chosen.seed, run.band)
    is_guarded_use = run.band is not None and (run.learns or run.policy is not None)
    fallbacks = run.fallbacks if is_guarded_use else ()
    return replace(spec, candidates=run.candidates, fallbacks=fallbacks, leaves_slow=is_guarded_use)


_ATTEMPTS = 3  # as in a search


def train_by_command(
    name: str,
    *,
    trainer: UsersCommand,
    policy: str | None,
    switch_at: float | None,
    guarded: bool,
    learn: bool | None,
    expected_runs: int,
    threshold: float | None,
    threshold_runs: int | None,
    workers: int | None,
    protocols: str | None,
    seed: int | None,
    storage: str,
    tell: Tell,
    observer: Watching,
) -> Training:
    """Trains by a command; the arguments are those of `train` that concern a command.

    Raises RetryableError where the command failed, and else as `train`.
    """
    allowed = allowed_loss(threshold, threshold_runs)
    when = SwitchChoice(policy, switch_at, None, guarded, learn, expected_runs, allowed)
    pair = None if protocols is None else trainer.pair(protocols)
    job = trainer.command_job(name, workers or 1, pair or trainer.pair(None))
    request = RunRequest(
        trainer,
        name,
        workers,
        pair,
        seed,
        RunRecorder(storage, tell),
        when,
        goes_back=job.template.can_go_back if when.may_learn else None,
    )
    chosen = choose(request)
    spec, identity = trial_of(chosen, tell), chosen.identity
    pair = (identity.first_protocol, identity.second_protocol)
    runner = CommandTrainer(replace(job, workers=identity.workers, protocols=pair))
    alone_seconds = tuple(request.recorder.times_alone(identity))
    try:
        use_id = uuid.uuid4().hex
        with watched_aside(observer, identity, tell) as watching:
            record = _trained(runner, spec, watching, job.template.can_resume, tell)
        folder = runner.last_folder
        assert folder is not None  # it has just trained
        model = trainer.output_folder / name
        done = record_and_learn(request, chosen, record, use_id, model, alone_seconds)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command starts over") from None
    if record.diverged:
        raise FatalError(
            f"the training diverged after {record.worker_steps:,} of its steps; its output is in"
            f" {folder}",
            remedy=(OptionHint("seed", verb="try another"), "a later switch"),
            code="training-diverged",
        )
    return replace(done, model_path=folder, has_model=False)


def _trained(
    runner: CommandTrainer, spec: TrialSpec, observer: Observer, can_resume: bool, tell: Tell
) -> TrialRecord:
    """Trains, and again from the last checkpoint where a command that can do so has failed."""
    failures = RepeatedOutput()
    for left in reversed(range(_ATTEMPTS if can_resume else 1)):
        try:
            return runner.train(spec, observer)
        except RetryableError as error:
            message = failures.told(str(error))
            if not left:
                raise RetryableError(message, code=error.code) from error
            tell(f"it is run again, from the checkpoint that it has left: {message}")
    raise AssertionError("the last attempt returns or raises")
