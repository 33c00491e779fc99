"""The second phase: how often runs keep BSP's accuracy with each worker's own momentum.

    python -m benchmarks.second_phase [--jobs digits:8 ...] [--rules own same dc:same] [--seeds 20]
        [--percents 50 25 ...] [--cluster simulated|threads|processes]

Runs keep it that end at most 0.01 below the mean of BSP. Simulated with the profile of the paper's
cluster, or on this machine; the staleness stands beside. A job is a name and a number of workers:
`digits`, `hot-breast-cancer`, `breast-cancer`, `clicks`, `transformer` (AdamW) or `batchnorm`. A
rule is a value of `momentum_after_switch`; `dc:` before one that shares it adds DC-ASGD, on the
simulated cluster. It may also be another second protocol, such as `local-sgd:8:averaged`. To the
accuracy: the share of BSP's time after which a test first shows BSP's mean less 0.01, in the median
of the runs that ever do.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from rich.console import Console

from benchmarks.console import at_most, new_table, parser
from benchmarks.delay_compensation import CompensatedTrainer
from syncswitch.storage.metrics import time_to_accuracy_seconds
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.protocols import PROTOCOLS
from syncswitch.trainers.simulated.profile import load_profile
from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity
from syncswitch.trainers.trainer import Trainer

REFERENCES = {
    "digits": "digits",
    "hot-breast-cancer": "reproduction.hot_breast_cancer:workload",
    "breast-cancer": "breast-cancer",
    "clicks": "clicks",
    "transformer": "benchmarks.second_phase_jobs:TRANSFORMER",
    "batchnorm": "benchmarks.second_phase_jobs:BATCHNORM",
}
JOBS = [
    *("digits:8", "digits:16", "hot-breast-cancer:8", "hot-breast-cancer:16"),
    *("breast-cancer:8", "clicks:8", "transformer:8", "batchnorm:8"),
]
PERCENTS = [50.0, 25.0, 12.5, 6.25, 3.125, 1.5625, 0.0]
THRESHOLD = 0.01
FIRST, SECOND = "bsp", "asp"
PROFILE = "sync-switch-resnet32"


def opened(
    reference: str, workers: int, cluster: str, compensates: bool = False, second: str = SECOND
) -> tuple[WorkloadIdentity, Trainer]:
    """Returns the identity of a job, and what trains it."""
    workload, pair = load_workload(reference), (FIRST, second)
    if cluster == "simulated":
        profile = load_profile(PROFILE)
        identity = simulated_identity(workload, workers, pair, profile)
        kind = CompensatedTrainer if compensates else SimulatedTrainer
        return identity, kind(workload, workers, profile)
    identity = workload_identity(workload, workers, *pair)
    if cluster == "threads":
        return identity, ClusterTrainer(workload, workers)
    return identity, ProcessTrainer(reference, workers)


def runs_of(
    reference: str,
    workers: int,
    cluster: str,
    percents: Sequence[float],
    seeds: int,
    compensates: bool = False,
    second: str = SECOND,
) -> list[list[TrialRecord]]:
    """Makes all runs of a job, by switch point."""
    identity, trainer = opened(reference, workers, cluster, compensates, second)
    with trainer:
        return [
            [trainer.train(TrialSpec(identity, percent, seed)) for seed in range(seeds)]
            for percent in percents
        ]


def ruled(reference: str, rule: str) -> dict[str, Any]:
    """Returns what `runs_of` takes for a rule."""
    if rule.partition(":")[0] in PROTOCOLS:
        return {"reference": reference, "second": rule}
    compensated, _, momentum = rule.rpartition(":")
    reference = f"{reference},momentum_after_switch={momentum}"
    return {"reference": reference, "compensates": bool(compensated)}


def row(job: str, rule: str, runs: Sequence[TrialRecord], base: Sequence[TrialRecord]) -> list[Any]:
    """Figures of the runs at one switch point, beside those of BSP."""
    least = statistics.fmean(_accuracy(run) for run in base) - THRESHOLD
    seconds = statistics.fmean(run.training_seconds for run in base)
    kept = [run for run in runs if not run.diverged and _accuracy(run) >= least - 1e-9]
    reached = [time_to_accuracy_seconds(run.evaluations, least) for run in runs]
    known = [one for one in reached if one is not None]
    stale = [run.phases[-1].mean_staleness or 0.0 for run in runs]
    return [
        job,
        rule,
        f"{runs[0].spec.switch_percent:g}",
        f"{len(kept)} of {len(runs)}",
        f"{statistics.fmean(map(_accuracy, runs)):.4f}",
        f"{statistics.fmean(run.training_seconds for run in runs) / seconds:.3f}",
        f"{statistics.median(known) / seconds:.3f} ({len(known)})" if known else "-",
        f"{statistics.fmean(stale):.1f}",
    ]


def _accuracy(run: TrialRecord) -> float:
    return 0.0 if run.diverged else run.converged_accuracy


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = parser(
        __doc__,
        jobs=JOBS,
        rules=["own", "same"],
        percents=PERCENTS,
        seeds=20,
        worker_steps=int,
        cluster="simulated",
    )
    given = options.parse_args()
    if "dc:own" in given.rules or (given.cluster != "simulated" and "dc:" in "".join(given.rules)):
        options.error("dc: corrects shared momentum, and only on the simulated cluster")
    shorter = ""
    if given.worker_steps:
        length = given.worker_steps
        shorter = f",total_worker_steps={length},evaluation_interval_worker_steps={length}"
    columns = ("job", "rule", "switch", "kept", "accuracy", "time", "to accuracy", "staleness")
    with at_most(24 * 3600), kept_for_the_next():
        for job in given.jobs:
            name, _, workers = job.partition(":")
            reference = REFERENCES[name] + shorter
            make = partial(runs_of, workers=int(workers), cluster=given.cluster, seeds=given.seeds)
            table = new_table(*columns, left=2)
            (base,) = make(reference=reference, percents=[100.0])
            table.add_row(*row(job, "-", base, base))
            for rule in given.rules:
                for runs in make(percents=given.percents, **ruled(reference, rule)):
                    table.add_row(*row(job, rule, runs, base))
            Console(width=110).print(table)


if __name__ == "__main__":
    main()
