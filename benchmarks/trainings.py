"""Trainings of many jobs, clusters and protocols, each made once and kept in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.delay_compensation import CompensatedTrainer
from benchmarks.recorded_jobs import SHARED_MOMENTUM, GuardedJob, TrustJob
from syncswitch.searcher.training.policy import second_phases
from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.cluster.processes.trainer import ProcessTrainer
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.simulated.profile import ClusterProfile, load_profile
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
"""The jobs, by the names that they have on the command line."""
ADAM = {
    "digits-adam": "benchmarks.second_phase_jobs:DIGITS_ADAM",
    "breast-cancer-adam": "benchmarks.second_phase_jobs:BREAST_CANCER_ADAM",
    "batchnorm-adamw": "benchmarks.second_phase_jobs:BATCHNORM_ADAMW",
}
"""Three of them with another optimizer."""
PROFILE = "sync-switch-resnet32"


def _one_straggler() -> ClusterProfile:
    speeds = (*[1.0] * 7, 0.25)
    return load_profile("uniform").model_copy(update={"relative_speeds": speeds})


CLUSTERS: Mapping[str, Callable[[], ClusterProfile]] = {
    "paper": partial(load_profile, PROFILE),
    "equal": partial(load_profile, "uniform"),
    "straggler": _one_straggler,
    "slow-link": partial(load_profile, "bottleneck"),
}
"""The profiles of simulated clusters, by name; the one with a straggler has 8 workers."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A way of training: a pair of protocols and when to switch, in percent of the steps."""

    pair: tuple[str, str]
    percent: float = 100.0


@dataclass(frozen=True, slots=True)
class Training:
    """What is kept of a training.

    Attributes:
        accuracy: Converged.
        diverged: Whether it did.
        seconds: Of the whole training.
        first_seconds: The part of them before the switch.
        tests: Worker-step, seconds and accuracy of each test.
        mean_staleness: Of the last phase, in updates.
        second_protocol: The one after the switch.
        held_percent: The switch that held in a guarded training, 100 if none did; None in others.
    """

    accuracy: float
    diverged: bool
    seconds: float
    first_seconds: float
    tests: list[tuple[int, float, float]]
    mean_staleness: float
    second_protocol: str = ""
    held_percent: float | None = None

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
            record.phases[-1].mean_staleness or 0.0,
            record.spec.identity.second_protocol,
            held_percent(record.guard) if record.guard else None,
        )


def held_percent(guard: GuardOutcome) -> float:
    """The switch that held; 100 where none did."""
    return BASELINE_PERCENT if guard.held_percent is None else guard.held_percent


def guarded_job(
    identity: ScheduledJob,
    name: str,
    percents: Sequence[float],
    by_percent: Sequence[Sequence[Training]],
) -> GuardedJob:
    """Makes of trainings, by switch point and seed, a job to replay."""
    tests = by_percent[0][0].tests
    by_seed = list(zip(*by_percent, strict=True))
    # One that diverged has fewer tests; the guard looks at no later ones.
    filled = [
        [[*one.tests, *[(0, one.seconds, 0.0)] * (len(tests) - len(one.tests))] for one in runs]
        for runs in by_seed
    ]
    values = np.array(filled, float)

    def each(what: str) -> np.ndarray:
        return np.array([[getattr(one, what) for one in runs] for runs in by_seed])

    diverged = each("diverged")
    job = TrustJob(
        name,
        tuple(percents),
        np.where(diverged, 0.0, each("accuracy")),
        diverged,
        each("seconds"),
        each("first_seconds"),
        identity.momentum_after_switch or SHARED_MOMENTUM,
    )
    boundaries = identity.recipe.learning_rate_boundaries
    return GuardedJob(
        job,
        curves=values[..., 2],
        clock=values[..., 1],
        steps=tuple(step for step, _, _ in tests),
        metric=identity.metric,
        decays=None if boundaries is None else tuple(at for at, _ in boundaries),
    )


