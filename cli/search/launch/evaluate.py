"""`syncswitch-search evaluate`: tries a policy on another workload."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from syncswitch.cli.completion import complete_policy, complete_workload
from syncswitch.cli.console import (
    Row,
    echo,
    print_json,
    print_note,
    print_rows,
    print_text,
)
from syncswitch.cli.options import (
    common_options,
    conditions_options,
    inject_option,
    mlflow_option,
    protocols_option,
    tensorboard_option,
    workers_option,
)
from syncswitch.cli.panels import PanelCommand
from syncswitch.cli.search.launch.making import (
    jobs_option,
    opened_for,
    print_notes,
    resumable,
)
from syncswitch.cli.search.rows import point_as_json, point_cells
from syncswitch.cli.trainer_kinds import trainer_options
from syncswitch.searcher.backends.base import TrainerChoice
from syncswitch.searcher.backends.registry import TRAINERS
from syncswitch.searcher.comparison import EvaluatedSwitchPoint, EvaluationResult, PolicyOnJob
from syncswitch.searcher.search.policy_words import speed_up_text
from syncswitch.searcher.training.policy import policy_named
from syncswitch.searcher.words import (
    accuracy_text,
    counted,
    metric_title,
    run_conditions_text,
    workers_text,
)
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import LARGEST_SEED


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
    help="Another POLICY to try on each workload. May be given several times.",
)
@click.option(
    "--also-workload",
    "more_workloads",
    metavar="WORKLOAD",
    multiple=True,
    shell_complete=complete_workload,
    help="Another WORKLOAD to train with each policy. May be given several times.",
)
@workers_option(None, "Workers in the cluster. Default: as in the policy.")
@protocols_option(None, "Protocols before and after the switch. Default: as in the policy.")
@trainer_options(TRAINERS)
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
@resumable
def evaluate(
    policy_text: str,
    reference: str,
    more_policies: tuple[str, ...],
    more_workloads: tuple[str, ...],
    trainer: TrainerChoice,
    runs: int,
    seed: int,
    jobs: int,
    tensorboard: Path | None,
    mlflow: str | None,
    storage_url: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Train WORKLOAD with a POLICY that was found for another job.

    POLICY is a policy file (.json), or a workload or the start of a fingerprint in the database;
    add @VERSION or @ALIAS unless the current policy is meant. WORKLOAD is as for `run`.

    The runs are compared with runs of the first protocol alone, and with WORKLOAD's own policy if
    the database has one. Recorded runs count, unless they were stopped early, or made by another
    trainer or under other conditions (--online, --switch, --inject); only missing runs are made. No
    policy is saved. Injections disturb all these runs at the same moments; the paper's scenarios
    come before POLICY's switch.

    Repeat the command to continue an interrupted evaluation; once all runs are there, it answers at
    once. The exit status is 0 whether or not the policy keeps the accuracy.
    """
    from syncswitch.searcher.comparison import evaluate_policy, plan_evaluation

    trainer.check_jobs(jobs)
    policies = [
        policy_named(text, storage_url, print_note) for text in (policy_text, *more_policies)
    ]
    references = (reference, *more_workloads)
    if jobs > 1 and len(policies) * len(references) > 1:
        raise UserError("--jobs is for one POLICY and one WORKLOAD; leave out one of these options")

    # All are checked before anything is trained.
    every = [
        plan_evaluation(trainer, policy, name, storage_url=storage_url, seed=seed, **options)
        for policy in policies
        for name in references
    ]
    print_notes(one.job.note for one in every)

    def evaluated(one: PolicyOnJob) -> EvaluationResult:
        job = one.job
        with opened_for([job], storage_url, "evaluation", jobs, mlflow) as opened:
            database, (trainers,), reporter = opened
            if len(every) > 1:
                reporter.tell(f"{one.policy.workload} for {one.reference}:")
            return evaluate_policy(
                database,
                job.identity,
                one.policy,
                trainers,
                runs=runs,
                trainer=trainer.kind,
                base_seed=seed,
                conditions=one.conditions,
                reference=one.reference,
                reporter=reporter,
                tensorboard=tensorboard,
            )

    results = [evaluated(one) for one in every]
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


