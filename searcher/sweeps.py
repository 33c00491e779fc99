"""Runs at given switch points, compared with one target: sweeps, and policies on other jobs.

All recorded runs count; only missing ones are made. Nothing is decided, and no
policy is published.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from syncswitch.searcher.backends.base import JobRequest, TrainableJob, TrainerChoice
from syncswitch.searcher.search.loop import LoopOptions, TrialLoop
from syncswitch.searcher.search.plan import SearchPlan, replicate_seed
from syncswitch.searcher.search.recorded import usable_runs
from syncswitch.searcher.search.reporter import Reporter
from syncswitch.searcher.search.study import SearchState
from syncswitch.searcher.speed_up import SpeedUp, half_width, measured_speed_up
from syncswitch.searcher.strategies.base import Wait
from syncswitch.searcher.strategies.baseline import (
    MEASURED,
    ROUNDING,
    THRESHOLD_RUNS,
    check_baseline,
    measured_threshold,
)
from syncswitch.searcher.strategies.planner import PlannedTrial
from syncswitch.searcher.strategies.sweep import SweepStrategy
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import Command, CommandHint, OptionHint, UserError, WorkloadError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.job import RunConditions, ScheduledJob
from syncswitch.storage.records.metric import USUAL_THRESHOLD
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.job.schedule import switch_worker_step

if TYPE_CHECKING:
    from typing_extensions import Unpack

USUAL_POINTS = (100.0, 50.0, 25.0, 12.5, 6.25, 0.0)
"""Where a sweep trains unless the user says otherwise, percent."""

_USUAL_REFERENCE = "bsp"
_MOST_POINTS = 30


class SweepLoop(TrialLoop[int]):
    """Makes the runs that a sweep of a job lacks; its answer is their number."""

    def move(self, state: SearchState) -> int | PlannedTrial | Wait:
        self.report(state)
        if self.strategy.progress(state.finished).open_percent is None:
            return len(state.finished)
        planned = state.plan
        assert isinstance(planned, PlannedTrial | Wait)  # a sweep decides nothing
        return planned


def missing_runs(
    recorded: Sequence[StoredTrial], percents: Iterable[float], runs: int, base_seed: int
) -> tuple[tuple[float, int], ...]:
    """Switch point and replicate of each run to make, so that there are `runs` at each point.

    A replicate with the seed of a recorded run is not made again.
    """
    wanted: list[tuple[float, int]] = []
    for percent in percents:
        seeds = {row.seed for row in recorded if row.switch_percent == percent}
        fresh = (n for n in itertools.count() if replicate_seed(base_seed, n) not in seeds)
        missing = max(0, runs - len(seeds))
        wanted += [(percent, replicate) for replicate in itertools.islice(fresh, missing)]
    return tuple(wanted)


@dataclass(frozen=True, slots=True)
class EvaluatedSwitchPoint:
    """The results at one switch point; means are over runs that did not diverge.

    Attributes:
        accuracy_half_width: Half of the 95 % confidence interval (Student's) of the mean accuracy;
            None for fewer than two runs.
        training_seconds: Mean training time; None where all runs diverged.
        accuracies: Accuracies of the runs that did not diverge.
        seconds: Training times of the same runs, as far as they are known.
    """

    switch_percent: float
    runs: int
    diverged_runs: int
    mean_accuracy: float | None
    accuracy_half_width: float | None
    training_seconds: float | None
    accuracies: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()


def evaluated_switch_point(percent: float, recorded: Iterable[StoredTrial]) -> EvaluatedSwitchPoint:
    """The results at one switch point, from complete runs at any."""
    runs = [row for row in recorded if row.switch_percent == percent]
    sound = [row for row in runs if not row.result.diverged]
    accuracies = [
        row.result.converged_accuracy for row in sound if row.result.converged_accuracy is not None
    ]
    seconds = [
        row.times.training_seconds for row in sound if row.times.training_seconds is not None
    ]
    return EvaluatedSwitchPoint(
        switch_percent=percent,
        runs=len(runs),
        diverged_runs=len(runs) - len(sound),
        mean_accuracy=statistics.fmean(accuracies) if accuracies else None,
        accuracy_half_width=half_width(accuracies) if len(accuracies) > 1 else None,
        training_seconds=statistics.fmean(seconds) if seconds else None,
        accuracies=tuple(accuracies),
        seconds=tuple(seconds),
    )


@dataclass(frozen=True, slots=True)
class SweptJob:
    """The results of one job of a sweep.

    Attributes:
        study: Name of the study that holds the `new_runs` made for the sweep.
        switch_points: The results, in the order in which the switch points were given.
        reference: The workload as the user named it.
        own_policy: The job's own current policy, where policies of other jobs are tried on it.
    """

    identity: ScheduledJob
    conditions: RunConditions
    study: str
    new_runs: int
    switch_points: tuple[EvaluatedSwitchPoint, ...]
    reference: str = ""
    own_policy: TimingPolicy | None = None

    def at(self, percent: float) -> EvaluatedSwitchPoint | None:
        """The results at a switch point; None where it was not trained at."""
        points = (point for point in self.switch_points if point.switch_percent == percent)
        return next(points, None)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Jobs that are compared with one target.

    Attributes:
        reference_percent: The switch point at which the first job trains with one protocol alone.
            It sets the target accuracy and the usual time of a training.
        given_threshold: beta, the accuracy that may be lost; None to measure it.
        given_target: A; None to measure it.
        policies: The policies of other jobs that are tried.
    """

    jobs: tuple[SweptJob, ...]
    reference_percent: float
    given_threshold: float | None
    given_target: float | None = None
    policies: tuple[TimingPolicy, ...] = ()

    @property
    def target_accuracy(self) -> float | None:
        """A; None where it was not given and all runs of the reference diverged."""
        if self.given_target is not None:
            return self.given_target
        return None if self._reference is None else self._reference.mean_accuracy

    @property
    def threshold(self) -> float | None:
        """beta; None where it was not given and the reference cannot tell it."""
        if self.given_threshold is not None or self._reference is None:
            return self.given_threshold
        with contextlib.suppress(UserError):
            return measured_threshold(self._reference.accuracies)
        return None

    @property
    def _reference(self) -> EvaluatedSwitchPoint | None:
        return self.jobs[0].at(self.reference_percent)

    @property
    def _least_accuracy(self) -> float | None:
        """The least accuracy that keeps the target; None without it or the threshold."""
        target, threshold = self.target_accuracy, self.threshold
        return None if target is None or threshold is None else target - threshold - ROUNDING

    def kept_runs(self, switch_point: EvaluatedSwitchPoint) -> int | None:
        """Number of runs that lose at most the threshold against the target; None without both."""
        least = self._least_accuracy
        if least is None:
            return None
        return sum(accuracy >= least for accuracy in switch_point.accuracies)

    def keeps_accuracy(self, switch_point: EvaluatedSwitchPoint) -> bool | None:
        """Whether no run diverged and the mean loses at most the threshold; None as `kept_runs`."""
        least, accuracy = self._least_accuracy, switch_point.mean_accuracy
        if least is None:
            return None
        return not switch_point.diverged_runs and accuracy is not None and accuracy >= least

    def speed_up(self, job: SweptJob, percent: float) -> SpeedUp | None:
        """The gain over the reference; None where all runs of either diverged, or none ran."""
        seconds = {
            (swept.study, point.switch_percent): point.seconds
            for swept in self.jobs
            for point in swept.switch_points
        }
        usual = (self.jobs[0].study, self.reference_percent)
        return measured_speed_up(seconds, (job.study, percent), usual)


@dataclass(frozen=True)
class SweepPlan:
    """The jobs of a sweep, one for each pair of protocols; see `Sweep`.

    The first one measures the target. Where policies of other jobs are tried, each job's own is
    trained with as well. Two sweeps with the same plan on the same database are one: the second
    goes on where the first stopped, shares its work, or answers at once.
    """

    jobs: tuple[TrainableJob, ...]
    percents: tuple[float, ...]
    reference_percent: float
    threshold: float | None
    target_accuracy: float | None
    trainer: str
    runs: int
    seed: int
    guarded: bool
    policies: tuple[TimingPolicy, ...] = ()

    def run(self, database: Database, **options: Unpack[LoopOptions]) -> Sweep:
        """Makes the missing runs, and compares all.

        Raises UserError as `TrialLoop`, or if the first job's baseline diverged, and RetryableError
        if too many runs in a row failed.
        """
        store, jobs = TrialStore(database), list[SweptJob]()
        reporter = options.get("reporter") or Reporter()
        for job in self.jobs:
            called = normal_reference(job.reference)
            if len(self.jobs) > 1:
                reporter.on_next(f"{called} on {job.identity.cluster}")
            is_first = not jobs and None in (self.target_accuracy, self.threshold)
            own = self._own_policy(database, job.identity)
            strategy = self._strategy(job, own, is_first=is_first)
            recorded = self._comparable(store, job, strategy)
            wanted = missing_runs(recorded, strategy.percents, self.runs, self.seed)
            strategy = replace(strategy, wanted=wanted)
            options["reference"] = called
            plan = SearchPlan(strategy, self.trainer, self.seed, job.conditions)
            loop = SweepLoop(database, job.identity, plan, job.open_trainer, **options)
            new_runs, rows = loop.run(), self._comparable(store, job, strategy)
            points = tuple(evaluated_switch_point(percent, rows) for percent in strategy.percents)
            study = loop.study_name
            jobs.append(
                SweptJob(job.identity, job.conditions, study, new_runs, points, called, own)
            )
        sweep = Sweep(
            tuple(jobs), self.reference_percent, self.threshold, self.target_accuracy, self.policies
        )
        if sweep.target_accuracy is not None:
            for swept in jobs:
                store.set_target(swept.study, sweep.target_accuracy)
        return sweep

    def _comparable(
        self, store: TrialStore, job: TrainableJob, strategy: SweepStrategy
    ) -> list[StoredTrial]:
        """The recorded runs that count; where the baseline diverged, more would be in vain."""
        rows = usable_runs(store, job.identity, self.trainer, job.conditions, guarded=self.guarded)
        if strategy.has_baseline:
            check_baseline(
                bool(row.result.diverged) for row in rows if row.switch_percent == BASELINE_PERCENT
            )
        return rows

    def _own_policy(self, database: Database, identity: ScheduledJob) -> TimingPolicy | None:
        if not self.policies:
            return None
        own = PolicyRegistry(database).current(identity.fingerprint, identity.protocols)
        # A file does not say which version it is here.
        tried = [(one.job.fingerprint, one.protocols, one.switch_percent) for one in self.policies]
        is_tried = own and (own.job.fingerprint, own.protocols, own.switch_percent) in tried
        return None if is_tried else own

    def _strategy(
        self, job: TrainableJob, own: TimingPolicy | None, *, is_first: bool
    ) -> SweepStrategy:
        """The runs of a job; the first one also measures the target if none is given.

        Guarded runs need runs with the first protocol alone to compare with.
        """
        percents = self.percents if own is None else (*self.percents, own.switch_percent)
        percents = (self.reference_percent, *percents) if is_first else percents
        percents = (BASELINE_PERCENT, *percents) if self.guarded else percents
        different = tuple(dict.fromkeys(percents))
        return SweepStrategy(
            len(different),
            self.runs,
            target_accuracy=self.target_accuracy,
            accuracy_range=job.identity.metric.accuracies,
            percents=different,
            has_baseline=is_first and self.reference_percent == BASELINE_PERCENT,
            guarded=self.guarded,
        ).with_allowed(AllowedLoss(self.threshold) if self.threshold else MEASURED)


def plan_sweep(
    trainer: TrainerChoice,
    reference: str | None,
    at: str | Sequence[float] | None,
    *,
    policies: Sequence[TimingPolicy] = (),
    protocols: Sequence[str] = (),
    workers: int | None = None,
    storage_url: str,
    runs: int,
    threshold: float | None,
    target_accuracy: float | None,
    guarded: bool,
    seed: int,
    online: str,
    switch: str,
    inject: Sequence[str] = (),
) -> SweepPlan:
    """Prepares the jobs of a sweep; nothing is trained.

    The arguments are those of `searcher.api.sweep`, with the trainer and the policies themselves;
    `at` may be a text such as `100,50,0`. Raises UserError if something does not exist, is out of
    range, or does not fit the rest.
    """
    chosen = ConditionsChoice(online, switch, tuple(inject))
    tried = tuple(policy.switch_percent for policy in policies)
    points = () if at is None and tried else _switch_points(USUAL_POINTS if at is None else at)
    points = tuple(dict.fromkeys((*points, *tried)))
    if policies:
        protocols = protocols or [policy.protocols.pair for policy in policies]
        threshold = policies[0].threshold if threshold is None else threshold
    # Everything is compared with BSP alone, or with the first protocol alone if no pair has BSP.
    pairs = list(dict.fromkeys(trainer.pair(text) for text in protocols or (None,)))
    first = next((pair for pair in pairs if _USUAL_REFERENCE in pair), pairs[0])
    pairs.sort(key=lambda pair: pair != first)
    reference_percent = 0.0 if pairs[0][1] == _USUAL_REFERENCE else BASELINE_PERCENT
    jobs: list[TrainableJob] = []
    workers = trainer.workers(workers)
    usual = policies[0].job.workers if policies else trainer.default_workers
    for pair in pairs:
        request = JobRequest(
            reference, workers, usual, pair, storage_url, seed, chosen, switch_percent=max(points)
        )
        jobs.append(trainer.job(request))
        _check(jobs[-1], points)
    metric = jobs[0].identity.metric
    if threshold is None and metric.has_usual_threshold:
        threshold = USUAL_THRESHOLD
    if threshold is None and runs < THRESHOLD_RUNS:
        raise UserError(
            f"no threshold for {metric.name} is given, and it is measured in {THRESHOLD_RUNS} runs",
            parameter="runs",
            value=runs,
            remedy=("give as many", OptionHint("threshold")),
            code="parameters-conflict",
        )
    allowed = USUAL_THRESHOLD if threshold is None else threshold
    given = SweepStrategy(1, 1, allowed, target_accuracy, percents=(100.0,))
    if threshold is None:
        given = given.with_allowed(MEASURED)
    given = given.measured_by(metric)
    SearchPlan(given, base_seed=seed).check()
    return SweepPlan(
        jobs=tuple(jobs),
        percents=points,
        reference_percent=reference_percent,
        threshold=threshold,
        target_accuracy=given.target_accuracy,
        trainer=trainer.kind,
        runs=runs,
        seed=seed,
        guarded=guarded,
        policies=tuple(policies),
    )


def _check(job: TrainableJob, points: Iterable[float]) -> None:
    for text in job.conditions.injections:
        if text.startswith("kill:chief"):
            raise UserError(
                f"injection {text!r} cannot be used in a sweep, whose runs start over"
                " without their chief",
                remedy=CommandHint(Command.TRAIN, verb="try it with:"),
                code="parameters-conflict",
            )
    identity, W = job.identity, job.identity.total_worker_steps
    for percent in points:
        # The first protocol always gets a part.
        if percent < 100 and switch_worker_step(TrialSpec(identity, percent, seed=0)) == W:
            raise WorkloadError(
                f"workload {identity.name!r} is too short for a switch at {percent:g} %: of its"
                f" {identity.length} on {identity.size} {identity.second_protocol} gets none;"
                f" give it more {identity.step_noun}s, or use fewer workers"
            )


def _switch_points(percents: str | Sequence[float]) -> tuple[float, ...]:
    text = percents if isinstance(percents, str) else ",".join(f"{point:g}" for point in percents)
    try:
        points = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        points = ()
    if not (0 < len(points) <= _MOST_POINTS and all(0 <= point <= 100 for point in points)):
        needed = f"give 1 to {_MOST_POINTS} percentages from 0 to 100, such as 100,50,0"
        raise UserError(needed, parameter="at", value=text)
    return points
