"""`syncswitch-run`: trains a workload with a timing policy that was found before.

Thin on purpose: it needs no Optuna, and with a policy file no database.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncswitch.cli import console
from syncswitch.cli.completion import complete_policy_choice, complete_workload
from syncswitch.cli.console import EXIT_INTERRUPTED
from syncswitch.cli.group import CONTEXT_SETTINGS, ProgramCommand
from syncswitch.cli.options import (
    PROTOCOLS_HELP,
    FiniteRange,
    common_options,
    conditions_options,
    inject_option,
    is_given,
    mlflow_option,
    protocols_option,
    tensorboard_option,
    workers_option,
)
from syncswitch.cli.panels import PanelCommand
from syncswitch.cli.trainer_kinds import trainer_options
from syncswitch.cli.words import in_options
from syncswitch.searcher.backends.base import USUAL_EXPECTED_RUNS, ClusterChoice, TrainerChoice
from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.backends.registry import TRAINING
from syncswitch.storage.errors import UserError, one_line
from syncswitch.storage.records.job import LARGEST_SEED, USUAL_PROTOCOLS, USUAL_WORKERS

if TYPE_CHECKING:
    from syncswitch.searcher.training.train import Training

_NOT_FOR_A_COMMAND = (
    *("protocol", "output", "inject", "online", "switch", "checkpoints", "checkpoint_every"),
    *("resume", "tensorboard", "mlflow"),
)


class _Program(ProgramCommand, PanelCommand):
    """`syncswitch-run`."""


@click.command(
    name="syncswitch-run",
    cls=_Program,
    usual=("policy", "switch_at", "workers", "trainer", "profile", "output", "resume"),
    context_settings=CONTEXT_SETTINGS,
)
@click.argument("reference", metavar="WORKLOAD", shell_complete=complete_workload)
@click.option(
    "--policy",
    metavar="FILE|VERSION|ALIAS",
    shell_complete=complete_policy_choice,
    help="A policy file, or a version or alias in the database.  [default: current]",
)
@click.option(
    "--switch-at",
    metavar="PERCENT",
    type=FiniteRange(0, 100),
    help="Switch after this percentage of the training, whatever the policy says: 100 = the"
    " first protocol (with a command: way) alone, 0 = the second alone.",
)
@click.option(
    "--protocol",
    metavar="PROTOCOL",
    help="Use this protocol alone, whatever the policy says, such as bsp.",
)
@click.option(
    "--guard/--no-guard",
    "guarded",
    default=True,
    show_default=True,
    help="Go back to the switch if the training fails after it, and continue with the first"
    " protocol to a later switch. With a policy or --learn.",
)
@workers_option(
    None,
    "Workers in the cluster, or processes of a command. Default: as in the policy; without"
    f" one {USUAL_WORKERS} workers, or 1 process.",
)
@protocols_option(
    None, f"{PROTOCOLS_HELP} Default: as in the policy; without one {USUAL_PROTOCOLS}."
)
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    help="Seed of this run. Default: with a policy, one that no other run has; with --switch-at,"
    " 0.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Where to save the model.  [default: NAME.keras]",
)
@click.option(
    "--learn/--no-learn",
    default=None,
    help="Search while training: each run helps to decide where the next one switches, and may try"
    " another switch than its policy's. Without a policy the first run switches where it should"
    " pay, judging by other jobs. All are guarded.  [default: --learn without a policy, and with"
    " the current one of the database if it was learnt, or found for guarded runs on a real"
    " cluster]",
)
@click.option(
    "--expected-runs",
    type=click.IntRange(1, 1_000_000),
    default=USUAL_EXPECTED_RUNS,
    show_default=True,
    help="With --learn: how often this job will be trained in total. The more often, the more is"
    " tried, and the sooner a run uses the first protocol alone, to measure the target of the"
    " others.",
)
@click.option(
    "--threshold",
    type=FiniteRange(0, min_open=True),
    help="With --learn: how much accuracy may be lost (beta), in the metric's unit, from now on."
    " Default: as in the policy; without one 0.01 if the metric's best value is 1, otherwise"
    " measured from the first runs.",
)
@click.option(
    "--threshold-runs",
    metavar="N",
    type=int,
    help="With --learn: measure the threshold in the first N runs with the first protocol alone,"
    " 3 to 100, from now on. Default: as in the policy; without one 3 where it is measured.",
)
@inject_option
@conditions_options
@click.option(
    "--checkpoints",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the checkpoints that --resume needs; they are removed when the run is done."
    "  [default: NAME-checkpoints beside the model]",
)
@click.option(
    "--checkpoint-every",
    metavar="PERCENT",
    type=FiniteRange(0.1, 100),
    default=10.0,
    show_default=True,
    help="Write a checkpoint each time this percentage of the job is done, and keep the newest"
    " three. Workers wait for each other meanwhile.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue from the last intact checkpoint of this run, or start over if there is none.",
)
@tensorboard_option
@mlflow_option()
@trainer_options((*TRAINING, UsersCommand))
@common_options
@click.version_option(package_name="syncswitch", prog_name="syncswitch-run")
def main(
    reference: str, trainer: TrainerChoice, storage_url: str, as_json: bool, **options: Any
) -> int | None:
    """Train WORKLOAD with its timing policy, or a switch point of your own, and save the model.

    WORKLOAD is a built-in name (digits), file.py:attribute or package.module:attribute; with
    --trainer command it is the name that its search gave the job.

    A run that was killed continues when the same command is given with --resume.

    If TF_CONFIG describes a cluster, start the same command for each of its processes: the chief
    trains, the others serve it until it is gone.
    """
    from syncswitch.cli.run.report import print_report, report_as_json, watching
    from syncswitch.searcher.training.train import train, train_by_command

    done: Training
    options |= {"storage": storage_url, "tell": console.print_note, "observer": watching}
    try:
        if isinstance(trainer, UsersCommand):
            done = train_by_command(reference, trainer=trainer, **_for_a_command(options))
        else:
            assert isinstance(trainer, ClusterChoice)
            done = train(reference, trainer=trainer, **options)
    except KeyboardInterrupt as interruption:
        if not interruption.args:
            raise
        console.print_error(f"interrupted; {in_options(interruption.args[0])}")
        return EXIT_INTERRUPTED
    try:
        if as_json:
            console.print_json(report_as_json(done))
        else:
            print_report(done)
        sys.stdout.flush()
    except Exception as error:
        what = "the model is saved as" if done.has_model else "the training is done, its output in"
        console.print_note(f"{what} {done.model_path}; its report fails: {one_line(error)}")
        # What is left in the buffer would fail again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return None


def _for_a_command(options: dict[str, Any]) -> dict[str, Any]:
    """The options that a training command takes. Raises UserError if another was given."""
    for name in filter(is_given, _NOT_FOR_A_COMMAND):
        why = "which has no cluster and saves its own model; leave it out"
        if name == "resume":
            why = (
                "whose checkpoints are its own: start it again; within a run, one that fails is"
                " run again, and {resume_from} tells it where it has left its last checkpoint"
            )
        raise UserError(
            f"--{name.replace('_', '-')} cannot be used with --trainer command, {why}",
            code="parameters-conflict",
        )
    return {name: value for name, value in options.items() if name not in _NOT_FOR_A_COMMAND}