def _switch_points(result: EvaluationResult) -> list[tuple[str, str, EvaluatedSwitchPoint]]:
    """The role, the name and the runs of each row."""
    policy, own = result.policy, result.own_policy
    rows = [("policy", f"{policy.workload} version {policy.version}", result.foreign)]
    if own is not None and result.own is not None:
        rows.append(("own", f"its own, version {own.version}", result.own))
    first = result.identity.first_protocol.upper()
    return [*rows, ("baseline", f"{first} alone", result.baseline)]


def result_as_json(result: EvaluationResult) -> dict[str, Any]:
    """The result as a document for JSON."""
    policy, identity, own = result.policy, result.identity, result.own_policy
    return {
        "policy": {
            "workload": policy.workload,
            "fingerprint": policy.fingerprint,
            "version": policy.version,
            "workers": policy.workers,
            "switch_percent": policy.switch_percent,
            "threshold": policy.threshold,
        },
        "workload": identity.name,
        "fingerprint": identity.fingerprint,
        "workers": identity.workers,
        "simulated_cluster": identity.simulated_cluster,
        "protocols": [identity.first_protocol, identity.second_protocol],
        **identity.decided_by.naming,
        "conditions": dataclasses.asdict(result.conditions),
        "own_policy_version": None if own is None else own.version,
        "study": result.study,
        "new_runs": result.new_runs,
        "switch_points": [
            {
                "role": role,
                **point_as_json(
                    point,
                    identity.decided_by,
                    result.kept_runs(point),
                    result.speed_up(point),
                ),
            }
            for role, _, point in _switch_points(result)
        ],
        "keeps_accuracy": result.keeps_accuracy,
        "share_of_own_speed_up": result.share_of_own_speed_up,
    }


def print_result(result: EvaluationResult) -> None:
    """Prints the table, then the verdict."""
    title = result.identity.decided_by.name
    print_rows(
        [
            [("policy", name), *_cells(point, result, title)]
            for _, name, point in _switch_points(result)
        ]
    )
    echo()
    print_text(_verdict(result))
    text = run_conditions_text(result.conditions)
    if text:
        print_text(f"All runs trained under these conditions: {text}.")


def print_matrix(results: Sequence[EvaluationResult]) -> None:
    """Prints a row for each policy on each job."""
    title = metric_title(result.identity.decided_by for result in results)
    print_rows(
        [
            [
                ("policy of", result.policy.workload),
                ("workload", result.identity.name),
                (
                    "workers",
                    workers_text(result.identity.workers, result.identity.simulated_cluster),
                ),
                *_cells(result.foreign, result, title),
                ("keeps it", "yes" if result.keeps_accuracy else "no"),
            ]
            for result in results
        ]
    )


def _cells(point: EvaluatedSwitchPoint, result: EvaluationResult, title: str) -> Row:
    metric, speed_up = result.identity.decided_by, result.speed_up(point)
    return point_cells(point, metric, result.kept_runs(point), speed_up, title)


def _verdict(result: EvaluationResult) -> str:
    """One sentence on whether the policy keeps the accuracy, and how much time it saves."""
    policy, foreign, identity = result.policy, result.foreign, result.identity
    what = (
        f"The policy of {policy.workload} for {policy.workers} workers (version {policy.version})"
    )
    size = workers_text(identity.workers, identity.simulated_cluster)
    name = f"{identity.name} on {size} workers"
    metric = identity.decided_by
    if foreign.diverged_runs:
        return (
            f"{what} does not keep the {metric.name} of {name}: {foreign.diverged_runs} of"
            f" {counted(foreign.runs, 'run')} diverged."
        )
    does = "keeps" if result.keeps_accuracy else "does not keep"
    reached = accuracy_text(foreign.mean_accuracy, metric)
    return (
        f"{what} {does} the {metric.name} of {name}: {reached} against"
        f" {accuracy_text(result.baseline.mean_accuracy, metric)} with"
        f" {identity.first_protocol.upper()} alone ({result.kept_runs(foreign)} of"
        f" {counted(foreign.runs, 'run')} {metric.lose_at_most(policy.threshold)}){_gain(result)}."
    )


def _gain(result: EvaluationResult) -> str:
    speed_up, own = result.speed_up(result.foreign), result.speed_up(result.own)
    share = result.share_of_own_speed_up
    if speed_up is None:
        return ""
    gain = f", {speed_up_text(speed_up, 2)}"
    if share is None or own is None:
        return gain
    return f"{gain}: {100 * share:.0f} % of the {own.value:.2f} times that its own policy gives"
