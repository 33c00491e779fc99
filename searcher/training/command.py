"""One training by a user's command, from the look-up of its policy to the lessons of the run."""

from __future__ import annotations

import uuid
from dataclasses import replace

from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.strategies.baseline import allowed_loss
from syncswitch.searcher.training.policy import (
    RunRequest,
    check_when,
    chosen_by_learning,
    chosen_by_policy,
    chosen_by_user,
)
from syncswitch.searcher.training.train import Training, Watching, trial_of
from syncswitch.searcher.training.uses import RunRecorder, Tell
from syncswitch.storage.errors import FatalError, RetryableError, Set
from syncswitch.storage.policies.registry import CURRENT
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.command.reports import RepeatedOutput
from syncswitch.trainers.command.trainer import CommandTrainer
from syncswitch.trainers.run.tensorboard import watched_aside
from syncswitch.trainers.trainer import Observer

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
    check_when(
        learns=bool(learn),
        is_guarded=guarded,
        choice=policy,
        switch_percent=switch_at,
        allowed=allowed,
        learn=learn,
    )
    pair = None if protocols is None else trainer.pair(protocols)
    recorder = RunRecorder(storage, tell)
    request = RunRequest(
        trainer, name, workers, pair, seed, recorder, policy or CURRENT, allowed=allowed
    )
    job = trainer.command_job(name, workers or 1, pair or trainer.pair(None))
    may_learn = learn is not False and policy is None
    goes_back = job.template.can_go_back if may_learn else None
    if switch_at is not None:
        chosen = chosen_by_user(request, switch_at)
    elif learn:
        chosen = chosen_by_learning(request, expected_runs, goes_back)
    else:
        chosen = chosen_by_policy(
            request,
            is_guarded=guarded,
            expected_runs=expected_runs if may_learn else None,
            goes_back=goes_back,
        )
    spec, used, identity = trial_of(chosen, tell), chosen.run.policy, chosen.identity
    pair = (identity.first_protocol, identity.second_protocol)
    runner = CommandTrainer(replace(job, workers=identity.workers, protocols=pair))
    alone_seconds = tuple(recorder.times_alone(identity))
    try:
        use_id = uuid.uuid4().hex
        with watched_aside(observer, identity, tell) as watching:
            record = _trained(runner, spec, watching, job.template.can_resume, tell)
        folder = runner.last_folder
        assert folder is not None  # it has just trained
        if chosen.run.learns and used is None:
            used = recorder.first_policy(
                identity, name, record, goes_back=goes_back, allowed=allowed
            )
        recorder.record(used, use_id, record, choice=policy, model=trainer.output_folder / name)
        target = recorder.target(used, spec.band)
        recorder.tell_lessons(used, expected_runs if chosen.run.learns else None, goes_back)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command starts afresh") from None
    if record.diverged:
        raise FatalError(
            f"the training diverged after {record.worker_steps:,} of its steps; its output is in"
            f" {folder}",
            remedy=(Set("seed", verb="try another"), "a later switch"),
        )
    return Training(used, record, folder, alone_seconds, target, has_model=False)


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
                raise RetryableError(message) from error
            tell(f"it is run again, from the checkpoint that it has left: {message}")
    raise AssertionError("the last attempt returns or raises")
