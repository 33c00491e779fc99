"""`syncswitch-search sweep`: trains at chosen switch points."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from syncswitch.cli.completion import complete_policy, complete_workload
from syncswitch.cli.console import Row, echo, print_json, print_note, print_rows, print_text
from syncswitch.cli.options import (
    PROTOCOLS_HELP,
    FiniteRange,
    common_options,
    conditions_options,
    inject_option,
    mlflow_option,
    protocols_option,
    seed_option,
    tensorboard_option,
    workers_option,
)
from syncswitch.cli.panels import PanelCommand
from syncswitch.cli.search.launch.making import (
    opened_for,
    parallel_runs_option,
    print_notes,
    resumable,
)
from syncswitch.cli.trainer_kinds import trainer_options
from syncswitch.searcher.backends.base import TrainerChoice
from syncswitch.searcher.backends.registry import TRAINERS
from syncswitch.searcher.mlflow import check_copies
from syncswitch.searcher.search.policy_words import speed_up_text
from syncswitch.searcher.selection import policy_named
from syncswitch.searcher.speed_up import SpeedUp
from syncswitch.searcher.strategies.baseline import MEASURED
from syncswitch.searcher.sweeps import (
    USUAL_POINTS,
    EvaluatedSwitchPoint,
    Sweep,
    SweptJob,
    plan_sweep,
)
from syncswitch.searcher.words import (
    NONE,
    accuracy_around,
    accuracy_text,
    counted,
    measured_threshold_text,
    metric_title,
    named_text,
    percent_text,
    run_conditions_text,
    seconds_text,
    sentence,
    value_text,
    workers_text,
)
from syncswitch.storage.records.job import protocol_text
from syncswitch.storage.records.policy import TimingPolicy


@click.command(
    cls=PanelCommand,
    usual=("at", "runs", "workers", "protocols", "threshold", "trainer", "profile"),
)
@click.argument("reference", metavar="[WORKLOAD]", required=False, shell_complete=complete_workload)
@click.option(
    "--at",
    metavar="PERCENTS",
    help="Switch points to train at: 100 = the first protocol alone, 0 = the second alone. The"
    " switch point of a --policy is added. Default: that one alone, or"
    f" {','.join(f'{percent:g}' for percent in USUAL_POINTS)}.",
)
@click.option(
    "--policy",
    "policy_texts",
    metavar="POLICY",
    multiple=True,
    shell_complete=complete_policy,
    help="A policy of another job to try: a policy file (.json), or a workload or the start of a"
    " fingerprint, with @VERSION or @ALIAS unless the current policy is meant. May be given several"
    " times.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, 10_000),
    default=5,
    show_default=True,
    help="Runs at each switch point, recorded ones included.",
)
@workers_option(
    None,
    f"Workers in the cluster. Default: {TrainerChoice.default_workers}, or as in the (first)"
    " --policy.",
)
@protocols_option(
    None,
    f"{PROTOCOLS_HELP} May be given several times. Default:"
    f" {TrainerChoice.default_protocols}, or as in the --policy.",
    multiple=True,
)
@click.option(
    "--threshold",
    type=FiniteRange(0, min_open=True),
    help="How much accuracy may be lost against the target (beta), in the metric's unit."
    " Default: that of the --policy; else 0.01 if the metric's best value is 1; else measured from"
    " the runs of the reference.",
)
@click.option(
    "--target-accuracy",
    type=float,
    help="Accuracy to keep (A), or the value of another metric. Default: measured with BSP alone,"
    " or with the first protocol alone if there is no BSP.",
)
@click.option(
    "--guard",
    "guarded",
    is_flag=True,
    help="Train as with a guarded policy: a run that fails after its switch goes back to it and"
    " continues with the first protocol; accuracy and time include that.",
)
@trainer_options(TRAINERS)
@inject_option
@conditions_options
@seed_option
@parallel_runs_option
@tensorboard_option
@mlflow_option()
@common_options
@resumable
def sweep(
    reference: str | None,
    at: str | None,
    policy_texts: tuple[str, ...],
    workers: int | None,
    trainer: TrainerChoice,
    parallel_runs: int,
    tensorboard: Path | None,
    mlflow: str | None,
    storage_url: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Train WORKLOAD at chosen switch points and compare them with one target.

    WORKLOAD is as for `run`. Nothing is decided, and no policy is saved. The target is measured
    with BSP alone, even if --at leaves it out. --policy tries policies of other jobs, beside
    WORKLOAD's own if it has one.

    Recorded runs count, unless they were stopped early, or made by another trainer or under other
    conditions; only missing runs are made. Repeat the command to continue an interrupted sweep;
    several processes on one database share the work.
    """
    trainer.check_parallel_runs(parallel_runs)
    check_copies(tensorboard, mlflow)
    plan = plan_sweep(
        trainer,
        reference,
        at,
        policies=[policy_named(text, storage_url, print_note) for text in policy_texts],
        workers=workers,
        storage_url=storage_url,
        **options,
    )
    print_notes(dict.fromkeys(job.note for job in plan.jobs))
    with opened_for(plan.jobs, storage_url, "sweep", parallel_runs, mlflow) as opened:
        database, jobs, reporter = opened
        plan = dataclasses.replace(plan, jobs=tuple(jobs))
        swept = plan.run(database, tensorboard=tensorboard, reporter=reporter)
    if as_json:
        print_json(_rows_as_json(swept))
    else:
        _print_sweep(swept)