class Recorded:
    """The trainings of a file of JSON lines; those that are made are added, cut ones made again.

    Without a file they are kept for this process alone.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Training] = {}
        for line in path.read_text().splitlines() if path and path.exists() else ():
            try:
                content = json.loads(line)
            except ValueError:  # the last one of a run that was killed
                continue
            self._known[content["key"]] = Training(**content["training"])

    def known(self, key: str) -> Training | None:
        """Returns a training if it is there."""
        return self._known.get(key)

    def find(self, key: str, make: Callable[[], Training]) -> Training:
        """Returns a training; makes and adds it if it is not there."""
        if key not in self._known:
            made = self._known[key] = make()
            self._add(key, made)
        return self._known[key]

    def _add(self, key: str, made: Training) -> None:
        if self._path:
            with self._path.open("a") as file:
                # A line of its own, whatever was cut before.
                file.write("\n" + json.dumps({"key": key, "training": asdict(made)}))


class JobTrainings:
    """The trainings of a job on a cluster; a context that closes its trainers.

    Args:
        reference: The workload, as on the command line.
        workers: n.
        cluster: One of `CLUSTERS`, which are simulated, or `threads` or `processes`.
        recorded: Has what was trained before.
    """

    def __init__(self, reference: str, workers: int, cluster: str, recorded: Recorded) -> None:
        self._reference, self._workers, self._cluster = reference, workers, cluster
        self._recorded = recorded
        self._trainers: dict[bool, Trainer] = {}

    def __enter__(self) -> JobTrainings:
        """Nothing is compiled before a training has to be made."""
        return self

    def __exit__(self, *_: object) -> None:
        for trainer in self._trainers.values():
            trainer.close()

    def of(self, choice: Choice, seeds: int, compensates: bool = False) -> list[Training]:
        """Returns one training for each seed; `compensates` adds DC-ASGD."""
        return list(self._of(choice, seeds, compensates))

    def first(self, percent: float, seeds: int) -> list[Training]:
        """Trainings of a job that nobody has trained, which choose their second phase."""
        identity = identity_of(self._reference, self._workers, self._cluster)
        candidates = second_phases(identity, load_workload(self._reference))
        key = f"{identity.key} {self._cluster} first {percent:g}"
        specs = [TrialSpec(identity, percent, seed, candidates=candidates) for seed in range(seeds)]
        return [
            self._recorded.find(f"{key} {spec.seed}", partial(self._make, spec, False))
            for spec in specs
        ]

    def _of(self, choice: Choice, seeds: int, compensates: bool) -> Iterator[Training]:
        identity = identity_of(self._reference, self._workers, self._cluster, choice.pair)
        key = f"{identity.key} {self._cluster}{' dc' * compensates} {choice.percent:g}"
        for seed in range(seeds):
            spec = TrialSpec(identity, choice.percent, seed)
            yield self._recorded.find(f"{key} {seed}", partial(self._make, spec, compensates))

    def _make(self, spec: TrialSpec, compensates: bool) -> Training:
        if compensates not in self._trainers:
            made = open_trainer(self._reference, self._workers, self._cluster, compensates)
            self._trainers[compensates] = made
        return Training.of(self._trainers[compensates].train(spec))


def open_trainer(reference: str, workers: int, cluster: str, compensates: bool = False) -> Trainer:
    """Returns what trains a job on one of the clusters; `compensates` adds DC-ASGD."""
    workload = load_workload(reference)
    if cluster == "threads":
        return ClusterTrainer(workload, workers)
    if cluster == "processes":
        return ProcessTrainer(reference, workers)
    kind = CompensatedTrainer if compensates else SimulatedTrainer
    return kind(workload, workers, CLUSTERS[cluster]())


def first_training(
    reference: str, workers: int, cluster: str, seed: int, folder: Path
) -> TrialRecord:
    """Trains as somebody who has just installed syncswitch does; `folder` takes what it leaves."""
    from syncswitch.searcher.api import train

    return train(
        reference,
        **trainer_choice(cluster, folder),
        workers=workers,
        seed=seed,
        expected_runs=1,
        storage=f"sqlite:///{folder}/first-{seed}.db",
        output=folder / f"first-{seed}.keras",
        checkpoints=folder / f"checkpoints-{seed}",
    ).record


def trainer_choice(cluster: str, folder: Path) -> dict[str, Any]:
    """The options of a training or search on a cluster; a profile becomes a file of the folder."""
    if cluster in CLUSTERS:
        profile = folder / f"{cluster}.json"
        profile.write_text(CLUSTERS[cluster]().model_dump_json())
        return {"trainer": "simulated", "trainer_options": {"profile": str(profile)}}
    launcher = "in-process" if cluster == "threads" else "processes"
    return {"trainer": "local", "trainer_options": {"launcher": launcher}}


def identity_of(
    reference: str, workers: int, cluster: str, pair: tuple[str, str] = ("bsp", "asp")
) -> ScheduledJob:
    """Returns the identity of a job on one of the clusters."""
    workload = load_workload(reference)
    if cluster in CLUSTERS:
        return simulated_identity(workload, workers, pair, CLUSTERS[cluster]())
    return workload_identity(workload, workers, *pair)


def shorter(worker_steps: int | None, interval: int) -> str:
    """Returns what makes a reference that of a shorter training, with a test each `interval`."""
    if worker_steps is None:
        return ""
    return f",total_worker_steps={worker_steps},evaluation_interval_worker_steps={interval}"
