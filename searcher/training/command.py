"""One training by a user's command, from the look-up of its policy to the lessons of the run."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.learning.uses import next_run
from syncswitch.searcher.training.policy import check_when, named_policies
from syncswitch.searcher.training.train import Training, Watching
from syncswitch.searcher.training.uses import (
    Tell,
    UsesHome,
    after_use,
    first_policy,
    known_band,
    note_bare_use,
    own_seed,
    recorded_alone,
    run_text,
)
from syncswitch.storage.errors import FatalError, PolicyError
from syncswitch.storage.records.guard import later_switch_points
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.trainer import CommandTrainer

if TYPE_CHECKING:
    from syncswitch.storage.records.guard import Band
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.trainers.command.job import CommandJob


def train_by_command(
    name: str,
    *,
    trainer: UsersCommand,
    policy: str | None,
    switch_at: float | None,
    guarded: bool,
    learn: bool | None,
    uses: int,
    workers: int | None,
    protocols: str | None,
    seed: int | None,
    storage: str,
    tell: Tell,
    observer: Watching,
) -> Training:
    """Trains by a command; the arguments are those of `train` that concern a command.

    Raises:
        UserError: Something does not exist, is out of range, or does not fit the rest.
        FatalError: The training diverged.
        RetryableError: The command failed.
        KeyboardInterrupt: Its message says how to begin anew, once the training had begun.
    """
    check_when(learns=bool(learn), is_guarded=guarded, choice=policy, switch_percent=switch_at)
    pair = None if protocols is None else trainer.pair(protocols)
    used: TimingPolicy | None = None
    band: Band | None = None
    retries: tuple[float, ...] = ()
    goes_back = None
    if not learn and switch_at is None:
        used, job = _fitting(trainer, name, policy or "current", workers, pair, storage)
        switch_at = used.switch_percent
        if seed is None:
            seed = own_seed(storage, job.identity)
            tell(f"this run has seed {seed}")
        band = known_band(used, storage, tell) if guarded else None
        retries = later_switch_points(switch_at) if band else ()
    else:
        job = trainer.command_job(name, workers or 1, pair or trainer.pair(None))
        if switch_at is None:
            goes_back = job.template.can_go_back
            planned = next_run(storage, job.identity, uses, goes_back)
            used, switch_at = planned.policy, planned.switch_percent
            band, retries = planned.band, planned.retry_percents
            if seed is None:
                seed = own_seed(storage, job.identity, job.name)
            tell(run_text(job.identity, seed, switch_at, planned))
    note_bare_use(used, band, tell)
    runner = CommandTrainer(job)
    alone_seconds = tuple(recorded_alone(storage, job.identity))
    spec = TrialSpec(job.identity, switch_at, seed or 0, band=band, retry_percents=retries)
    try:
        use_id = uuid.uuid4().hex
        with observer(spec.identity) as watching:
            record = runner.train(spec, watching)
        folder = runner.last_folder
        assert folder is not None  # it has just trained
        if learn and used is None:
            used = first_policy(job.identity, job.name, record, storage, tell)
        home = UsesHome(storage, policy or "current", trainer.output_folder / name, tell)
        home.record(used, use_id, record)
        after_use(used, storage, tell, uses if learn else None, goes_back=goes_back)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command starts afresh") from None
    if record.diverged:
        raise FatalError(
            f"the training diverged after {record.worker_steps:,} of its steps; try another --seed,"
            f" or a later switch; its output is in {folder}"
        )
    return Training(used, record, folder, alone_seconds, has_model=False)


def _fitting(
    command: UsersCommand,
    name: str,
    choice: str,
    workers: int | None,
    pair: tuple[str, str] | None,
    storage_url: str,
) -> tuple[TimingPolicy, CommandJob]:
    """The policy of exactly this command. Raises PolicyError where there is none."""
    known = [policy for policy, _ in named_policies(name, choice, storage_url)]
    found = [
        one
        for one in known
        if workers in (None, one.workers)
        and pair in (None, (one.first_protocol, one.second_protocol))
    ]
    for policy in found:
        protocols = (policy.first_protocol, policy.second_protocol)
        job = command.command_job(name, policy.workers, protocols)
        if job.identity.fingerprint == policy.fingerprint:
            return policy, job
    search = f"syncswitch-search run {name} --trainer command --command ... --total-steps ..."
    if not found:
        have = "; ".join(one.cluster for one in known)
        there = f" for these options (there is one for {have})" if have else ""
        raise PolicyError(
            f"no policy {choice!r} of command {name!r}{there}; find one with: {search}"
        )
    raise PolicyError(
        f"policy {choice!r} of {name!r} is not for this --command and --total-steps: it has"
        f" {found[0].total_worker_steps:,} steps and fingerprint {found[0].fingerprint[:12]}; give"
        f" those of its search, or find another policy with: {search}"
    )