def _rows_as_json(sweep: Sweep) -> list[dict[str, Any]]:
    return [
        metric.document(
            {
                "workload": job.identity.name,
                "reference": job.reference,
                "fingerprint": job.identity.fingerprint,
                "workers": job.identity.workers,
                "simulated_cluster": job.identity.simulated_cluster,
                "protocols": [job.identity.first_protocol, job.identity.second_protocol],
                "conditions": dataclasses.asdict(job.conditions),
                "study": job.study,
                **metric.naming,
                "target_accuracy": sweep.target_accuracy,
                "threshold": sweep.threshold,
                "threshold_is_measured": sweep.given_threshold is None,
                "policies": _policies_at(sweep, job, point.switch_percent),
                "keeps_accuracy": sweep.keeps_accuracy(point),
                **dataclasses.asdict(point),
                "kept_runs": sweep.kept_runs(point),
                "speed_up": speed_up.value if speed_up else None,
                "speed_up_low": speed_up.low if speed_up else None,
                "speed_up_high": speed_up.high if speed_up else None,
            }
        )
        for job, point, speed_up in _rows(sweep)
        for metric in [job.identity.metric]
    ]


def _print_sweep(sweep: Sweep) -> None:
    first = sweep.jobs[0]
    noun = "processes" if first.identity.is_command else "workers"
    title = metric_title(job.identity.metric for job in sweep.jobs)
    rows: list[Row] = []
    for job, point, speed_up in _rows(sweep):
        identity, metric = job.identity, job.identity.metric
        accuracy = accuracy_around(point.mean_accuracy, point.accuracy_half_width, metric)
        rows.append(
            [
                ("policy", ", ".join(_policies_at(sweep, job, point.switch_percent)) or NONE),
                (noun, workers_text(identity.workers, identity.simulated_cluster)),
                ("protocols", identity.pair),
                ("switch at", percent_text(point.switch_percent)),
                ("runs", str(point.runs)),
                ("diverged", str(point.diverged_runs)),
                ("kept", value_text(sweep.kept_runs(point), "d")),
                (title, named_text(accuracy, metric, title)),
                ("seconds", seconds_text(point.training_seconds)),
                ("times as fast", value_text(speed_up.value if speed_up else None, ".2f")),
            ]
        )
    print_rows(rows, {"policy"})
    echo()
    print_text(_compared_with(sweep))
    for job, policy in itertools.product(sweep.jobs, sweep.policies):
        print_text(_verdict(sweep, job, policy))
    if text := run_conditions_text(first.conditions):
        print_text(f"All runs trained under these conditions: {text}.")


def _rows(sweep: Sweep) -> Iterator[tuple[SweptJob, EvaluatedSwitchPoint, SpeedUp | None]]:
    for job in sweep.jobs:
        for point in job.switch_points:
            yield job, point, sweep.speed_up(job, point.switch_percent)


def _policies_at(sweep: Sweep, job: SweptJob, percent: float) -> list[str]:
    """The names of the policies that switch there, the job's own policy last."""
    there = (policy for policy in sweep.policies if policy.switch_percent == percent)
    names = [f"{policy.job.workload}@{policy.version}" for policy in there]
    own = job.own_policy
    if own is not None and own.switch_percent == percent:
        names.append(f"{own.job.workload}@{own.version} (its own)")
    return names


def _verdict(sweep: Sweep, job: SweptJob, policy: TimingPolicy) -> str:
    """Whether a policy keeps a job's accuracy, how much time it saves, and its own policy would."""
    point, identity, metric = job.at(policy.switch_percent), job.identity, job.identity.metric
    what = f"{policy.job.workload}@{policy.version}"
    if not identity.is_command:
        what += f", found on {counted(policy.job.workers, 'worker')},"
    name = dataclasses.replace(identity.job, name=job.reference or identity.name).sized_name
    assert point is not None  # a sweep trains at the points of its policies
    keeps = sweep.keeps_accuracy(point)
    if keeps is None:
        return f"It is unknown whether {what} keeps the {metric.name} of {name}."
    text = f"{what} {'keeps' if keeps else 'does not keep'} the {metric.name} of {name}"
    if point.diverged_runs:
        return f"{text}: {point.diverged_runs} of {counted(point.runs, 'run')} diverged."
    gain = sweep.speed_up(job, policy.switch_percent)
    if gain is None:
        return f"{text}."
    own = job.own_policy
    its_own = None if own is None else sweep.speed_up(job, own.switch_percent)
    text += f", {speed_up_text(gain, 2)}"
    if its_own is None:
        return f"{text}."
    share = 100 * gain.value / its_own.value
    return f"{text}: {share:.0f} % of the {its_own.value:.2f} times that its own policy gives."


def _compared_with(sweep: Sweep) -> str:
    identity, percent = sweep.jobs[0].identity, sweep.reference_percent
    protocol = identity.first_protocol if percent else identity.second_protocol
    first = protocol_text(protocol)
    origin = "as given" if sweep.given_target is not None else f"{first} alone"
    metric, threshold = identity.metric, sweep.threshold
    target = f"Target on {identity.size}: {accuracy_text(sweep.target_accuracy, metric)} ({origin})"
    if threshold is None:
        return f"{target}; its runs do not show how much worse others may be: give --threshold."
    said = f"{target}; kept runs {metric.lose_at_most(threshold)}."
    if sweep.given_threshold is None:
        allowed = dataclasses.replace(MEASURED, threshold=threshold)
        said += f" {sentence(measured_threshold_text(allowed, metric, first))}"
    return said
