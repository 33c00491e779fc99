"""The benefit for users: real searches, then real guarded runs with each policy.

    python -m benchmarks.live_trust [--workload digits] [--workers 8]
        [--cluster paper|equal|straggler|slow-link|threads|processes] [--searches 20]
        [--expected-runs 20] [--begin-at 1.5625] [--first] [--json FILE]

Every search has seeds of its own. Its policy is then trained with as often as `--expected-runs`
says, as `syncswitch-run` would without learning: guarded, a switch that fails tried again later.
All policies are used with the same further seeds, that no search has seen, and so is BSP alone. A
model is kept if it loses at most beta against the mean of BSP on these seeds. `--begin-at` looks at
runs that begin at a switch point too early, whatever the policy says, and find their own.
`--cluster` is a virtual clock with a profile, of the paper's cluster or others, or workers on this
machine.

`--first` makes no search: each training is the first one of a database of its own, as of someone
who has just installed it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks.console import at_most, parser
from benchmarks.problems import BASELINE_PERCENT, BETA
from benchmarks.trainings import (
    first_training,
    held_percent,
    identity_of,
    open_trainer,
    trainer_choice,
)
from syncswitch.searcher.learning.reading import band_alone
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.queries.search_costs import study_costs
from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialRecord, TrialSpec

# Beyond all seeds of searches, which are hashes: any would do.
_FIRST_SEED = 1_000_003


@dataclass(frozen=True)
class Training:
    """One run.

    Attributes:
        accuracy: Converged accuracy; None if it diverged.
        seconds: Its training time, failed tries included.
        held_percent: The switch point that held; 100 where it is BSP from end to end.
        failed: The switch points that did not hold.
        second_protocol: The protocol after them.
    """

    accuracy: float | None
    seconds: float
    held_percent: float
    failed: tuple[float, ...] = ()
    second_protocol: str = ""


def _training(record: TrialRecord) -> Training:
    guard = record.guard or GuardOutcome(record.spec.switch_percent)
    return Training(
        None if record.diverged else record.converged_accuracy,
        record.training_seconds,
        held_percent(guard),
        tuple(one.switch_percent for one in guard.failed),
        record.spec.identity.second_protocol,
    )


@dataclass
class Job:
    """A workload and a cluster for it, which is searched for and trained.

    Attributes:
        reference: The workload, as on the command line.
        cluster: One of `CLUSTERS`, which are simulated, or `threads` or `processes`.
        workers: n.
        expected_runs: Trainings at each switch point; their seeds are `_FIRST_SEED` and on.
        folder: For databases and checkpoints.
    """

    reference: str
    cluster: str
    workers: int
    expected_runs: int
    folder: Path
    _baseline: list[Training] = field(default_factory=list)

    def searched(self, seed: int) -> tuple[TimingPolicy, float]:
        """A search's policy, and its cost in trainings with BSP alone."""
        from syncswitch.searcher.api import search

        url = f"sqlite:///{self.folder}/search-{seed}.db"
        policy = search(
            self.reference,
            **trainer_choice(self.cluster, self.folder),
            workers=self.workers,
            seed=seed,
            storage=url,
            checkpoints=self.folder / f"checkpoints-{seed}",
        )
        with open_database(url, create=False) as database:
            (study,) = study_costs(database)
        return policy, study.cost.bsp_multiples or 0.0

    def trained(self, percent: float, policy: TimingPolicy | None = None) -> list[Training]:
        """Trainings that begin with a switch point, guarded if there is a policy's band."""
        identity = identity_of(self.reference, self.workers, self.cluster)
        band = None if policy is None else band_alone(policy)
        specs = [TrialSpec.of_policy(identity, percent, seed, band) for seed in self._seeds]
        with open_trainer(self.reference, self.workers, self.cluster) as trainer:
            return [_training(trainer.train(spec)) for spec in specs]

    def first(self) -> list[Training]:
        """First trainings, each with an empty database and the same seeds."""
        return [
            _training(first_training(self.reference, self.workers, self.cluster, seed, self.folder))
            for seed in self._seeds
        ]

    @property
    def _seeds(self) -> range:
        return range(_FIRST_SEED, _FIRST_SEED + self.expected_runs)

    @property
    def baseline(self) -> list[Training]:
        """Trainings with BSP alone."""
        if not self._baseline:
            self._baseline = self.trained(BASELINE_PERCENT)
        return self._baseline

    def words(self, trainings: Sequence[Training]) -> str:
        """Their speed, the share that keeps the accuracy, and the switch points that held."""
        seconds = [
            statistics.fmean(one.seconds for one in all_) for all_ in (self.baseline, trainings)
        ]
        held = Counter(one.held_percent for one in trainings)
        second = Counter(one.second_protocol for one in trainings)
        switches = statistics.fmean(
            len(one.failed) + (one.held_percent < BASELINE_PERCENT) for one in trainings
        )
        return (
            f"{seconds[0] / seconds[1]:.2f} times as fast as BSP alone,"
            f" {self.kept_percent(trainings):.1f} % keep the accuracy, {switches:.1f} switches each"
            f" (held at {', '.join(f'{p:g} %: {n}' for p, n in sorted(held.items()))};"
            f" {', '.join(f'{name}: {n}' for name, n in sorted(second.items()))})"
        )

    def kept_percent(self, trainings: Sequence[Training]) -> float:
        """Percentage of them that keep the accuracy."""
        whole = [one.accuracy for one in self.baseline if one.accuracy is not None]
        least = statistics.fmean(whole) - BETA
        return 100 * statistics.fmean(
            one.accuracy is not None and one.accuracy >= least for one in trainings
        )


def main() -> None:
    options = parser(
        __doc__, workload="digits", workers=8, cluster="paper", searches=20, expected_runs=20,
        begin_at=float, first=False, json=Path,
    ).parse_args()  # fmt: skip
    console = Console(highlight=False)
    with at_most(8 * 3600), tempfile.TemporaryDirectory() as folder:
        job = Job(
            options.workload, options.cluster, options.workers, options.expected_runs, Path(folder)
        )
        if options.first:
            found = {"first": job.first()}
            what = f"{options.expected_runs} first trainings"
        else:
            found = {
                f"search {seed}": _after_search(job, seed, options.begin_at, console)
                for seed in range(options.searches)
            }
            what = f"{options.searches} searches with {options.expected_runs} trainings each"
        trainings = [one for all_ in found.values() for one in all_]
        console.print(
            f"{what}: {job.words(trainings)};"
            f" of BSP alone {job.kept_percent(job.baseline):.1f} % keep the accuracy"
        )
    if options.json:
        found = {"BSP alone": job.baseline, **found}
        values = {name: [asdict(one) for one in all_] for name, all_ in found.items()}
        options.json.write_text(json.dumps(values) + "\n")


def _after_search(job: Job, seed: int, begin_at: float | None, console: Console) -> list[Training]:
    """Trainings with the policy of a search, or from another switch point on."""
    policy, cost = job.searched(seed)
    begin = policy.switch_percent if begin_at is None else begin_at
    trainings = job.trained(begin, policy)
    console.print(
        f"search {seed}: {policy.switch_percent:g} %, cost {cost:.2f}; trainings that begin"
        f" at {begin:g} %: {job.words(trainings)}; stated: {_stated(policy)}"
    )
    return trainings


def _stated(policy: TimingPolicy) -> str:
    time, share = policy.promise.expected_time, policy.promise.delivered_share
    if time is None or share is None:
        return "nothing"
    return f"{1 / time:.2f} times, {100 * share:.1f} % kept"


if __name__ == "__main__":
    main()
