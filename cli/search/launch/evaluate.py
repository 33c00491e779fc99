"""`syncswitch-search evaluate`: how a policy does on another workload."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from syncswitch.cli.completion import complete_policy, complete_workload
from syncswitch.cli.conditions import conditions_options, inject_option
from syncswitch.cli.console import EXIT_INTERRUPTED, print_error, print_json
from syncswitch.cli.options import (
    common_options,
    mlflow_option,
    protocols_option,
    tensorboard_option,
    workers_option,
)
from syncswitch.cli.panels import PanelCommand
from syncswitch.cli.search.launch.jobs import is_further_job, jobs_option
from syncswitch.cli.search.launch.opening import opened_for
from syncswitch.cli.search.launch.trainer_options import noted, trainer_options
from syncswitch.cli.search.policy.selection import policy_named
from syncswitch.cli.search.views.evaluation import (
    print_matrix,
    print_result,
    result_as_json,
)
from syncswitch.searcher.backends.base import Job, JobRequest, TrainerChoice
from syncswitch.searcher.comparison.transfer import EvaluationResult
from syncswitch.searcher.mlflow import copy_to_mlflow
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import LARGEST_SEED, RunConditions
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.run.tensorboard import logged


@click.command(
    cls=PanelCommand, usual=("runs", "workers", "protocols", "trainer", "profile", "jobs")
)
@click.argument("policy_text", metavar="POLICY", shell_complete=complete_policy)
@click.argument("reference", metavar="WORKLOAD", shell_complete=complete_workload)
@click.option(
    "--also-policy",
    "more_policies",
    metavar="POLICY",
    multiple=True,
    shell_complete=complete_policy,
    help="Another POLICY, tried on each workload. May be given several times.",
)
@click.option(
    "--also-workload",
    "more_workloads",
    metavar="WORKLOAD",
    multiple=True,
    shell_complete=complete_workload,
    help="Another WORKLOAD, trained with each policy. May be given several times.",
)
@workers_option(None, "Workers in the cluster. Default: as in the policy.")
@protocols_option(None, "Protocols before and after the switch. Default: as in the policy.")
@trainer_options
@inject_option
@conditions_options
@click.option(
    "--runs",
    type=click.IntRange(1, 10_000),
    default=3,
    show_default=True,
    help="Runs at each switch point, recorded ones included.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=0,
    show_default=True,
    help="Seed from which the seeds of all runs are derived.",
)
@jobs_option
@tensorboard_option
@mlflow_option()
@common_options
def evaluate(
    policy_text: str,
    reference: str,
    more_policies: tuple[str, ...],
    more_workloads: tuple[str, ...],
    workers: int | None,
    protocols: str | None,
    trainer: TrainerChoice,
    chosen: ConditionsChoice,
    runs: int,
    seed: int,
    jobs: int,
    tensorboard_folder: Path | None,
    mlflow_uri: str | None,
    storage_url: str,
    as_json: bool,
) -> int | None:
    """Trains WORKLOAD with a POLICY that was found for another job.

    POLICY is a policy file (.json), or a workload or the start of a fingerprint in the database;
    add @VERSION or @ALIAS unless the current policy is meant. WORKLOAD is as for `run`.

    The runs are compared with runs of the first protocol alone, and of WORKLOAD's own policy where
    the database has one. Recorded runs count, unless they were stopped early, or made by another
    trainer or under other conditions (--online, --switch, --inject); only missing ones are made. No
    policy is saved. Injections disturb all these runs at the same moments; the paper's scenarios
    come before the switch of POLICY.

    Repeat the command to continue an interrupted evaluation; once all runs are there, it answers at
    once. The exit status is 0 whether or not the policy keeps the accuracy.
    """
    from syncswitch.searcher.comparison.making import check_chief, check_switch
    from syncswitch.searcher.comparison.transfer import PolicyEvaluation

    trainer.check_jobs(jobs)
    policies = [policy_named(text, storage_url) for text in (policy_text, *more_policies)]
    references = (reference, *more_workloads)
    if jobs > 1 and len(policies) * len(references) > 1:
        raise UserError("--jobs is for one POLICY and one WORKLOAD; leave out one of these options")

    def to_evaluate(policy: TimingPolicy, reference: str) -> _ToEvaluate:
        pair = (policy.first_protocol, policy.second_protocol)
        if protocols is not None:
            pair = trainer.pair(protocols)
        size = trainer.workers(workers)
        request = JobRequest(reference, size, policy.workers, pair, storage_url, seed)
        conditions = trainer.conditions(chosen, request.size, policy.switch_percent, pair[0])
        check_chief(conditions.injections, "evaluate")
        job = noted(trainer.job(request))
        check_switch(job.identity, policy.switch_percent)
        called = job.reference or normal_reference(reference)
        return _ToEvaluate(policy, job, conditions, called)

    # All of them before anything is trained for nothing.
    every = [to_evaluate(policy, name) for policy in policies for name in references]

    def evaluated(one: _ToEvaluate) -> EvaluationResult:
        job = one.job
        with opened_for(job, storage_url, "evaluation", jobs) as (database, trainers, reporter):
            if len(every) > 1:
                reporter.tell(f"{one.policy.workload} for {one.reference}:")
            evaluation = PolicyEvaluation(
                database,
                job.identity,
                one.policy,
                lambda: logged(trainers(), tensorboard_folder, evaluation.study_name),
                runs=runs,
                trainer=trainer.kind,
                base_seed=seed,
                conditions=one.conditions,
                reference=one.reference,
                reporter=reporter,
            )
            result = evaluation.run()
            if not is_further_job():
                copy_to_mlflow(mlflow_uri, database, [job.identity], reporter.tell)
            return result

    try:
        results = [evaluated(one) for one in every]
    except KeyboardInterrupt:
        print_error("interrupted; all finished runs are kept, and the same command continues")
        return EXIT_INTERRUPTED
    if len(results) == 1:
        (result,) = results
        if as_json:
            print_json(result_as_json(result))
        else:
            print_result(result)
    elif as_json:
        print_json([result_as_json(result) for result in results])
    else:
        print_matrix(results)
    return None


@dataclasses.dataclass(frozen=True)
class _ToEvaluate:
    """A policy, and a job for it; `reference` is the normal form of what the user called it."""

    policy: TimingPolicy
    job: Job
    conditions: RunConditions
    reference: str
