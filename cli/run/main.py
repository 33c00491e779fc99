"""`syncswitch-run`: trains a workload with a timing policy that was found before.

Thin on purpose: it needs no Optuna, and with a policy file no database.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syncswitch.cli import console
from syncswitch.cli.completion import complete_policy_choice, complete_workload
from syncswitch.cli.conditions import conditions_options, inject_option
from syncswitch.cli.console import EXIT_INTERRUPTED
from syncswitch.cli.group import CONTEXT_SETTINGS, ProgramCommand
from syncswitch.cli.options import (
    MOST_WORKERS,
    PROTOCOLS_HELP,
    FiniteRange,
    cluster_options,
    common_options,
    is_given,
    mlflow_option,
    protocols_option,
    tensorboard_option,
)
from syncswitch.cli.panels import PanelCommand
from syncswitch.cli.run.command import trained_by_command
from syncswitch.cli.simulated import AnyCluster, cluster_chosen, profile_option
from syncswitch.storage.records.job import LARGEST_SEED
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.options import USUAL_PROTOCOLS, USUAL_WORKERS

if TYPE_CHECKING:
    from syncswitch.storage.records.policy import TimingPolicy
    from syncswitch.storage.records.trial import TrialRecord
    from syncswitch.trainers.job.workload import Workload


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
@cluster_options
@profile_option
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
@cluster_chosen
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
    cluster: AnyCluster,
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
    from syncswitch.cli.run.policy import (
        check_no_policy,
        chosen_by_learning,
        chosen_by_policy,
        chosen_by_user,
        size_and_pair,
    )
    from syncswitch.cli.run.progress import trained
    from syncswitch.cli.run.report import make_report, print_report, recorded_alone, report_as_json
    from syncswitch.cli.run.resume import (
        RunCheckpoints,
        check_sound,
        interrupted_run,
        save_model,
    )
    from syncswitch.cli.run.uses import UsesHome, after_use, first_policy, note_bare_use
    from syncswitch.storage.records.trial import TrialSpec
    from syncswitch.trainers.job.loading import normal_reference
    from syncswitch.trainers.model.export import check_model_path
    from syncswitch.trainers.protocols import alone, parse_pair
    from syncswitch.trainers.run.side_output import SideOutput

    if cluster.take_part(console.print_note, reference):
        return None
    workers = cluster.workers(workers)
    if output is not None:
        check_model_path(output)
    check_no_policy(learns=bool(learns))

    def home(workload: Workload) -> tuple[Path, Path]:
        model = output or Path(f"{workload.name}.keras")
        return model, model.parent / f"{workload.name}-checkpoints"

    def interrupted(workload: Workload, percent: float | None) -> tuple[int, float] | None:
        folder = checkpoint_folder or home(workload)[1]
        return interrupted_run(folder, seed, percent, resume=resume)

    pair = None if protocols is None else parse_pair(protocols)
    if not learns and switch_percent is None and protocol is None:
        run = chosen_by_policy(
            cluster,
            reference,
            choice,
            workers,
            pair,
            storage_url,
            seed,
            interrupted,
            is_guarded=is_guarded,
            learnt_uses=None if learns is False or is_given("choice") else expected_uses,
        )
    else:
        size, usual_pair = size_and_pair(cluster, reference, workers, pair, storage_url)
        if protocol is not None:
            usual_pair, switch_percent = alone(protocol), 100.0
        if switch_percent is not None:
            run = chosen_by_user(cluster, reference, usual_pair, switch_percent, size, seed)
        else:
            run = chosen_by_learning(
                cluster,
                reference,
                size,
                usual_pair,
                expected_uses,
                storage_url,
                seed,
                interrupted,
            )
    workload, identity, policy = run.workload, run.identity, run.policy
    note_bare_use(policy, run.band)
    output, usual_folder = home(workload)
    check_model_path(output)
    conditions = chosen.conditions(
        identity.workers,
        run.switch_percent,
        identity.first_protocol,
        cluster.launcher,
        cluster.servers,
    )
    cluster.check_capacity(identity.workers)
    spec = TrialSpec(
        identity,
        run.switch_percent,
        run.seed,
        conditions=conditions,
        resume=resume,
        band=run.band,
        retry_percents=run.retry_percents,
    )
    checkpoints = RunCheckpoints(
        spec, checkpoint_folder or usual_folder, every_percent, spares=[usual_folder]
    )
    uses = UsesHome(storage_url, choice, output)
    alone_seconds = recorded_alone(storage_url, identity)
    try:
        with closing(checkpoints.open()):
            record = trained(workload, reference, cluster, checkpoints, tensorboard_folder)
            # A run that is killed here goes on, and saves and records the same again.
            if not record.diverged:
                save_model(workload, record, checkpoints, output)
            checkpoints.name_use()
            if run.learns and policy is None:
                policy = first_policy(identity, normal_reference(reference), record, storage_url)
            uses.record(policy, checkpoints.use_id, record)
            after_use(policy, storage_url, expected_uses if run.learns else None)
            SideOutput(
                "checkpoints that are needed no longer stay; remove them", console.print_note
            )(checkpoints.remove)
            check_sound(record, reference)
            if mlflow_uri is not None:
                SideOutput(
                    "MLflow has no copy of this run; syncswitch-search export copies the runs with"
                    " policies that are in a database",
                    console.print_note,
                )(_copy_to_mlflow, mlflow_uri, checkpoints.use_id, record, policy)
    except KeyboardInterrupt:
        console.print_error(f"interrupted; {checkpoints.how_to_go_on}")
        return EXIT_INTERRUPTED
    report = make_report(policy, record, output, alone_seconds=alone_seconds)
    if as_json:
        console.print_json(report_as_json(report))
    else:
        print_report(report)
    return None


def _copy_to_mlflow(
    uri: str, use_id: str, record: TrialRecord, policy: TimingPolicy | None
) -> None:
    """Copies a run that is over."""
    from syncswitch.storage.export.mlflow.runs import use_copy
    from syncswitch.storage.export.mlflow.server import MlflowServer

    copy = use_copy(use_id, record, None if policy is None else policy.version)
    MlflowServer(uri).put(record.spec.identity, [copy])
