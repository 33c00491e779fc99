"""Protocols side by side on simulated clusters: accuracy, time, and time to an accuracy.

    python -m benchmarks.protocols [--job digits|clicks] [--seeds 3] [--worker-steps N]

On mixed workers each protocol trains alone, at a rate that all of them bear. On 16 equal workers
the built-in digits workload shows what ASP costs, and what a switch saves of it; clicks, on mixed
workers, what each protocol makes of a switch at the rate of BSP. From 3 seeds on there are 95 %
intervals, of Student's t.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from benchmarks.console import at_most, new_table, parser
from benchmarks.stragglers import Estimate
from syncswitch.storage.metrics import time_to_accuracy_seconds
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.simulated.profile import load_profile
from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity
from syncswitch.trainers.workloads.clicks import workload as clicks
from syncswitch.trainers.workloads.digits import workload as digits

ALONE = (
    *("bsp", "ssp:3", "dssp:3-15", "dssp:3-15:unbounded", "asp"),
    *("ds-sync:2", "local-sgd:8", "qsr:4:0.02", "selsync:0.3", "gba:3"),
)
BEARABLE_RATE = 0.01
ON_CLICKS = ("bsp", "ssp:3", "asp", "gba:0", "gba:3")
BEARABLE_CLICKS_RATE = 0.02
ADAGRAD_RATE = 0.05
CLICKS_TARGET = 0.65
SWITCH_PERCENT = 30.0

Run = tuple[str, tuple[str, str], float]


def measure(
    workload: Workload, workers: int, profile_name: str, runs: Sequence[Run], seeds: int
) -> dict[str, list[TrialRecord]]:
    profile = load_profile(profile_name)
    with SimulatedTrainer(workload, workers, profile) as trainer:
        return {
            name: [
                trainer.train(
                    TrialSpec(simulated_identity(workload, workers, pair, profile), percent, seed)
                )
                for seed in range(seeds)
            ]
            for name, pair, percent in runs
        }


def show(
    title: str, records: dict[str, list[TrialRecord]], target: float, metric: str = "accuracy"
) -> None:
    to_target = f"seconds to {target:g}"
    # Points: percentage points above the first of them, seed by seed.
    columns = ("run", "diverged", metric, "points", "seconds", to_target, "staleness")
    table = new_table(*columns, title=title)
    first = next(iter(records.values()))
    for name, runs in records.items():
        whole = [run for run in runs if not run.diverged]
        table.add_row(
            name,
            f"{len(runs) - len(whole)} of {len(runs)}",
            _mean(whole, lambda run: run.converged_accuracy, ".4f"),
            _points(runs, first),
            _mean(whole, lambda run: run.training_seconds, ".1f"),
            _mean(whole, lambda run: time_to_accuracy_seconds(run.evaluations, target), ".1f"),
            _mean(whole, lambda run: run.phases[-1].mean_staleness, ".1f"),
        )
    Console(width=110).print(table)


def _points(runs: Sequence[TrialRecord], others: Sequence[TrialRecord]) -> str:
    pairs = list(zip(runs, others, strict=True))
    if runs is others or len(pairs) < 3 or any(one.diverged for pair in pairs for one in pair):
        return "-"
    differences = [
        100 * (one.converged_accuracy - other.converged_accuracy) for one, other in pairs
    ]
    difference = Estimate.of(differences)
    return f"{difference.mean:+.2f} ± {difference.half_interval:.2f}"


def _mean(
    runs: Sequence[TrialRecord], value: Callable[[TrialRecord], float | None], form: str
) -> str:
    values = [value(run) for run in runs]
    known = [one for one in values if one is not None]
    if not known or len(known) < len(values):
        return "-"
    if len(known) < 3:
        return format(statistics.mean(known), form)
    return Estimate.of(known).text(form)


def main() -> None:
    made = parser(__doc__, seeds=3)
    made.add_argument("--job", choices=("digits", "clicks"), default="digits")
    made.add_argument("--worker-steps", type=int)
    options = made.parse_args()
    workload, compare = {"digits": (digits, compare_digits), "clicks": (clicks, compare_clicks)}[
        options.job
    ]
    if options.worker_steps is not None:
        workload = replace(workload, total_worker_steps=options.worker_steps)
    with at_most(1800 * (1 + options.seeds)), kept_for_the_next():
        compare(workload, options.seeds)


def adagrad() -> Any:
    from keras import optimizers

    return optimizers.Adagrad()


def compare_clicks(workload: Workload, seeds: int) -> None:
    alone = [(name, (name, "asp" if name != "asp" else "bsp"), 100.0) for name in ON_CLICKS]
    for title, rate, optimizer in (
        ("SGD with momentum", BEARABLE_CLICKS_RATE, None),
        ("Adagrad", ADAGRAD_RATE, adagrad),
    ):
        one = replace(workload, learning_rate=rate, optimizer=optimizer)
        show(
            f"clicks, {title} at rate {rate:g}, 8 workers, every second one half as fast",
            measure(one, 8, "heterogeneous", alone, seeds),
            CLICKS_TARGET,
            "AUC",
        )
    switched = [
        ("bsp" if name == "bsp" else f"bsp,{name}", ("bsp", name if name != "bsp" else "asp"), at)
        for name, at in ((one, 100.0 if one == "bsp" else SWITCH_PERCENT) for one in ON_CLICKS)
    ]
    show(
        f"clicks, the same workers, another protocol from {SWITCH_PERCENT:g} % on",
        measure(workload, 8, "heterogeneous", switched, seeds),
        CLICKS_TARGET,
        "AUC",
    )


def compare_digits(workload: Workload, seeds: int) -> None:
    bearable = replace(workload, learning_rate=BEARABLE_RATE)
    mixed = [(name, (name, "asp" if name != "asp" else "bsp"), 100.0) for name in ALONE]
    show(
        f"digits at rate {BEARABLE_RATE:g}, 4 workers, every second one half as fast",
        measure(bearable, 4, "heterogeneous", mixed, seeds),
        0.95,
    )
    pair = ("bsp", "asp")
    switched = [("BSP", pair, 100.0), ("BSP for 50 %, then ASP", pair, 50.0), ("ASP", pair, 0.0)]
    show("digits, 16 equal workers", measure(workload, 16, "uniform", switched, seeds), 0.95)


if __name__ == "__main__":
    main()
