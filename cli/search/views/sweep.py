"""What `sweep` shows: a row for each switch point of each job."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from syncswitch.cli.console import echo, print_table, print_text
from syncswitch.searcher.comparison.sweep import Sweep, SweptJob
from syncswitch.searcher.comparison.transfer import EvaluatedSwitchPoint
from syncswitch.searcher.speed_up import SpeedUp
from syncswitch.searcher.words import (
    NONE,
    accuracy_around,
    accuracy_text,
    metric_title,
    percent_text,
    run_conditions_text,
    seconds_text,
    workers_text,
)

_Row = tuple[SweptJob, EvaluatedSwitchPoint, SpeedUp | None]


def rows_as_json(sweep: Sweep) -> list[dict[str, Any]]:
    """A value for each switch point."""
    return [
        {
            "workload": job.identity.name,
            "reference": job.reference,
            "fingerprint": job.identity.fingerprint,
            "workers": job.identity.workers,
            "simulated_cluster": job.identity.simulated_cluster,
            "protocols": [job.identity.first_protocol, job.identity.second_protocol],
            "conditions": dataclasses.asdict(job.conditions),
            "study": job.study,
            **job.identity.decided_by.naming,
            **job.identity.decided_by.with_values(
                {"target_accuracy": sweep.target_accuracy, **dataclasses.asdict(point)}
            ),
            "kept_runs": sweep.kept_runs(point),
            "speed_up": speed_up.value if speed_up else None,
            "speed_up_low": speed_up.low if speed_up else None,
            "speed_up_high": speed_up.high if speed_up else None,
        }
        for job, point, speed_up in _rows(sweep)
    ]


def print_sweeps(sweeps: Sequence[Sweep]) -> None:
    """The table, and what its rows are compared with."""
    # The first job is the workload as it is.
    base = sweeps[0].jobs[0].reference
    title = metric_title(job.identity.decided_by for sweep in sweeps for job in sweep.jobs)
    first = 0 if len({job.reference for sweep in sweeps for job in sweep.jobs}) > 1 else 1
    print_table(
        [
            "variant",
            "workers",
            "protocols",
            "switch at",
            "runs",
            "diverged",
            "kept",
            title,
            "seconds",
            "times as fast",
        ][first:],
        [_cells(sweep, base, *row)[first:] for sweep in sweeps for row in _rows(sweep)],
    )
    echo()
    for sweep in sweeps:
        print_text(_compared_with(sweep))
    if text := run_conditions_text(sweeps[0].jobs[0].conditions):
        print_text(f"All runs trained under these conditions: {text}.")


def _rows(sweep: Sweep) -> Iterator[_Row]:
    for number, job in enumerate(sweep.jobs):
        for point in job.switch_points:
            yield job, point, sweep.speed_up(number, point.switch_percent)


def _cells(
    sweep: Sweep, base: str, job: SweptJob, point: EvaluatedSwitchPoint, speed_up: SpeedUp | None
) -> list[str]:
    identity, kept = job.identity, sweep.kept_runs(point)
    return [
        job.reference.removeprefix(base).removeprefix(",") or NONE,
        workers_text(identity.workers, identity.simulated_cluster),
        identity.pair,
        percent_text(point.switch_percent),
        str(point.runs),
        str(point.diverged_runs),
        NONE if kept is None else str(kept),
        accuracy_around(point.mean_accuracy, point.accuracy_half_width, identity.decided_by),
        seconds_text(point.training_seconds),
        NONE if speed_up is None else f"{speed_up.value:.2f}",
    ]


def _compared_with(sweep: Sweep) -> str:
    identity, percent = sweep.jobs[0].identity, sweep.reference_percent
    protocol = identity.first_protocol if percent else identity.second_protocol
    size = workers_text(identity.workers, identity.simulated_cluster)
    origin = "as given" if sweep.given_target is not None else f"{protocol.upper()} alone"
    metric = identity.decided_by
    of_it = "" if metric.is_less_better else " of it"
    return (
        f"Target on {size} workers: {accuracy_text(sweep.target_accuracy, metric)} ({origin}); kept"
        f" runs {metric.lose_at_most(sweep.threshold)}{of_it}."
    )
