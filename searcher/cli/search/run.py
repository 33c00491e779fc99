"""`syncswitch-search run`: searches for the timing policy of a workload."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from syncswitch.searcher.backends.base import Job, JobRequest, TrainerChoice, plan_search
from syncswitch.searcher.backends.command import UsersCommand
from syncswitch.searcher.backends.registry import is_given, trainer_options
from syncswitch.searcher.cli.search.dry_run import print_forecast
from syncswitch.searcher.cli.search.jobs import is_further_job, jobs_option
from syncswitch.searcher.cli.search.mlflow import copied_search, mlflow_search_option
from syncswitch.searcher.cli.search.opening import opened_for
from syncswitch.searcher.cli.search.strategy_options import strategy_options
from syncswitch.searcher.cli.views import result as result_view
from syncswitch.searcher.results.result import SearchResult
from syncswitch.searcher.strategies.registry import make_strategy
from syncswitch.searcher.study.plan import study_name
from syncswitch.searcher.text.command_lines import use_words
from syncswitch.searcher.text.early_words import too_short
from syncswitch.storage.database.inspection import shown
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.rows import CURRENT
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.cli.completion import complete_workload
from syncswitch.trainers.cli.conditions import ConditionsChoice, conditions_options
from syncswitch.trainers.cli.console import print_error, print_json, print_note
from syncswitch.trainers.cli.exit_status import EXIT_INTERRUPTED
from syncswitch.trainers.cli.options import (
    PROTOCOLS_HELP,
    FiniteRange,
    common_options,
    protocols_option,
    tensorboard_option,
    workers_option,
)
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.run.tensorboard import logged


@click.command()
@click.argument("reference", metavar="[WORKLOAD]", required=False, shell_complete=complete_workload)
@workers_option(
    None,
    f"Workers in the cluster. Default: {TrainerChoice.default_workers}; of a command:"
    f" {UsersCommand.default_workers}.",
)
@protocols_option(
    None,
    f"{PROTOCOLS_HELP} Default: {TrainerChoice.default_protocols}. --trainer command: any two names"
    " for its two ways of training.",
)
@trainer_options
@conditions_options
@click.option(
    "--settings",
    type=int,
    default=5,
    show_default=True,
    help="How often the range of switch points may be halved (M).",
)
@strategy_options
@click.option(
    "--target-accuracy",
    type=float,
    help="Accuracy to keep (A), 0 to 1. Default: measured with the first protocol alone.",
)
@click.option(
    "--target-runs",
    type=int,
    help="Number of runs behind --target-accuracy (adaptive). Default: 5.",
)
@click.option(
    "--warm-start",
    is_flag=True,
    help="Start near the policies of related workloads in the database (adaptive).",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed from which the seeds of all runs are derived.",
)
@click.option(
    "--checkpoints",
    "checkpoint_folder",
    envvar="SYNCSWITCH_CHECKPOINTS",
    show_envvar=True,
    type=click.Path(file_okay=False, path_type=Path),
    default="syncswitch-checkpoints",
    show_default=True,
    help="Folder for the checkpoints that runs share; they are removed when the search is done.",
)
@click.option(
    "--return-at",
    "return_percent",
    metavar="PERCENT",
    type=FiniteRange(0, 100, min_open=True, max_open=True),
    help="Let every run go back to the first protocol at this percentage of the worker-steps; the"
    " policy says so, too.",
)
@jobs_option
@tensorboard_option
@mlflow_search_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only forecast the cost of the search, from recorded runs or from the times below.",
)
@click.option(
    "--first-seconds",
    type=float,
    help="Duration of a training with the first protocol alone (--dry-run).",
)
@click.option(
    "--second-seconds",
    type=float,
    help="Duration of a training with the second protocol alone (--dry-run).",
)
@common_options
def run(
    reference: str | None,
    workers: int | None,
    protocols: str | None,
    trainer: TrainerChoice,
    chosen: ConditionsChoice,
    strategy: str,
    warm_start: bool,
    seed: int,
    checkpoint_folder: Path,
    return_percent: float | None,
    jobs: int,
    tensorboard_folder: Path | None,
    mlflow_uri: str | None,
    dry_run: bool,
    first_seconds: float | None,
    second_seconds: float | None,
    storage_url: str,
    as_json: bool,
    **options: Any,
) -> int | None:
    """Searches for the timing policy of WORKLOAD and saves it.

    WORKLOAD is a built-in name, such as digits or clicks, file.py:attribute or
    package.module:attribute. With --trainer replay it may also be the name of recorded runs or the
    start of their fingerprint; with --trainer command it is a name for the job, by default that of
    its script.

    Repeat the command to continue an interrupted search; once the search is finished, it answers at
    once. Several processes on one database share the work.
    """
    from syncswitch.searcher.loop.search import Search

    decides = make_strategy(strategy, **options)
    if warm_start and strategy != "adaptive":
        raise UserError(f"--warm-start is not for --strategy {strategy}; leave it out")
    trainer.check_jobs(jobs)
    if return_percent is not None:
        chosen = replace(chosen, later_switches=(return_percent,))
    pair = trainer.pair(protocols)
    size = trainer.workers(workers)
    request = JobRequest(reference, size, trainer.default_workers, pair, storage_url, seed)
    plan, job = plan_search(
        trainer,
        request,
        decides,
        chosen,
        warm_start=warm_start,
        forks_are_wanted=is_given("share_prefix"),
    )
    if dry_run:
        given = (first_seconds, second_seconds)
        print_forecast(
            plan.strategy, job.identity, given, trainer.measured_url(storage_url), as_json=as_json
        )
        return None
    if first_seconds is not None or second_seconds is not None:
        raise UserError("--first-seconds and --second-seconds need --dry-run")
    word = too_short(job.identity, plan.strategy)
    if word is not None and not is_further_job():
        print_note(word)
    called, study = reference or job.identity.name, study_name(job.identity, plan)
    try:
        with opened_for(job, storage_url, "search", jobs, study) as (database, trainers, reporter):
            search = Search(
                database,
                job.identity,
                plan,
                lambda: watched(logged(trainers(), tensorboard_folder, study)),
                reference=job.reference or normal_reference(called),
                reporter=reporter,
                checkpoints=checkpoint_folder,
            )
            with copied_search(mlflow_uri, database, job.identity, study, reporter) as watched:
                result = search.run()
            current = PolicyRegistry(database).aliases(job.identity.fingerprint).get(CURRENT)
    except KeyboardInterrupt:
        print_error("interrupted; all finished runs are kept, and the same command continues")
        return EXIT_INTERRUPTED
    version = result.policy.version
    chosen_version = None if version == current else version
    if job.command_with is not None:
        how_to_use = job.command_with(result.policy)
    else:
        how_to_use = _how_to_use(job, called, chosen_version, plan.conditions)
    _print(result, as_json, how_to_use)
    return None


def _print(result: SearchResult, as_json: bool, how_to_use: str) -> None:
    if as_json:
        print_json(result_view.result_as_json(result))
    else:
        result_view.print_result(result, how_to_use)


def _how_to_use(job: Job, reference: str, version: int | None, conditions: RunConditions) -> str:
    """The command line that uses this policy, with what it would not guess."""
    words = use_words(job.identity, job.reference, reference, version, conditions)
    if is_given("storage_url"):
        words += ["--storage", shown(str(click.get_current_context().params["storage_url"]))]
    return shlex.join(words)
