"""`syncswitch-search evaluate`: how a policy does on another workload."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from syncswitch.searcher.backends.base import JobRequest, TrainerChoice
from syncswitch.searcher.backends.registry import trainer_options
from syncswitch.searcher.cli.policy.selection import policy_named
from syncswitch.searcher.cli.search.jobs import jobs_option
from syncswitch.searcher.cli.search.mlflow import copied_search, mlflow_search_option
from syncswitch.searcher.cli.search.opening import opened_for
from syncswitch.searcher.results.speed_up import SpeedUp
from syncswitch.searcher.results.transfer import EvaluatedSwitchPoint, EvaluationResult
from syncswitch.searcher.text.sentences import speed_up_text
from syncswitch.searcher.text.values import (
    accuracy_interval,
    counted,
    run_conditions_text,
    workers_text,
)
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import LARGEST_SEED
from syncswitch.trainers.cli.completion import complete_policy, complete_workload
from syncswitch.trainers.cli.conditions import ConditionsChoice, conditions_options, inject_option
from syncswitch.trainers.cli.console import echo, print_error, print_json, print_table, print_text
from syncswitch.trainers.cli.exit_status import EXIT_INTERRUPTED
from syncswitch.trainers.cli.options import (
    common_options,
    protocols_option,
    tensorboard_option,
    workers_option,
)
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.run.tensorboard import logged


@click.command()
@click.argument("policy_text", metavar="POLICY", shell_complete=complete_policy)
@click.argument("reference", metavar="WORKLOAD", shell_complete=complete_workload)
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
@mlflow_search_option
@common_options
def evaluate(
    policy_text: str,
    reference: str,
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
    from syncswitch.searcher.loop.comparison import check_switch
    from syncswitch.searcher.loop.transfer import PolicyEvaluation

    trainer.check_jobs(jobs)
    policy = policy_named(policy_text, storage_url)
    pair = (policy.first_protocol, policy.second_protocol)
    if protocols is not None:
        pair = trainer.pair(protocols)
    request = JobRequest(
        reference, trainer.workers(workers), policy.workers, pair, storage_url, seed
    )
    chosen = dataclasses.replace(chosen, later_switches=policy.later_switches)
    conditions = trainer.conditions(chosen, request.size, policy.switch_percent, pair[0])
    check_chief(conditions.injections, "evaluate")
    job = trainer.job(request)
    check_switch(job.identity, policy.switch_percent)
    try:
        with opened_for(job, storage_url, "evaluation", jobs) as (database, trainers, reporter):
            evaluation = PolicyEvaluation(
                database,
                job.identity,
                policy,
                lambda: watched(logged(trainers(), tensorboard_folder, evaluation.study_name)),
                runs=runs,
                trainer=trainer.kind,
                base_seed=seed,
                conditions=conditions,
                reference=job.reference or normal_reference(reference),
                reporter=reporter,
            )
            study = evaluation.study_name
            with copied_search(mlflow_uri, database, job.identity, study, reporter) as watched:
                result = evaluation.run()
    except KeyboardInterrupt:
        print_error("interrupted; all finished runs are kept, and the same command continues")
        return EXIT_INTERRUPTED
    if as_json:
        print_json(_as_json(result))
    else:
        _print(result)
    return None


def check_chief(injections: Iterable[str], command: str) -> None:
    """Such a run would be made again and again. Raises UserError."""
    for text in injections:
        if text.startswith("kill:chief"):
            raise UserError(
                f"injection {text!r} cannot be used with {command}, whose runs begin afresh without"
                " their chief; try it with syncswitch-run"
            )


def _switch_points(result: EvaluationResult) -> list[tuple[str, str, EvaluatedSwitchPoint]]:
    """Role, name for people, and runs of each row."""
    policy, own = result.policy, result.own_policy
    rows = [("policy", f"{policy.workload} version {policy.version}", result.foreign)]
    if own is not None and result.own is not None:
        rows.append(("own", f"its own, version {own.version}", result.own))
    first = result.identity.first_protocol.upper()
    return [*rows, ("baseline", f"{first} alone", result.baseline)]


def _as_json(result: EvaluationResult) -> dict[str, Any]:
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
        "conditions": dataclasses.asdict(result.conditions),
        "own_policy_version": None if own is None else own.version,
        "study": result.study,
        "new_runs": result.new_runs,
        "switch_points": [
            {
                "role": role,
                **dataclasses.asdict(switch_point),
                "kept_runs": result.kept_runs(switch_point),
                **_speed_up_as_json(result.measured_speed_up(switch_point)),
            }
            for role, _, switch_point in _switch_points(result)
        ],
        "keeps_accuracy": result.keeps_accuracy,
        "share_of_own_speed_up": result.share_of_own_speed_up,
    }


def _speed_up_as_json(found: SpeedUp | None) -> dict[str, float | None]:
    """Null where all runs diverged; the ends also where too few were timed."""
    return {
        "speed_up": found.value if found else None,
        "speed_up_low": found.low if found else None,
        "speed_up_high": found.high if found else None,
    }


def _print(result: EvaluationResult) -> None:
    """The table, then the verdict."""
    print_table(
        ["policy", "switch at", "runs", "diverged", "kept", "accuracy", "seconds", "times as fast"],
        [[name, *_cells(switch_point, result)] for _, name, switch_point in _switch_points(result)],
    )
    echo()
    print_text(_verdict(result))
    text = run_conditions_text(result.conditions)
    if text:
        print_text(f"All runs trained under these conditions: {text}.")


def _cells(switch_point: EvaluatedSwitchPoint, result: EvaluationResult) -> list[str]:
    accuracy, half = switch_point.mean_accuracy, switch_point.accuracy_half_width
    speed_up = result.speed_up(switch_point)
    low = None if accuracy is None or half is None else max(0.0, accuracy - half)
    high = None if accuracy is None or half is None else min(1.0, accuracy + half)
    return [
        f"{switch_point.switch_percent:g} %",
        str(switch_point.runs),
        str(switch_point.diverged_runs),
        str(result.kept_runs(switch_point)),
        "-" if accuracy is None else accuracy_interval(accuracy, low, high),
        "-" if switch_point.training_seconds is None else f"{switch_point.training_seconds:.1f}",
        "-" if speed_up is None else f"{speed_up:.2f}",
    ]


def _verdict(result: EvaluationResult) -> str:
    """Whether the policy keeps the accuracy, and what it gains, in one sentence."""
    policy, foreign, identity = result.policy, result.foreign, result.identity
    what = (
        f"The policy of {policy.workload} for {policy.workers} workers (version {policy.version})"
    )
    size = workers_text(identity.workers, identity.simulated_cluster)
    name = f"{identity.name} on {size} workers"
    if foreign.diverged_runs:
        return (
            f"{what} does not keep the accuracy of {name}: {foreign.diverged_runs} of"
            f" {counted(foreign.runs, 'run')} diverged."
        )
    does = "keeps" if result.keeps_accuracy else "does not keep"
    return (
        f"{what} {does} the accuracy of {name}: {foreign.mean_accuracy:.4f} against"
        f" {result.baseline.mean_accuracy:.4f} with {identity.first_protocol.upper()} alone"
        f" ({result.kept_runs(foreign)} of {counted(foreign.runs, 'run')} lose at most"
        f" {policy.threshold:g}){_gain(result)}."
    )


def _gain(result: EvaluationResult) -> str:
    speed_up, own = result.measured_speed_up(result.foreign), result.speed_up(result.own)
    share = result.share_of_own_speed_up
    if speed_up is None:
        return ""
    gain = f", {speed_up_text(speed_up, 2)}"
    if share is None:
        return gain
    return f"{gain}: {100 * share:.0f} % of the {own:.2f} times that its own policy gives"
