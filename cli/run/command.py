"""`syncswitch-run --trainer command`: a training command of the user's, with its policy."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from syncswitch.cli import console
from syncswitch.cli.console import EXIT_INTERRUPTED
from syncswitch.cli.options import is_given, trainer_option
from syncswitch.searcher.training.uses import is_policy_file
from syncswitch.storage.errors import FatalError, PolicyError, UserError
from syncswitch.trainers.command.options import (
    COMMAND_OPTIONS,
    USUAL_COMMAND_PROTOCOLS,
    CommandChoice,
)

if TYPE_CHECKING:
    from syncswitch.storage.records.guard import Band
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.storage.records.trial import TrialRecord, TrialSpec
    from syncswitch.trainers.command.job import CommandJob
    from syncswitch.trainers.command.trainer import CommandTrainer

_F = TypeVar("_F", bound=Callable[..., Any])


def trained_by_command(function: _F) -> _F:
    """`--trainer`, and the options of a command, which may be trained instead of a workload."""
    names = [field.name for field in fields(CommandChoice)]

    @functools.wraps(function)
    def chosen(*arguments: Any, trainer: str, **values: Any) -> Any:
        own = {name: values.pop(name) for name in names}
        if trainer == "command":
            _refuse_others()
            known = (values[name] for name in _KNOWN)
            return _run(CommandChoice(**own), *known)
        for parameter in filter(is_given, names):
            raise UserError(
                f"{_flag(parameter)} needs --trainer command, and this is --trainer {trainer}:"
                " change that, or leave it out"
            )
        return function(*arguments, trainer=trainer, **values)

    decorated: Any = chosen
    for option in reversed(COMMAND_OPTIONS):
        decorated = trainer_option(option)(decorated)
    kinds = click.option(
        "--trainer",
        type=click.Choice(["local", "simulated", "command"]),
        metavar="KIND",
        default="local",
        show_default=True,
        help="local = a TensorFlow cluster on this machine, or in TF_CONFIG; simulated = real"
        " gradients on a virtual clock, described by --profile; command = your own training"
        " command, described as for its search: WORKLOAD is its name there.",
    )
    found: _F = kinds(decorated)
    return found


# Of the other options of `syncswitch-run`, those that a command takes as well, in this order.
_KNOWN = (
    "reference",
    "choice",
    "switch_percent",
    "is_guarded",
    "learns",
    "expected_uses",
    "workers",
    "protocols",
    "seed",
    "storage_url",
    "as_json",
)


def _run(
    described: CommandChoice,
    name: str,
    choice: str,
    switch_percent: float | None,
    is_guarded: bool,
    learns: bool | None,
    expected_uses: int,
    workers: int | None,
    protocols: str | None,
    seed: int | None,
    storage_url: str,
    as_json: bool,
) -> int | None:
    from syncswitch.cli.run.report import make_report, print_report, report_as_json
    from syncswitch.searcher.learning.uses import next_run
    from syncswitch.searcher.training.policy import check_when
    from syncswitch.searcher.training.uses import (
        UsesHome,
        after_use,
        first_policy,
        known_band,
        note_bare_use,
        own_seed,
        recorded_alone,
        run_text,
    )
    from syncswitch.storage.records.guard import later_switch_points
    from syncswitch.storage.records.trial import TrialSpec
    from syncswitch.trainers.command.trainer import CommandTrainer
    from syncswitch.trainers.protocols import parse_named_pair

    check_when(
        learns=bool(learns),
        is_guarded=is_guarded,
        choice=choice if is_given("choice") else None,
        switch_percent=switch_percent,
    )
    pair = None if protocols is None else parse_named_pair(protocols)
    tell = console.print_note
    usual = parse_named_pair(USUAL_COMMAND_PROTOCOLS)
    policy: TimingPolicy | None = None
    band: Band | None = None
    retries: tuple[float, ...] = ()
    goes_back = None
    if learns:
        job = described.command_job(name, workers or 1, pair or usual)
        goes_back = job.template.can_go_back
        planned = next_run(storage_url, job.identity, expected_uses, goes_back)
        policy, switch_percent = planned.policy, planned.switch_percent
        band, retries = planned.band, planned.retry_percents
        if seed is None:
            seed = own_seed(storage_url, job.identity, job.name)
        console.print_note(run_text(job.identity, seed, switch_percent, planned))
    elif switch_percent is None:
        policy, job = _fitting(described, name, choice, workers, pair, storage_url)
        switch_percent = policy.switch_percent
        if seed is None:
            seed = own_seed(storage_url, job.identity)
            console.print_note(f"this run has seed {seed}")
        band = known_band(policy, storage_url, tell) if is_guarded else None
        retries = later_switch_points(switch_percent) if band else ()
    else:
        job = described.command_job(name, workers or 1, pair or usual)
    note_bare_use(policy, band, tell)
    trainer = CommandTrainer(job)
    alone_seconds = recorded_alone(storage_url, job.identity)
    try:
        use_id = uuid.uuid4().hex
        spec = TrialSpec(job.identity, switch_percent, seed or 0, band=band, retry_percents=retries)
        record = _trained(trainer, spec)
        if learns and policy is None:
            policy = first_policy(job.identity, job.name, record, storage_url, tell)
        uses = UsesHome(storage_url, choice, described.output_folder / name, tell)
        uses.record(policy, use_id, record)
        after_use(policy, storage_url, tell, expected_uses if learns else None, goes_back=goes_back)
        _check_sound(record, trainer)
    except KeyboardInterrupt:
        console.print_error("interrupted; the same command starts afresh")
        return EXIT_INTERRUPTED
    report = make_report(policy, record, None, trainer.last_folder, alone_seconds)
    if as_json:
        console.print_json(report_as_json(report))
    else:
        print_report(report)
    return None


def _trained(trainer: CommandTrainer, spec: TrialSpec) -> TrialRecord:
    from syncswitch.cli.run.report import watching

    with watching(spec.identity) as observer:
        return trainer.train(spec, observer)


def _check_sound(record: TrialRecord, trainer: CommandTrainer) -> None:
    if record.diverged:
        raise FatalError(
            f"the training diverged after {record.worker_steps:,} of its steps; try another --seed,"
            f" or a later switch; its output is in {trainer.last_folder}"
        )


def _fitting(
    described: CommandChoice,
    name: str,
    choice: str,
    workers: int | None,
    pair: tuple[str, str] | None,
    storage_url: str,
) -> tuple[TimingPolicy, CommandJob]:
    """The policy of just this command. Raises PolicyError where there is none."""
    known = _policies(name, choice, storage_url)
    found = [
        one
        for one in known
        if workers in (None, one.workers)
        and pair in (None, (one.first_protocol, one.second_protocol))
    ]
    for policy in found:
        protocols = (policy.first_protocol, policy.second_protocol)
        job = described.command_job(name, policy.workers, protocols)
        if job.identity.fingerprint == policy.fingerprint:
            return policy, job
    search = f"syncswitch-search run {name} --trainer command --command ... --total-steps ..."
    if not found:
        have = "; ".join(
            f"{p.workers} workers, {p.first_protocol},{p.second_protocol}" for p in known
        )
        there = f" for what is asked (there is one for {have})" if have else ""
        raise PolicyError(
            f"no policy {choice!r} of command {name!r}{there}; find one with: {search}"
        )
    raise PolicyError(
        f"policy {choice!r} of {name!r} is not for this --command and --total-steps: it has"
        f" {found[0].total_worker_steps:,} steps and fingerprint {found[0].fingerprint[:12]}; give"
        f" those of its search, or find another policy with: {search}"
    )


def _policies(name: str, choice: str, storage_url: str) -> list[TimingPolicy]:
    if is_policy_file(choice):
        from syncswitch.storage.policies.file import read_policy_file

        return [read_policy_file(choice).policy]
    from syncswitch.storage.database.engine import open_database
    from syncswitch.storage.policies.registry import PolicyRegistry

    with open_database(storage_url, create=False) as database:
        return PolicyRegistry(database).choose(name, choice)


def _refuse_others() -> None:
    """Raises UserError where an option was given that a command of the user's has no use for."""
    context = click.get_current_context()
    mine = {*_KNOWN, "trainer", *(field.name for field in fields(CommandChoice))}
    others = (one.name for one in context.command.params if one.name and one.name not in mine)
    for parameter in filter(is_given, others):
        raise UserError(
            f"{_flag(parameter)} cannot be used with --trainer command, which has no cluster and"
            " saves no model of syncswitch's; leave it out"
        )


def _flag(parameter: str) -> str:
    params = click.get_current_context().command.params
    return next(max(one.opts, key=len) for one in params if one.name == parameter)
