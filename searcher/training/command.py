"""One training by a user's command, from the look-up of its policy to the lessons of the run."""

from __future__ import annotations

import uuid
from dataclasses import replace

from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.strategies.baseline import allowed_loss
from syncswitch.searcher.training.policy import RunRequest, choose
from syncswitch.searcher.training.train import Training, Watching, remembered, trial_of
from syncswitch.searcher.training.uses import RunRecorder, Tell
from syncswitch.searcher.training.when import When
from syncswitch.storage.errors import FatalError, RetryableError, Set
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
    when = When(policy, switch_at, None, guarded, learn, expected_runs, allowed)
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
        done = remembered(request, chosen, record, use_id, model, alone_seconds)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command starts over") from None
    if record.diverged:
        raise FatalError(
            f"the training diverged after {record.worker_steps:,} of its steps; its output is in"
            f" {folder}",
            remedy=(Set("seed", verb="try another"), "a later switch"),
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
                raise RetryableError(message) from error
            tell(f"it is run again, from the checkpoint that it has left: {message}")
    raise AssertionError("the last attempt returns or raises")
