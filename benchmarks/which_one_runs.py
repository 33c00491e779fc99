"""Trainings of many jobs, clusters and protocols, each made once and kept in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.second_phase import PROFILE, REFERENCES
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.protocols import Exchange, alone, choose_protocol
from syncswitch.trainers.simulated.profile import ClusterProfile, load_profile
from syncswitch.trainers.simulated.trainer import SimulatedTrainer, simulated_identity

WORKERS = 8
JOBS = list(REFERENCES)
GRID = (100.0, 50.0, 25.0, 12.5, 6.25, 3.125, 1.5625, 0.0)
"""The switch points from BSP to ASP with a momentum for each worker, descending."""
_DELTAS = (0.25, 0.3, 0.5)


def _one_straggler() -> ClusterProfile:
    speeds = (*[1.0] * (WORKERS - 1), 0.25)
    return load_profile("uniform").model_copy(update={"relative_speeds": speeds})


CLUSTERS: Mapping[str, Callable[[], ClusterProfile]] = {
    "paper": partial(load_profile, PROFILE),
    "equal": partial(load_profile, "uniform"),
    "straggler": _one_straggler,
    "slow-link": partial(load_profile, "bottleneck"),
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A way of training: a pair of protocols and when to switch, in percent of the steps."""

    pair: tuple[str, str]
    percent: float = 100.0


SWITCHED = tuple(Choice(("bsp", "asp"), percent) for percent in GRID)
"""One choice for each switch point of the grid."""


def fixed_choices(workload: Workload) -> dict[str, Choice]:
    """Returns what somebody may pick without a search, by the names of the rows.

    The quadratic rule's alpha is the highest rate of a worker: its periods are eight steps long
    until the rate has fallen to a third of that. Post-local SGD switches at the first decay.
    """
    texts = {
        "ASP": "asp",
        "SSP, lead 3": "ssp:3",
        "DSSP, lead 3 to 15": "dssp:3-15",
        "DS-Sync, groups of 2": "ds-sync:2",
        "GBA, 3 updates late": "gba:3",
        "local SGD, every 8": "local-sgd:8:zeroed",
        **{f"SelSync, delta {delta}": f"selsync:{delta}" for delta in _DELTAS},
    }
    found = {"BSP": SWITCHED[0]} | {name: Choice(alone(text)) for name, text in texts.items()}
    rate, boundaries = workload.learning_rate, workload.learning_rate_boundaries
    if isinstance(rate, float):
        alpha = rate * min(WORKERS, workload.largest_scaling or WORKERS)
        found["QSR, from every 8"] = Choice(alone(f"qsr:8:{alpha:g}:zeroed"))
    if boundaries and boundaries[0][0] < workload.total_worker_steps:
        percent = 100 * boundaries[0][0] / workload.total_worker_steps
        found["post-local SGD, every 8 from the first decay"] = Choice(
            ("bsp", "local-sgd:8:zeroed"), percent
        )
    if workload.name == "clicks":  # the rows of its tables are trained on the parameter server
        found = {name: one for name, one in found.items() if not _has_replicas(one)}
    return found


def _has_replicas(choice: Choice) -> bool:
    used = choice.pair[: 1 if choice.percent == 100 else 2]
    return any(choose_protocol(text).exchange is Exchange.REPLICA for text in used)


@dataclass(frozen=True, slots=True)
class Training:
    """What is kept of a training.

    Attributes:
        accuracy: Converged.
        diverged: Whether it did.
        seconds: Of the whole training.
        first_seconds: The part of them before the switch.
        tests: Worker-step, seconds and accuracy of each test.
    """

    accuracy: float
    diverged: bool
    seconds: float
    first_seconds: float
    tests: list[tuple[int, float, float]]

    @staticmethod
    def of(record: TrialRecord) -> Training:
        """Returns what is kept of a record."""
        is_first = record.phases[0].protocol == record.spec.identity.first_protocol
        return Training(
            record.converged_accuracy,
            record.diverged,
            record.training_seconds,
            record.phases[0].seconds if is_first else 0.0,
            [(one.worker_step, one.elapsed_seconds, one.accuracy) for one in record.evaluations],
        )


class Recorded:
    """The trainings of a file of JSON lines; those that are made are added, cut ones made again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Training] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                content = json.loads(line)
            except ValueError:  # the last one of a run that was killed
                continue
            self._known[content["key"]] = Training(**content["training"])

    def find(self, key: str, make: Callable[[], Training]) -> Training:
        """Returns a training; makes and adds it if it is not there."""
        if key not in self._known:
            made = self._known[key] = make()
            fields = {name: getattr(made, name) for name in Training.__slots__}
            with self._path.open("a") as file:
                # A line of its own, whatever was cut before.
                file.write("\n" + json.dumps({"key": key, "training": fields}))
        return self._known[key]


class JobRuns:
    """The trainings of a job on a cluster; a context that closes its trainer."""

    def __init__(self, job: str, cluster: str, recorded: Recorded, worker_steps: int = 0) -> None:
        shorter = f",total_worker_steps={worker_steps}" if worker_steps else ""
        interval = f",evaluation_interval_worker_steps={WORKERS}" if worker_steps else ""
        own = ",momentum_after_switch=own"  # of the papers' jobs as well
        self.workload = load_workload(REFERENCES[job] + own + shorter + interval)
        self.job, self.cluster = job, cluster
        self._recorded, self._profile = recorded, CLUSTERS[cluster]()
        self._trainer: SimulatedTrainer | None = None

    def __enter__(self) -> JobRuns:
        """Nothing is compiled before a training has to be made."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the trainer."""
        if self._trainer is not None:
            self._trainer.close()

    def of(self, choice: Choice, seeds: int) -> list[Training]:
        """Returns one training for each seed."""
        return list(self._of(choice, seeds))

    def _of(self, choice: Choice, seeds: int) -> Iterator[Training]:
        identity = simulated_identity(self.workload, WORKERS, choice.pair, self._profile)
        for seed in range(seeds):
            spec = TrialSpec(identity, choice.percent, seed)
            key = f"{identity.fingerprint} {choice.percent:g} {seed}"
            yield self._recorded.find(key, partial(self._make, spec))

    def _make(self, spec: TrialSpec) -> Training:
        if self._trainer is None:
            self._trainer = SimulatedTrainer(self.workload, WORKERS, self._profile)
        return Training.of(self._trainer.train(spec))
