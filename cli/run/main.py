"""`syncswitch-run`: trains a workload with a timing policy that was found before.

Thin on purpose: it needs no Optuna, and with a policy file no database.
"""

from __future__ import annotations

from pathlib import Path

import click

from syncswitch.cli import console
from syncswitch.cli.completion import complete_policy_choice, complete_workload
from syncswitch.cli.console import EXIT_INTERRUPTED
from syncswitch.cli.group import CONTEXT_SETTINGS, ProgramCommand
from syncswitch.cli.options import (
    MOST_WORKERS,
    PROTOCOLS_HELP,
    FiniteRange,
    common_options,
    conditions_options,
    inject_option,
    is_given,
    mlflow_option,
    protocols_option,
    tensorboard_option,
)
from syncswitch.cli.panels import PanelCommand
from syncswitch.cli.run.command import trained_by_command
from syncswitch.cli.trainer_kinds import trainer_chosen
from syncswitch.searcher.backends.base import ClusterChoice
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.backends.simulated import SimulatedCluster
from syncswitch.storage.records.job import LARGEST_SEED
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.options import USUAL_PROTOCOLS, USUAL_WORKERS


class _Program(ProgramCommand, PanelCommand):
    """`syncswitch-run`."""


@click.command(
    name="syncswitch-run",
    cls=_Program,
    usual=("choice", "switch_percent", "workers", "trainer", "profile", "output", "resume"),
    context_settings=CONTEXT_SETTINGS,
)
@click.argument("reference", metavar="WORKLOAD", shell_complete=complete_workload)
@click.option(
    "--policy",
    "choice",
    metavar="FILE|VERSION|ALIAS",
    shell_complete=complete_policy_choice,
    default="current",
    show_default=True,
    help="A policy file, or a version or alias in the database.",
)
@click.option(
    "--switch-at",
    "switch_percent",
    metavar="PERCENT",
    type=FiniteRange(0, 100),
    help="Switch after this percentage of the worker-steps, whatever policies there are: 100 = the"
    " first protocol alone, 0 = the second alone.",
)
@click.option(
    "--protocol",
    metavar="PROTOCOL",
    help="Use this protocol alone, whatever policies there are, such as bsp.",
)
@click.option(
    "--guard/--no-guard",
    "is_guarded",
    default=True,
    show_default=True,
    help="Go back to the switch when the training fails after it, and continue with the first"
    " protocol to a later switch. It needs a policy, which holds what the first protocol reached.",
)
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, MOST_WORKERS),
    help=f"Workers in the cluster. Default: as in the policy; without one {USUAL_WORKERS}.",
)
@protocols_option(
    None,
    f"{PROTOCOLS_HELP} Default: as in the policy; without one {USUAL_PROTOCOLS}.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    help="Seed of this run. Default: with a policy one of its own; at a switch of yours 0.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Where to save the model.  [default: NAME.keras]",
)
@click.option(
    "--learn/--no-learn",
    "learns",
    default=None,
    help="Search while training: each run shows where the next one should switch, and may try"
    " another switch than its policy's. Without any policy the first run uses the first protocol"
    " alone. All are guarded.  [default: --learn with the current policy of the database, where it"
    " was found for guarded runs on a real cluster]",
)
@click.option(
    "--uses",
    "expected_uses",
    type=click.IntRange(1, 1_000_000),
    default=30,
    show_default=True,
    help="With --learn: how often this job is trained in total. The more often, the more is tried.",
)
@inject_option
@conditions_options
@click.option(
    "--checkpoints",
    "checkpoint_folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the checkpoints that --resume needs; they are removed when the run is done."
    "  [default: NAME-checkpoints beside the model]",
)
@click.option(
    "--checkpoint-every",
    "every_percent",
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
    help="Continue from the last intact checkpoint of this run, or start afresh if there is none.",
)
@tensorboard_option
@mlflow_option()
@trained_by_command
@trainer_chosen((LocalTrainer, SimulatedCluster))
@common_options
@click.version_option(package_name="syncswitch", prog_name="syncswitch-run")
def main(
    reference: str,
    choice: str,
    switch_percent: float | None,
    protocol: str | None,
    is_guarded: bool,
    workers: int | None,
    protocols: str | None,
    trainer: ClusterChoice,
    seed: int | None,
    output: Path | None,
    learns: bool | None,
    expected_uses: int,
    chosen: ConditionsChoice,
    checkpoint_folder: Path | None,
    every_percent: float,
    resume: bool,
    tensorboard_folder: Path | None,
    mlflow_uri: str | None,
    storage_url: str,
    as_json: bool,
) -> int | None:
    """Train WORKLOAD with its timing policy, or a switch point of your own, and save the model.

    WORKLOAD is a built-in name (digits), file.py:attribute or package.module:attribute.

    A run that was killed continues when the same command is given with --resume.

    Where TF_CONFIG describes a cluster, start the same command for each of its parts: the chief
    trains, the others serve it until it has gone.
    """
    from syncswitch.cli.run.report import make_report, print_report, report_as_json, watching
    from syncswitch.searcher.training.train import train_with_policy

    if trainer.take_part(reference, console.print_note):
        return None
    try:
        done = train_with_policy(
            trainer,
            reference,
            choice=choice if is_given("choice") else None,
            switch_percent=switch_percent,
            protocol=protocol,
            is_guarded=is_guarded,
            workers=workers,
            protocols=protocols,
            seed=seed,
            output=output,
            learns=learns,
            expected_uses=expected_uses,
            conditions=chosen,
            checkpoint_folder=checkpoint_folder,
            every_percent=every_percent,
            resume=resume,
            tensorboard_folder=tensorboard_folder,
            mlflow_uri=mlflow_uri,
            storage_url=storage_url,
            tell=console.print_note,
            watching=watching,
        )
    except KeyboardInterrupt as interruption:
        if not interruption.args:
            raise
        console.print_error(f"interrupted; {interruption}")
        return EXIT_INTERRUPTED
    report = make_report(
        done.policy, done.record, done.model_path, alone_seconds=done.alone_seconds
    )
    if as_json:
        console.print_json(report_as_json(report))
    else:
        print_report(report)
    return None
