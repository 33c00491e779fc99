"""Online policies under the paper's stragglers: training time, accuracy, and what they decided.

    python -m benchmarks.stragglers [--seeds 5] [--trainer simulated] [--json FILE]
        [--profile sync-switch-resnet32] [--scenarios moderate moderate:delay=100ms]

Each seed trains once undisturbed and, under each scenario, once with every online policy; seeds are
the outer loop, so that a machine whose speed drifts does so for all of them. Times are compared
with those of the same seed without an online policy. Intervals are those of Student's t at 95 %.

Sync-Switch paper, Fig. 15, ResNet-32 on 8 workers, moderate: elastic is 1.11 times as fast and
keeps the accuracy; greedy loses 1.4 to 2 percentage points.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console

from benchmarks.console import at_most, new_table, parser
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.speed_up import half_width
from syncswitch.storage.records.job import RunConditions, ScheduledJob
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.cluster.local import LAUNCHERS, load_local_workload
from syncswitch.trainers.faults.injections import injections
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.stragglers.online import ONLINE
from syncswitch.trainers.trainer import Trainer

PROTOCOLS = ("bsp", "asp")
SCENARIOS = {
    "simulated": ["moderate", "moderate:delay=90ms", "moderate:delay=100ms"],
    "local": ["moderate"],
}
COUNTED = ("detected", "cleared", "permanent", "removed", "restored", "switched")
Records = dict[tuple[str, str], list[TrialRecord]]


@dataclass(frozen=True)
class Estimate:
    """A mean and half of its 95 % confidence interval, None for a single run."""

    mean: float
    half_interval: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        return cls(statistics.mean(values), half_width(values) if len(values) > 1 else None)

    def text(self, form: str, factor: float = 1.0) -> str:
        half = "?" if self.half_interval is None else format(factor * self.half_interval, form)
        return f"{factor * self.mean:{form}} ± {half}"


@dataclass(frozen=True)
class Row:
    """The runs of one scenario and online policy.

    Attributes:
        speed_up: Training time without an online policy over that with this one, by seed.
        accuracy_points: Accuracy above that without an online policy, in percentage points.
        worker_steps: Done in the first protocol, in all runs; a share as the policy wants it.
        events: Mean count in a run, by kind.
    """

    scenario: str
    online: str
    runs: int
    diverged: int
    seconds: Estimate
    accuracy: Estimate
    speed_up: Estimate
    accuracy_points: Estimate
    worker_steps: float
    events: Mapping[str, float]


@contextlib.contextmanager
def opened(arguments: argparse.Namespace) -> Iterator[tuple[Trainer, ScheduledJob]]:
    """The trainer, and its job."""
    reference, workers = arguments.workload, arguments.workers
    if arguments.trainer == "local":
        workload = load_local_workload(reference, workers)
        cluster = LocalTrainer(launcher=arguments.launcher)
        with cluster.open(workload, reference, workers) as trainer:
            yield trainer, workload_identity(workload, workers, *PROTOCOLS)
        return
    from syncswitch.trainers.simulated.profile import load_profile
    from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity

    workload, profile = load_workload(reference), load_profile(arguments.profile)
    with SimulatedTrainer(workload, workers, profile) as trainer:
        yield trainer, simulated_identity(workload, workers, PROTOCOLS, profile)


def measure(trainer: Trainer, usual: TrialSpec, scenarios: Sequence[str], seeds: int) -> Records:
    """All runs, by scenario and online policy; the undisturbed ones have no scenario."""
    records: Records = {}
    workers = usual.identity.workers
    cases = [("", "none"), *((scenario, online) for scenario in scenarios for online in ONLINE)]
    for seed in range(seeds):
        for scenario, online in cases:
            found = injections([scenario] if scenario else [], workers, usual.switch_percent)
            conditions = RunConditions(online, injections=tuple(one.text for one in found))
            spec = replace(usual, seed=seed, conditions=conditions)
            records.setdefault((scenario, online), []).append(trainer.train(spec))
    return records


def rows(records: Records) -> list[Row]:
    """The runs, each compared with the run of its seed without an online policy."""
    found = []
    for (scenario, online), runs in records.items():
        pairs = list(zip(records[scenario, "none"], runs, strict=True))
        events = Counter(event.kind for run in runs for event in run.events)
        first = [
            phase.end_worker_step - phase.start_worker_step
            for run in runs
            for phase in run.phases
            if phase.protocol == PROTOCOLS[0]
        ]
        found.append(
            Row(
                scenario or "undisturbed",
                online,
                len(runs),
                sum(run.diverged for run in runs),
                Estimate.of([run.training_seconds for run in runs]),
                Estimate.of([run.converged_accuracy for run in runs]),
                Estimate.of([none.training_seconds / run.training_seconds for none, run in pairs]),
                Estimate.of([_points(run) - _points(none) for none, run in pairs]),
                sum(first) / len(runs),
                {kind: events[kind] / len(runs) for kind in COUNTED},
            )
        )
    return found


def _points(run: TrialRecord) -> float:
    return 100 * run.converged_accuracy


def show(title: str, found: Sequence[Row]) -> None:
    names = ("seconds", "times as fast", "accuracy %", "points", "bsp steps", "diverged", *COUNTED)
    table = new_table("scenario", "online", *names, left=2, title=title, box=SIMPLE)
    for row in found:
        table.add_row(
            row.scenario,
            row.online,
            row.seconds.text(".1f"),
            row.speed_up.text(".3f"),
            row.accuracy.text(".2f", 100),
            row.accuracy_points.text(".2f"),
            f"{row.worker_steps:.0f}",
            str(row.diverged),
            *(f"{row.events[kind]:.1f}" for kind in COUNTED),
        )
    Console(width=200).print(table)


def parsed() -> argparse.Namespace:
    arguments = parser(
        __doc__, seeds=5, profile="uniform", workload="digits", workers=8, switch_percent=50.0,
        json=Path,
    )  # fmt: skip
    arguments.add_argument("--trainer", choices=list(SCENARIOS), default="simulated")
    arguments.add_argument("--launcher", choices=LAUNCHERS, default="processes")
    arguments.add_argument("--scenarios", nargs="+")
    return arguments.parse_args()


def main() -> None:
    arguments = parsed()
    scenarios = arguments.scenarios or SCENARIOS[arguments.trainer]
    runs = arguments.seeds * (1 + len(scenarios) * len(ONLINE))
    with at_most(1800 + 300 * runs), opened(arguments) as (trainer, identity):
        usual = TrialSpec(identity, arguments.switch_percent, 0)
        found = rows(measure(trainer, usual, scenarios, arguments.seeds))
    where = arguments.profile if arguments.trainer == "simulated" else arguments.launcher
    show(
        f"{identity.name}, {identity.workers} workers, {where}, switch at"
        f" {arguments.switch_percent:g} %, {arguments.seeds} seeds",
        found,
    )
    if arguments.json is not None:
        chosen: dict[str, Any] = {**vars(arguments), "json": None, "scenarios": scenarios}
        content = {"chosen": chosen, "rows": [asdict(row) for row in found]}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
